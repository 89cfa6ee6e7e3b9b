"""The templates that `kraftsim new` writes outside the source tree: the file of an extension, and
its pytest test. Both work as they are.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

TEMPLATES: Final = Path(__file__).parent / "templates" / "own"
RESERVED: Final = ("kraftsim", "protocol", "scenarios", "pytest", "conftest")
BASE_RELEASE: Final = "3.9"


class OwnFileError(ValueError):
    """The files cannot be written; the message is one line."""


@dataclass(frozen=True, slots=True)
class OwnKind:
    """`use` are command lines, with `$stem`, `$name` and `$file`; `shows` says what to look up
    while changing the file.
    """

    use: tuple[str, ...]
    shows: tuple[str, ...]


OWN_KINDS: Final[Mapping[str, OwnKind]] = {
    "scenario": OwnKind(
        use=(
            "kraftsim scenario $file --seed 1 --out runs/$stem",
            "kraftsim sweep $file --seeds 200",
        ),
        shows=("environment", "faults --long", "triggers", "invariants"),
    ),
    "invariant": OwnKind(
        use=(
            "kraftsim sweep producer_ids_survive_failover --extension $file",
            "kraftsim analyze runs/one --extension $file",
        ),
        shows=("events --long", "invariants"),
    ),
    "fault": OwnKind(
        use=("kraftsim sweep quorum_under_faults --extension $file",),
        shows=("faults --long", "triggers"),
    ),
    "bug": OwnKind(
        use=("kraftsim sweep lost_produce_responses --bug $name --extension $file",),
        shows=("parts", "bugs"),
    ),
    "release": OwnKind(
        use=("kraftsim up --release $name --extension $file --data runs/up",),
        shows=("traits", "releases"),
    ),
}


def write_own(kind: str, words: list[str], directory: Path) -> list[Path]:
    """Write the file and its test into a directory, and return their paths.

    Raises OwnFileError for a kind without a template, a name that Python needs itself, or a file
    that exists.
    """
    if kind not in OWN_KINDS:
        raise OwnFileError(
            f"{kind} is a part of kraftsim's sources: run this in a source tree, or use --root"
        )
    values = _values(kind, words)
    stem = values["stem"]
    if stem in RESERVED or stem in sys.stdlib_module_names:
        raise OwnFileError(f"{stem}.py would hide the Python module {stem}: choose another name")
    texts = {
        directory / f"{stem}.py": f"{kind}.txt",
        directory / f"test_{stem}.py": f"{kind}_test.txt",
    }
    existing = [path for path in texts if path.exists()]
    if existing:
        raise OwnFileError(f"{existing[0]} exists: choose another name, or remove it")
    directory.mkdir(parents=True, exist_ok=True)
    for path, template in texts.items():
        text = Template((TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)
        path.write_text(text, encoding="utf-8")
    return list(texts)


def own_advice(kind: str, words: list[str], directory: Path) -> Iterator[str]:
    """Lines that say how to use the file, and where to look up what it may contain."""
    values = _values(kind, words)
    path = directory / f"{values['stem']}.py"
    file = path.as_posix() if path.is_absolute() else f"./{path.as_posix()}"
    test = (directory / f"test_{values['stem']}.py").as_posix()
    yield "Both work as they are. Next:"
    for line in (f"python -m pytest {test}", *OWN_KINDS[kind].use):
        yield f"  {Template(line).substitute(values, file=file)}"
    yield "What you can use:"
    for shown in OWN_KINDS[kind].shows:
        yield f"  kraftsim list {shown}"


def _values(kind: str, words: list[str]) -> dict[str, str]:
    stem, name = "_".join(words), "-".join(words)
    return {
        "stem": stem,
        "name": f"{BASE_RELEASE}-{name}" if kind == "release" else name,
        "title": " ".join(words).capitalize(),
    }

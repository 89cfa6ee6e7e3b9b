"""`kraftsim new`: writes a template for a new API, scenario, invariant, fault or bug.

What remains to be written is marked `FILL IN`; a test rejects that mark in the source tree.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Final

import click

from kraftsim.cli.failure import fail
from kraftsim.cli.source_tree import API_KEYS, KINDS, MODULES

TEMPLATES: Final = Path(__file__).parent / "templates"
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*([_-][A-Za-z0-9]+)*")
TICKET: Final = re.compile(r"[A-Z]+-\d+(?=-|$)")
MEMBER: Final = re.compile(r"^    ([A-Z_]+) = (\d+), [A-Z_]+", re.MULTILINE)


class ScaffoldError(ValueError):
    """The file cannot be written; the message says why."""


def words_of(name: str) -> list[str]:
    """Split a name in any spelling: `DescribeThing`, `describe_thing`, `describe-thing`."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").split("_")
    return [part.lower() for part in parts]


def write(kind: str, name: str, root: Path) -> list[Path]:
    """Write the files of one entry below `root` and return their paths.

    Raises ScaffoldError for a bad name, a file that exists, or a directory without the sources.
    """
    if not NAME.fullmatch(name):
        raise ScaffoldError(f"{name!r} is no name: use letters, digits, and - or _ between words")
    if not (root / API_KEYS).is_file():
        raise ScaffoldError(f"{root} has no {API_KEYS}: run this in the source tree, or use --root")
    values = _values(kind, name, root)
    texts = {
        root / Template(path).substitute(values): _rendered(template, values)
        for path, template in KINDS[kind].files.items()
    }
    existing = [path for path in texts if path.exists()]
    if existing:
        raise ScaffoldError(f"{existing[0]} exists: choose another name")
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    written = list(texts)
    if kind == "api" and _add_api_key(root / API_KEYS, values):
        written.append(root / API_KEYS)
    return written


def advice(kind: str, name: str, root: Path) -> Iterator[str]:
    """Lines that name what to fill in and which tests cover it."""
    values = _values(kind, name, root)
    yield "Next:"
    for step in KINDS[kind].next_steps:
        yield f"  - {Template(step).substitute(values)}"
    yield "Tests that check it:"
    for test in KINDS[kind].tests:
        yield f"  - {test}"


def _values(kind: str, name: str, root: Path) -> Mapping[str, str]:
    words = words_of(name)
    stem = "_".join(words)
    values = {
        "stem": stem,
        "name": stem.replace("_", "-"),
        "camel": "".join(word.capitalize() for word in words),
        "constant": stem.upper(),
        "number": "",
        **MODULES,
    }
    if kind == "scenario":
        values["name"] = stem
    if kind == "bug" and (ticket := TICKET.match(name.replace("_", "-").upper())):
        values["name"] = ticket[0]
    if kind == "api":
        known = {member: int(key) for member, key in _members(root / API_KEYS)}
        number = known.get(values["constant"], max(known.values()) + 1)
        values |= {"number": str(number), "stem": f"k{number:02}_{stem}"}
    return values


def _members(file: Path) -> list[tuple[str, str]]:
    members: list[tuple[str, str]] = MEMBER.findall(file.read_text())
    return members


def _rendered(template: str, values: Mapping[str, str]) -> str:
    return Template((TEMPLATES / template).read_text()).substitute(values)


def _add_api_key(file: Path, values: Mapping[str, str]) -> bool:
    """Append a member to `class ApiKey`; return whether it was missing."""
    text = file.read_text()
    found = list(MEMBER.finditer(text))
    if values["constant"] in {member[1] for member in found}:
        return False
    end = text.index("\n", found[-1].end()) + 1
    line = f"    {values['constant']} = {values['number']}, KRAFT_BROKER  # FILL IN: listeners\n"
    file.write_text(text[:end] + line + text[end:])
    return True


@click.command(
    epilog="""\b
Examples:
  kraftsim new scenario coordinator_moves_twice
  kraftsim new invariant epochs-never-decrease
  kraftsim new fault slow-name-lookup
  kraftsim new bug KAFKA-12345-marker-written-twice
  kraftsim new api DescribeThing"""
)
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("name")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Root of the source tree; the current directory if not given.",
)
def new(kind: str, name: str, root: Path) -> None:
    """Write a template of a KIND into the source tree, and print what to do next.

    Search for FILL IN in the files that are written. They pass the linter and the type checker as
    they are.
    """
    try:
        written = write(kind, name, root)
        lines = list(advice(kind, name, root))
    except (ScaffoldError, OSError) as trouble:
        fail(trouble)
    for path in written:
        click.echo(f"wrote {path}")
    for line in lines:
        click.echo(line)

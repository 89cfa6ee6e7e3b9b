"""Each exception to lint and types names its rule and gives a reason.

The reason follows on the line: `# noqa: SIM115  (closed by the caller)`, or
`# type: ignore[misc]  # aiokafka has no types`. Or a comment above, which begins with the rule and
holds to the end of its block: `# misc: aiokafka has no types`.
"""

import io
import re
import tokenize
import tomllib
from collections.abc import Iterator

import pytest

from tests.house.test_style import PROJECT_ROOT, name_of, python_files

EXCEPTION = re.compile(
    r"\s*(?:(?P<free>pragma: no (?:cover|branch)|mypy:)|noqa|type:\s*ignore|ruff:\s*noqa)"
    r"(?!\w)(?P<rest>.*)"
)
"""`free`: names no rule."""
RULES = re.compile(
    r"(?:\[(?P<mypy>[a-z-]+(?:,\s*[a-z-]+)*)\]|:\s*(?P<ruff>[A-Z]+\d+(?:,\s*[A-Z]+\d+)*))"
    r"(?P<reason>.*)"
)
GROUP = re.compile(
    r"#\s*(?P<rules>[A-Z]+\d+(?:,[A-Z]+\d+)*|[a-z]+(?:-[a-z]+)*(?:,[a-z-]+)*): (?P<reason>.*)"
)
MARK = re.compile(r"noqa|type:\s*ignore|pragma: no|mypy:")
"""Most files have none, and need not be split into tokens."""
WORD = re.compile(r"[A-Za-z]{2}")
"""A reason has words: a bracket or a dash is none."""
PYPROJECT = PROJECT_ROOT / "pyproject.toml"
PYPROJECT_EXCEPTIONS = re.compile(
    r"""\s*(ignore = \["[A-Z]+\d|"[\w/*.]+" = \["[A-Z]+\d|max-line-length|ignore_missing_imports"""
    r"|implicit_reexport = true|disable_error_code|disallow_\w+ = false|warn_\w+ = false"
    r"|strict_equality = false|omit = |exclude_(also|lines) = )"
)


def comments(text: str) -> Iterator[tuple[int, int, str, bool]]:
    """Line, indentation of the line, comment, and whether it is alone on its line."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line = lines[token.start[0] - 1]
            indentation = len(line) - len(line.lstrip())
            yield token.start[0], indentation, token.string, token.start[1] == indentation


def end_of_block(lines: list[str], first: int, indentation: int) -> int:
    """The last line that is as far to the right as a comment in line `first`."""
    for number, line in enumerate(lines[first:], first + 1):
        if line.strip() and len(line) - len(line.lstrip()) < indentation:
            return number - 1
    return len(lines)


def is_explained(exception: re.Match[str], behind: str, held: set[str]) -> bool:
    """Whether it names rules, and has a reason in its own words, behind it, or above."""
    if exception["free"]:
        return bool(re.search(r"\(.*[A-Za-z]{2}.*\)", exception["rest"]) or WORD.search(behind))
    rules = RULES.match(exception["rest"])
    if rules is None:
        return False
    named = set(re.split(r",\s*", rules["mypy"] or rules["ruff"]))
    return bool(WORD.search(rules["reason"] + behind)) or named <= held


def unexplained(text: str) -> list[int]:
    """Lines with an exception that names no rule or has no reason."""
    if MARK.search(text) is None:
        return []
    lines, found = text.splitlines(), []
    groups: list[tuple[str, range]] = []
    for number, indentation, comment, is_alone in comments(text):
        group = GROUP.match(comment)
        if is_alone and group is not None and WORD.search(group["reason"]):
            block = range(number, end_of_block(lines, number, indentation) + 1)
            groups += [(rule, block) for rule in group["rules"].split(",")]
        held = {rule for rule, block in groups if number in block}
        parts = comment.split("#")[1:]
        for part, behind in zip(parts, [*parts[1:], ""], strict=True):
            exception = EXCEPTION.match(part)
            if exception is not None and not is_explained(
                exception, "" if EXCEPTION.match(behind) else behind, held
            ):
                found.append(number)
    return sorted(set(found))


def unexplained_settings(text: str) -> list[str]:
    """Exceptions in pyproject.toml without a comment on the line or above their group."""
    found, is_explained = [], False
    for line in text.splitlines():
        if not line.strip():
            is_explained = False
        elif line.lstrip().startswith("#"):
            is_explained = True
        elif PYPROJECT_EXCEPTIONS.match(line) and not is_explained and "  # " not in line:
            found.append(line)
    return found


def test_each_exception_names_its_rule_and_a_reason() -> None:
    without = {
        name_of(file): lines for file in python_files() if (lines := unexplained(file.read_text()))
    }
    assert not without, "write why: # noqa: RULE  (REASON), or # type: ignore[RULE]  # REASON"


def test_each_exception_in_pyproject_has_a_reason() -> None:
    assert not unexplained_settings(PYPROJECT.read_text()), "write why in a comment above"


def test_mypy_and_ruff_refuse_exceptions_that_nothing_needs() -> None:
    settings = tomllib.loads(PYPROJECT.read_text())["tool"]
    assert settings["mypy"]["strict"], "strict contains warn_unused_ignores"
    assert "RUF" in settings["ruff"]["lint"]["select"], "RUF100"
    assert not [
        each["module"]
        for each in settings["mypy"]["overrides"]
        if not each.get("warn_unused_ignores", True)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "x = open(name)  # noqa",
        "x = open(name)  # noqa: SIM115",
        "x = open(name)  # noqa: SIM115  ()",
        "x = f()  # type: ignore",
        "x = f()  # type: ignore[misc]",
        "x = f()  # type: ignore[misc]  #",
        "x = f()  # type: ignore[misc]  # noqa: SIM115",
        "if x:  # pragma: no cover",
        "# ruff: noqa",
        "# mypy: ignore-errors",
        "# arg-type: another rule\nx = f()  # type: ignore[misc]",
        "# misc: ...\nx = f()  # type: ignore[misc]",
        "if y:\n    # misc: no types\n    f()\nx = f()  # type: ignore[misc]",
        "# misc: no types\nx = f()  # type: ignore[misc,index]",
    ],
)
def test_an_exception_without_a_reason_is_found(line: str) -> None:
    assert unexplained(f"{line}\n") == [line.count("\n") + 1]


@pytest.mark.parametrize(
    "text",
    [
        "x = open(name)  # noqa: SIM115  (closed by the caller)",
        "x = f()  # type: ignore[misc]  # aiokafka has no types",
        "# misc,index: aiokafka has no types\nx = f()  # type: ignore[misc, index]",
        "if y:\n    # SIM115: closed below\n    f()\n\n    x = open(name)  # noqa: SIM115",
        "# ruff: noqa: E402  (the launcher comes before what it pins)",
        "x = f()  # type: ignore[misc]  # no types  # noqa: B009  (as the caller does)",
        "if x:  # pragma: no cover  (Windows only)",
        'x = "# noqa"',
    ],
)
def test_an_exception_with_a_reason_is_accepted(text: str) -> None:
    assert not unexplained(f"{text}\n")


def test_a_setting_without_a_reason_is_found() -> None:
    assert unexplained_settings('# a list\n\nignore = ["RUF012"]\n') == ['ignore = ["RUF012"]']
    assert unexplained_settings('"tests/**" = ["TID251"]\n') == ['"tests/**" = ["TID251"]']
    assert not unexplained_settings('# fields are shared\nignore = ["RUF012"]\n')
    assert not unexplained_settings('# in real time\n"a/**" = ["TID251"]\n"b/**" = ["TID251"]\n')

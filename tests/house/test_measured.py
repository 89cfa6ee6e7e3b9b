"""Each table of figures in a hand-written page names its command, date, and commit."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from kraftsim.cli.main import kraftsim
from tools.claims.checks import CHECKS
from tools.claims.history import foreign_commits, measured_commit
from tools.claims.record import read_record
from tools.claims.rows import ROWS

PROJECT_ROOT = Path(__file__).parents[2]
DOCS = PROJECT_ROOT / "docs"
PAGES = {
    file.relative_to(PROJECT_ROOT).as_posix(): file
    for file in (PROJECT_ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
}
"""Every hand-written page, including new ones."""
NO_MEASUREMENTS = (
    *(
        "| target |",
        "| where | Apache Kafka |",
        "| term |",
        "| what | how |",
        "| | KRaft |",
        "| | KRaft (`quorum_source.py`) |",
        "| | ZooKeeper | KRaft |",
    ),
    *(
        "| setting |",
        "| API |",
        "| scenario | what happens |",
        "| wrong |",
    ),
    *("| column | type | null |", "| option of `analyze`, `report` |"),
    *("| while the log says |", "| compared | how |", "| bug | found by |"),
    "| metric | what it is |",
)
"""Headers of tables whose digits are config values, API keys, error codes, versions, and seeds."""
COST = re.compile(
    r"\b\d[\d,]*(?:\.\d+)?\s(?:us|ns|(?:CPU|virtual) seconds?|MB/s|ids/s|calls)\b|\bload of \d"
    r"|\bclean\b.{0,40}\d|\d[\d,]* (?:seeds|runs)\b[^.]*\bclean\b|\b(?:took|takes|in|after) "
    r"\d[\d,.]* (?:s|ms|seconds)\b"
)
"""Measured figures in a sentence: costs, rates, counts of clean runs."""
MEASURED = re.compile(r"Measured: (`[^`]+`, )+20\d\d-[01]\d-[0-3]\d, [0-9a-f]{7,40}$")
COMMAND = re.compile(r"`((?:make|kraftsim|python -m) [^`]*)`")


def tables(text: str) -> Iterator[tuple[Sequence[str], str]]:
    """Each table, and the first non-empty line after it."""
    lines = [*text.splitlines(), ""]
    first = None
    for place, line in enumerate(lines):
        if line.startswith("|"):
            first = place if first is None else first
        elif first is not None:
            yield lines[first:place], next((each for each in lines[place:] if each), "")
            first = None


def has_figures(table: Sequence[str]) -> bool:
    """Whether a cell after the first has a digit outside of code."""
    if table[0].startswith(NO_MEASUREMENTS):
        return False
    return any(
        re.search(r"\d", re.sub(r"`[^`]*`", "", cell))
        for row in table[2:]
        for cell in row.strip("| ").split("|")[1:]
    )


def unsaid(text: str) -> list[str]:
    """Headers of tables that do not name the source of their figures."""
    return [
        table[0]
        for table, behind in tables(text)
        if has_figures(table) and not MEASURED.match(behind)
    ]


def silent_sections(text: str) -> list[tuple[str, str]]:
    """Headings of sections with measured figures in sentences but without a `Measured:` line; with
    the first figure.
    """
    parts = re.split(r"(?m)^(#+ .*)$", re.sub(r"```.*?```", "", text, flags=re.S))
    found = []
    for head, body in zip(parts[1::2], parts[2::2], strict=True):
        prose = "\n\n".join(each for each in re.split(r"\n\n+", body) if not each.startswith("|"))
        cost = COST.search(re.sub(r"`[^`]*`", "", prose))
        if cost is not None and not any(map(MEASURED.match, body.splitlines())):
            found.append((head, cost.group()))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_table_of_figures_names_command_date_and_commit(page: str) -> None:
    assert not unsaid(PAGES[page].read_text()), "write below it: Measured: `COMMAND`, DATE, COMMIT"


@pytest.mark.parametrize("page", PAGES)
def test_every_measured_section_names_command_date_and_commit(page: str) -> None:
    assert not silent_sections(PAGES[page].read_text()), (
        "write below the sentence: Measured: `COMMAND`, DATE, COMMIT"
    )


def test_a_section_without_provenance_is_found() -> None:
    text = (
        "# a\n\nIt takes 3 CPU seconds.\n\n## b\n\n60 seeds, 20 of each, are clean.\n\n## c\n\n"
        "It waits for 3 s.\n"
    )
    assert [head for head, _ in silent_sections(text)] == ["# a", "## b"]
    assert not silent_sections(
        "# a\n\nIt takes 3 CPU seconds.\n\nMeasured: `make bench`, 2026-11-21, f95d19724\n"
    )


def test_a_table_without_provenance_is_found() -> None:
    table = "| what | seconds |\n|---|---|\n| start | 0.9 |\n\n"
    assert unsaid(table) == unsaid(table + "Measured: somehow") == ["| what | seconds |"]
    assert not unsaid(table + "Measured: `make bench ARGS=start`, 2026-11-21, f95d19724")
    assert not unsaid("| what | how |\n|---|---|\n| start | `make bench ARGS=9` |\n")


def test_measured_commits_are_in_the_git_history() -> None:
    """A rebased commit is lost: its measurement could not be repeated."""
    named = {
        file.name: re.findall(r"^Measured: .*, ([0-9a-f]{7,40})$", file.read_text(), flags=re.M)
        for file in sorted(DOCS.rglob("*.md"))
    }
    foreign = foreign_commits(commit for commits in named.values() for commit in commits)
    assert not [
        (page, commit) for page, commits in named.items() for commit in commits if commit in foreign
    ]


def test_commits_of_claims_are_in_the_git_history() -> None:
    """`make claims ARGS=--stale` repeats measurements of other commits."""
    commits = {check: measured["commit"] for check, measured in read_record()["checks"].items()}
    foreign = foreign_commits(commits.values())
    assert not [check for check, commit in commits.items() if commit in foreign]


def test_a_missing_commit_is_found() -> None:
    commits = ("0" * 40, measured_commit())
    assert foreign_commits(commits) in ([], ["0" * 40]), (
        "without a git history the check is not possible"
    )


def misfit(command: str) -> str:
    """Return why `kraftsim ...` would be refused; '' if not, or if only a value of the reader is
    missing: NAME, a run, --out.
    """
    words = shlex.split(command)[1:]
    verb = kraftsim.get_command(click.Context(kraftsim), words[0])
    if verb is None:
        return f"{words[0]} is no verb"
    try:
        verb.make_context(words[0], words[1:])
    except click.MissingParameter as lacking:
        return "" if lacking.param is not None and lacking.param.name == "out" else str(lacking)
    except click.BadParameter:
        return ""
    except click.UsageError as trouble:
        return str(trouble)
    return ""


def test_measuring_commands_start() -> None:
    """With all required options, and no unknown ones."""
    named = [
        command
        for page in PAGES
        for line in PAGES[page].read_text().splitlines()
        if MEASURED.match(line)
        for command in COMMAND.findall(line)
    ]
    named += [
        check.partition("#")[0].strip() for row in ROWS for check in row.checks if check in CHECKS
    ]
    ours = sorted({command for command in named if command.startswith("kraftsim ")})
    assert len(ours) > 30
    assert not [(command, why) for command in ours if (why := misfit(command))]
    assert (
        misfit("kraftsim compare --nothing --out x")
        and misfit("kraftsim campare")
        and misfit("kraftsim trail --id 3")
    )


def test_measuring_commands_are_cli_commands_or_make_targets() -> None:
    """`make TARGET` is in the Makefile, `kraftsim COMMAND` in the command line."""
    from kraftsim.cli.main import VERBS

    targets = set(re.findall(r"^([a-z-]+):", (DOCS.parent / "Makefile").read_text(), flags=re.M))
    named = [
        command
        for page in PAGES
        for line in PAGES[page].read_text().splitlines()
        if MEASURED.match(line)
        for command in COMMAND.findall(line)
    ]
    known = {"make": targets, "kraftsim": set(VERBS)}
    assert len(named) > 30
    assert not [
        command
        for command in named
        if command.split()[0] in known and command.split()[1] not in known[command.split()[0]]
    ]

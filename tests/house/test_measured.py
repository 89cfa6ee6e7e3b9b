"""Each table of figures in a hand-written page says how it was measured, when, and by which commit."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from claims.history import foreign_commits, measured_commit
from claims.play import PLAYS
from claims.record import read_record
from claims.rows import ROWS
from kraftsim.cli.main import kraftsim

HOUSE = Path(__file__).parents[2]
DOCS = HOUSE / "docs"
PAGES = {file.relative_to(HOUSE).as_posix(): file for file in (HOUSE / "README.md", *sorted(DOCS.glob("*.md")))}
"""Every page that somebody writes: a new one is held to it, too."""
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
    *("| setting |", "| API |", "| story | what happens |", "| scenario | what happens |", "| wrong |"),
    *("| while the log says |", "| compared | how |", "| bug | found by |"),
)
"""How tables begin whose digits are settings, keys of APIs, numbers of errors, versions, and seeds."""
COST = re.compile(
    r"\b\d[\d,]*(?:\.\d+)?\s(?:us|ns|(?:CPU|virtual) seconds?|MB/s|ids/s|calls)\b|\bload of \d"
    r"|\bclean\b.{0,40}\d|\d[\d,]* (?:seeds|runs)\b[^.]*\bclean\b|\b(?:took|takes|in|after) \d[\d,.]* (?:s|ms|seconds)\b"
)
"""What a sentence says that was measured: costs, rates, counts of clean runs."""
MEASURED = re.compile(r"Measured: (`[^`]+`, )+20\d\d-[01]\d-[0-3]\d, [0-9a-f]{7,40}$")
COMMAND = re.compile(r"`((?:make|kraftsim|python -m) [^`]*)`")


def tables(text: str) -> Iterator[tuple[Sequence[str], str]]:
    """Each table, and the first line behind it that is not empty."""
    lines = [*text.splitlines(), ""]
    first = None
    for place, line in enumerate(lines):
        if line.startswith("|"):
            first = place if first is None else first
        elif first is not None:
            yield lines[first:place], next((each for each in lines[place:] if each), "")
            first = None


def has_figures(table: Sequence[str]) -> bool:
    """Whether a cell behind the first has a digit outside of code."""
    if table[0].startswith(NO_MEASUREMENTS):
        return False
    return any(re.search(r"\d", re.sub(r"`[^`]*`", "", cell)) for row in table[2:] for cell in row.strip("| ").split("|")[1:])


def unsaid(text: str) -> list[str]:
    """Heads of tables that do not say where their figures come from."""
    return [table[0] for table, behind in tables(text) if has_figures(table) and not MEASURED.match(behind)]


def silent_sections(text: str) -> list[tuple[str, str]]:
    """Heads of sections whose sentences have measured figures, and no line that says of what; with the first figure."""
    parts = re.split(r"(?m)^(#+ .*)$", re.sub(r"```.*?```", "", text, flags=re.S))
    found = []
    for head, body in zip(parts[1::2], parts[2::2], strict=True):
        prose = "\n\n".join(each for each in re.split(r"\n\n+", body) if not each.startswith("|"))
        cost = COST.search(re.sub(r"`[^`]*`", "", prose))
        if cost is not None and not any(map(MEASURED.match, body.splitlines())):
            found.append((head, cost.group()))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_table_of_figures_says_command_date_and_commit(page):
    assert not unsaid(PAGES[page].read_text()), "write below it: Measured: `COMMAND`, DATE, COMMIT"


@pytest.mark.parametrize("page", PAGES)
def test_every_section_with_measured_figures_says_command_date_and_commit(page):
    assert not silent_sections(PAGES[page].read_text()), "write below the sentence: Measured: `COMMAND`, DATE, COMMIT"


def test_a_section_that_says_nothing_is_found():
    text = "# a\n\nIt takes 3 CPU seconds.\n\n## b\n\n60 seeds, 20 of each, are clean.\n\n## c\n\nIt waits for 3 s.\n"
    assert [head for head, _ in silent_sections(text)] == ["# a", "## b"]
    assert not silent_sections("# a\n\nIt takes 3 CPU seconds.\n\nMeasured: `make bench`, 2026-11-21, f95d19724\n")


def test_a_table_that_says_nothing_is_found():
    table = "| what | seconds |\n|---|---|\n| start | 0.9 |\n\n"
    assert unsaid(table) == unsaid(table + "Measured: somehow") == ["| what | seconds |"]
    assert not unsaid(table + "Measured: `make bench ARGS=start`, 2026-11-21, f95d19724")
    assert not unsaid("| what | how |\n|---|---|\n| start | `make bench ARGS=9` |\n")


def test_commits_that_were_measured_are_in_the_history():
    """A commit that was replayed onto another one is gone: nobody could measure it again."""
    named = {file.name: re.findall(r"^Measured: .*, ([0-9a-f]{7,40})$", file.read_text(), flags=re.M) for file in sorted(DOCS.glob("*.md"))}
    foreign = foreign_commits(commit for commits in named.values() for commit in commits)
    assert not [(page, commit) for page, commits in named.items() for commit in commits if commit in foreign]


def test_commits_that_claims_name_are_in_the_history():
    """`make claims ARGS=--stale` measures again what names another one."""
    commits = {check: measured["commit"] for check, measured in read_record()["checks"].items()}
    foreign = foreign_commits(commits.values())
    assert not [check for check, commit in commits.items() if commit in foreign]


def test_a_commit_that_is_not_there_is_found():
    commits = ("0" * 40, measured_commit())
    assert foreign_commits(commits) in ([], ["0" * 40]), "without a history nothing can be said"


def misfit(command: str) -> str:
    """Return why `kraftsim ...` would not begin; '' if it would, or if it only lacks what a reader puts in: NAME, a run of theirs, --out."""
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


def test_commands_that_measure_begin():
    """With all the options that they need, and none that there is not."""
    named = [command for page in PAGES for line in PAGES[page].read_text().splitlines() if MEASURED.match(line) for command in COMMAND.findall(line)]
    named += [check.partition("#")[0].strip() for row in ROWS for check in row.checks if check in PLAYS]
    ours = sorted({command for command in named if command.startswith("kraftsim ")})
    assert len(ours) > 30
    assert not [(command, why) for command in ours if (why := misfit(command))]
    assert misfit("kraftsim compare --nothing --out x") and misfit("kraftsim campare") and misfit("kraftsim trail --id 3")


def test_commands_that_measure_are_verbs():
    """`make VERB` is in the Makefile, `kraftsim VERB` in the command line."""
    from kraftsim.cli.main import VERBS

    targets = set(re.findall(r"^([a-z-]+):", (DOCS.parent / "Makefile").read_text(), flags=re.M))
    named = [command for page in PAGES for line in PAGES[page].read_text().splitlines() if MEASURED.match(line) for command in COMMAND.findall(line)]
    known = {"make": targets, "kraftsim": set(VERBS)}
    assert len(named) > 30
    assert not [command for command in named if command.split()[0] in known and command.split()[1] not in known[command.split()[0]]]

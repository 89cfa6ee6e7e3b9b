"""A small run shows a bug on a release of Apache Kafka that has it, and not on the next one; in
simulation the same file shows it as well.

The files are made by `python -m tests.apache_kafka.replayed_bugs make`.
"""

import os
from pathlib import Path

import pytest
from msgspec import structs

from kraftsim.invariants.invariant import INVARIANTS
from kraftsim.invariants.without_nodes import reason_without_nodes
from kraftsim.lab.explore.run import rerun
from tests.apache_kafka.replayed_bugs import (
    BEGIN,
    BUGS,
    END,
    PAGE,
    ReplayedBug,
    Shown,
    page_with,
    read_results,
    replay_on,
    shown,
    table,
    write_results,
)

FEWEST_OF_NEWER_BUGS = 5
SIZE_MAX = 2500
"""A replay file of a shrunken run has this many bytes at most."""
EVERYTHING = "KRAFTSIM_REPLAYED_BUGS"
IN_SHORT = ("KAFKA-19446",)
"""The bugs that are replayed without it, so that `make interop` stays short."""
per_bug = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)


@pytest.mark.interop
@per_bug
def test_affected_release_shows_the_bug_and_fixed_one_does_not(
    bug: ReplayedBug, tmp_path: Path
) -> None:
    """The closest two releases; docs/replayed-bugs.md has more."""
    if bug.name not in IN_SHORT and EVERYTHING not in os.environ:
        pytest.skip(f"takes long: set {EVERYTHING}=1, as make replayed-bugs does")
    affected, fixed = bug.affected[-1], bug.fixed[0]
    there = shown(bug, affected, replay_on(bug, affected, tmp_path / "affected"))
    absent = shown(bug, fixed, replay_on(bug, fixed, tmp_path / "fixed"))
    assert bug.invariant in there.violated, f"{affected}: {there}"
    assert (absent.violated, absent.trouble) == ((), None), f"{fixed}: {absent}"
    for each in (there, absent):
        assert each.effective == each.faults == len(bug.replay().faults), (
            f"every fault must take effect on {each.release}: {each}"
        )


@per_bug
def test_simulation_shows_the_bug(bug: ReplayedBug, tmp_path: Path) -> None:
    found = bug.replay()
    assert (found.scenario, found.release) == (bug.scenario, bug.release)
    assert found.bugs == ((bug.name,) if bug.injects else ())
    assert bug.invariant in rerun(found, tmp_path / "run").invariants_violated


@per_bug
def test_simulation_without_the_bug_is_clean(bug: ReplayedBug, tmp_path: Path) -> None:
    """The same faults reach the newest release."""
    found = structs.replace(bug.replay(), bugs=(), release="4.4")
    result = rerun(found, tmp_path / "run")
    assert (result.violations, result.trouble) == ((), None), "\n".join(result.lines())
    assert all(armed == effective for armed, _, effective in result.faults.values())


@per_bug
def test_clients_and_disks_alone_decide_the_invariant(bug: ReplayedBug) -> None:
    """Nodes of Apache Kafka emit no events."""
    assert reason_without_nodes(INVARIANTS.named(bug.invariant)) == ""


@per_bug
def test_replay_file_is_small(bug: ReplayedBug) -> None:
    assert bug.file.stat().st_size <= SIZE_MAX
    assert len(bug.replay().faults) <= 1
    assert (bug.replay().controllers, bug.replay().brokers) == (1, 1)


def test_page_has_the_table_of_what_was_measured() -> None:
    """`python -m tests.apache_kafka.replayed_bugs measure` writes both."""
    found = read_results()
    assert PAGE.read_text() == page_with(PAGE.read_text(), table(found))
    for bug in BUGS:
        for release in (*bug.affected, *bug.fixed):
            row = found[bug.name, release]
            assert (bug.invariant in row.violated) == (release in bug.affected), row
            assert row.faults == row.effective, row


def test_there_are_enough_bugs_of_4_0_and_later() -> None:
    newer = [bug for bug in BUGS if bug.affected[-1].startswith("4.")]
    assert len(newer) >= FEWEST_OF_NEWER_BUGS


def test_results_are_stored_sorted_and_reloaded(tmp_path: Path) -> None:
    rows = [
        Shown(bug=name, release="4.0.0", violated=(), trouble=None, faults=1, effective=1)
        for name in ("KAFKA-2", "KAFKA-1")
    ]
    write_results(rows, tmp_path / "rows.json")
    assert list(read_results(tmp_path / "rows.json").values()) == rows[::-1]


def test_a_new_table_replaces_the_former_one() -> None:
    page = page_with(f"before\n{BEGIN}old\n{END}after\n", "new")
    assert page == f"before\n{BEGIN}\nnew\n{END}after\n"
    assert page_with(page, "new") == page

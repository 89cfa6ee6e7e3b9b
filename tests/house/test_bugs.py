"""Historical bugs name their scenario, and the page about them shows how many seeds a bench needed
to find them there, for each repetition.
"""

from pathlib import Path

import pytest

from kraftsim.cluster.scenario import SCENARIOS
from kraftsim.invariants.invariant import INVARIANTS
from kraftsim.lab.bugs.bug import Bug, bugs
from kraftsim.lab.explore.virtual import BELIEF
from tools.bench.bug_hunts import REPETITIONS, BugHunts, Hunt, read, write
from tools.docs.bugs_page import bugs_plot, row


@pytest.mark.parametrize("bug", bugs(), ids=lambda bug: bug.name)
def test_a_bug_names_its_scenario_and_the_invariants_that_detect_it(bug: Bug) -> None:
    assert bug.scenario in SCENARIOS.names()
    assert bug.caught_by and set(bug.caught_by) <= {*INVARIANTS.names(), BELIEF}


@pytest.mark.parametrize("bug", bugs(), ids=lambda bug: bug.name)
def test_every_bug_was_searched_for_equally_often_in_its_scenario(bug: Bug) -> None:
    hunted = read()[bug.name]
    assert hunted.scenario == bug.scenario, 'make bench ARGS="bugs --write --bug NAME"'
    assert len(hunted.hunts) == REPETITIONS
    assert all(set(each.caught_by) & set(bug.caught_by) for each in hunted.hunts if each.is_found)


def test_a_row_counts_misses_and_names_only_intended_detectors() -> None:
    found = Hunt(
        is_found=True,
        seeds=3,
        cpu_seconds=1.25,
        caught_by=("metadata-log-matching", "recovers-after-heal"),
        is_by_scenario=True,
    )
    hunted = BugHunts(
        bug="KAFKA-10527",
        scenario="quorum_under_faults",
        hunts=(found, Hunt(is_found=False, seeds=2000, cpu_seconds=900.0)),
    )
    assert row(hunted) == (
        "| `KAFKA-10527` | `quorum_under_faults` | 1 of 2 | 1001.5 | 2000 | 450.6 | 900.0 | 1 | "
        "metadata-log-matching (1) |"
    )


def test_search_results_are_stored_sorted_and_reloaded(tmp_path: Path) -> None:
    file = tmp_path / "bugs.json"
    known = [
        BugHunts(
            bug=name,
            scenario="quorum_under_faults",
            hunts=(Hunt(is_found=True, seeds=1, cpu_seconds=0.5),),
        )
        for name in ("b", "a")
    ]
    assert read(file) == {}
    write(known, file)
    assert list(read(file)) == ["a", "b"] and read(file)["b"] == known[0]


def test_the_chart_has_a_strip_for_every_bug() -> None:
    assert all(f">{bug.name}</text>" in bugs_plot() for bug in bugs())

"""A two-phase commit between a topic and a database, with all parts of the design and without one
of them (KIP-939).
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from tests.simulate.test_edge_scenarios import events_of

NAME = "two_phase_commit_under_faults"
AGREE, FOLLOW, NO_TIMEOUT = (
    "database-and-topic-agree",
    "markers-follow-the-database",
    "participants-never-time-out",
)


def run(seed: int, out: Path, **workload: int) -> tuple[str, set[str]]:
    """Run a seed; return the outcome and the violated invariants."""
    request = RunRequest(scenario=scenario(NAME), mode=Mode.SIM, seed=seed, workload=workload)
    result = run_request(request, out)
    return result.outcome, {violation.partition(":")[0] for violation in result.violations}


@pytest.mark.parametrize("seed", [1, 43])
def test_database_and_topic_have_the_same_transactions(seed: int, tmp_path: Path) -> None:
    """Also where transactions are kept for another producer."""
    assert run(seed, tmp_path) == ("ok", set())
    seen = events_of(tmp_path)
    assert seen["TransactionKept", None] and seen["DatabaseCommitted", None]


WITHOUT: Mapping[str, Mapping[str, int]] = {
    "a time-out of 3 s": {"participates": 0},
    "the next producer aborts, as in releases": {"keeps": 0},
    "the database does not fence": {"fences": 0},
}
"""One part of the design that is left out -> the workload parameters."""
SEEDS = range(1, 9)


@pytest.mark.parametrize("name", WITHOUT)
def test_each_part_of_the_design_is_needed(
    name: str, tmp_path: Path, figures: Callable[..., None]
) -> None:
    """Without it some seed commits a transaction on one side only."""
    found = [run(seed, tmp_path / str(seed), **WITHOUT[name])[1] for seed in SEEDS]
    broken = [each & {AGREE, FOLLOW, NO_TIMEOUT} for each in found]
    figures(**{f"broken_{'_'.join(WITHOUT[name])}": sum(map(bool, broken))})
    assert any(broken), found


def test_same_seeds_agree_with_all_parts(tmp_path: Path, figures: Callable[..., None]) -> None:
    """And so many transactions are found by another instance, and committed by the database."""
    outcomes, seen = [], Counter[str]()
    for seed in SEEDS:
        outcomes.append(run(seed, tmp_path / str(seed)))
        seen += Counter(event["kind"] for event in _events(tmp_path / str(seed)))
    agreeing = sum(outcome == ("ok", set()) for outcome in outcomes)
    figures(
        seeds=len(SEEDS),
        agreeing=agreeing,
        kept=seen["TransactionKept"],
        committed_by_the_database=seen["DatabaseCommitted"],
    )
    assert agreeing == len(SEEDS), outcomes


def test_former_producer_writes_into_a_kept_transaction(
    tmp_path: Path, figures: Callable[..., None]
) -> None:
    """No marker tells leaders that there is another producer: what the former one still sends to
    partitions that are in the transaction is appended, and aborted with it.
    """
    assert run(43, tmp_path) == ("ok", set())
    kept: set[tuple[object, object]] = set()
    late = 0
    for event in sorted(_events(tmp_path), key=lambda each: each["t_ns"]):
        identity = (event.get("producer_id"), event.get("producer_epoch"))
        if event["kind"] == "TransactionKept":
            kept.add(identity)
        late += event["kind"] == "BatchAppended" and identity in kept
    figures(appended_for_former_producers=late)
    assert late


def _events(directory: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in sorted(directory.rglob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]

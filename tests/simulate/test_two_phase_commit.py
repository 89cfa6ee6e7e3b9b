"""A two-phase commit between a topic and a database, with all parts of the design and without one
of them (KIP-939).
"""

from pathlib import Path

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

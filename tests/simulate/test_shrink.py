"""A failing run is shrunk and still fails in the same way; the result is deterministic, and
described in words.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraftsim.cli.main import kraftsim
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore.description import fault_text
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.replay import read_replay
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.lab.explore.shrink import NotFailing, Shrunken, fewer, rounded, shrink, simpler_faults
from kraftsim.lab.explore.trials import TrialCandidate
from kraftsim.lab.faults.fault import AtTime, Fault, FileClass, OnDisk, OnEvent, OnFrame

CONTROLLER = "controller-101"
WORK = {
    "writers": 2,
    "records_per_writer": 20,
    "requesters": 1,
    "ids_per_requester": 900,
    "work_ms": 4000,
}
DARK = Fault(
    kind="restart",
    target=CONTROLLER,
    trigger=OnEvent(kind="ProducerIdBlockAllocated", nth=2),
    params={"power_loss": True, "after_ms": 731},
)


def crash(target: str, at_ms: int) -> Fault:
    return Fault(
        kind="restart",
        target=target,
        trigger=AtTime(at_ms=at_ms),
        params={"power_loss": False, "after_ms": 400},
    )


DECOYS = (
    crash("broker-1", 300),
    crash("broker-2", 650),
    crash("broker-3", 1200),
    crash("broker-2", 2800),
)


@pytest.fixture(scope="module")
def failing() -> tuple[RunRequest, RunResult]:
    """The controller loses power right after it returned a block that it had not flushed
    (KAFKA-10533), amid four kills of brokers.
    """
    request = RunRequest(
        scenario=scenario("producer_ids_survive_failover"),
        mode=Mode.SIM,
        seed=1,
        bugs=("KAFKA-10533",),
        faults=(*DECOYS[:2], DARK, *DECOYS[2:]),
        workload=WORK,
    )
    result = run_request(request)
    return request, result


@pytest.fixture(scope="module")
def alone(failing: tuple[RunRequest, RunResult]) -> Shrunken:
    """The failing run, shrunk by one process."""
    request, _ = failing
    return shrink(request)


def test_candidate_has_injected_faults_once() -> None:
    """Otherwise each step would add them again, and the smallest run would not be that which was
    tried.
    """
    request = RunRequest(
        scenario=scenario("producer_ids_survive_failover"),
        mode=Mode.SIM,
        seed=1,
        faults=DECOYS,
        injected=("BrokerHeartbeat drop times=2",),
    )
    candidate = TrialCandidate(
        faults=request.schedule(), workload=request.work(), controllers=1, brokers=3
    )
    assert len(request.schedule()) == len(DECOYS) + 1
    assert candidate.request(request).schedule() == request.schedule()


@pytest.mark.interop
def test_shrunk_run_has_only_what_the_failure_needs(
    failing: tuple[RunRequest, RunResult], alone: Shrunken, tmp_path: Path
) -> None:
    """No kill of a broker, a minimal workload, one broker; and the violation is the same, with one
    process and with two, and in a replay of its file.
    """
    request, result = failing
    assert result.outcome == "violated", result.lines()
    together = shrink(request, jobs=2)
    assert alone.candidate == together.candidate and alone.is_smallest
    assert [fault.params["power_loss"] for fault in alone.candidate.faults] == [True]
    assert alone.candidate.brokers < 3
    assert all(value <= WORK[name] for name, value in alone.candidate.workload.items())
    assert alone.candidate.workload["writers"] * alone.candidate.workload["records_per_writer"] == 0
    small = run_request(alone.candidate.request(request), tmp_path / "small")
    assert (
        alone.finding.invariant in small.invariants_violated
        and alone.finding.invariant in result.invariants_violated
    )
    assert read_replay(tmp_path / "small").faults == alone.candidate.faults


def test_budget_ends_shrinking_with_the_smallest_run_so_far(
    failing: tuple[RunRequest, RunResult],
) -> None:
    """Nothing is spent after the first run: all faults that fired remain."""
    request, _ = failing
    stopped = shrink(request, budget_seconds=0.0)
    assert not stopped.is_smallest and stopped.candidate.faults == request.faults


def test_parameters_of_faults_may_be_kept(failing: tuple[RunRequest, RunResult]) -> None:
    """For a run on a real cluster, whose times are others: faults are removed, not changed."""
    request, _ = failing
    kept = shrink(request, keeps_parameters=True)
    assert kept.is_smallest and len(kept.candidate.faults) == 1
    assert kept.candidate.faults[0].params == DARK.params
    assert kept.candidate.workload["work_ms"] == WORK["work_ms"]


def test_run_that_does_not_fail_cannot_be_shrunk(failing: tuple[RunRequest, RunResult]) -> None:
    """Nor one that fails in another way than requested."""
    request, _ = failing
    with pytest.raises(NotFailing, match="does not violate one-vote-per-epoch"):
        shrink(request, invariant="one-vote-per-epoch")
    with pytest.raises(NotFailing, match="does not fail"):
        shrink(
            RunRequest(scenario=request.scenario, mode=Mode.SIM, seed=1, faults=(), workload=WORK)
        )


@pytest.mark.interop
def test_verb_writes_a_smaller_run_and_its_explanation(
    failing: tuple[RunRequest, RunResult], alone: Shrunken, tmp_path: Path
) -> None:
    """From the run's directory to a smaller one beside it: a run that is as small as possible but
    for a kill, so that little is left to try.
    """
    request = alone.candidate.request(failing[0])
    faults = (crash("broker-1", 300), *alone.candidate.faults)
    run_request(replace(request, faults=faults), tmp_path / "run")
    done = CliRunner().invoke(
        kraftsim, ["shrink", str(tmp_path / "run"), "--budget", "60"], standalone_mode=False
    )
    assert done.return_value == 0, done.output
    small = tmp_path / "run-small"
    assert (small / "description.md").read_text() in done.output
    assert read_replay(small).faults == alone.candidate.faults
    assert "restart of controller-101" in done.output and "with power loss" in done.output
    again = CliRunner().invoke(kraftsim, ["replay", str(small), "--check"], standalone_mode=False)
    assert again.return_value == 0, again.output
    assert CliRunner().invoke(kraftsim, ["shrink"]).exit_code == 3


@pytest.mark.parametrize(
    "value, simpler", [(0, []), (1, [0]), (2, [0, 1]), (2500, [0, 200, 1000, 2000]), (7, [0, 3, 6])]
)
def test_fewer_begins_with_none_and_ends_just_below(value: int, simpler: list[int]) -> None:
    """Every step is smaller, so that reduction terminates."""
    assert list(fewer(value)) == simpler
    assert rounded(1985) == 1000 and rounded(7) == 7


@pytest.mark.parametrize(
    "fault",
    [
        DARK,
        crash("broker-1", 4746),
        Fault(
            kind="slow-disk",
            trigger=OnDisk(operation="flush", file_class=FileClass.METADATA_LOG, nth=38),
            params={"factor": 1000},
        ),
        Fault(
            kind="partition",
            target="a>b",
            trigger=OnFrame(api_key=52, nth=3),
            params={"duration_ms": 5604},
        ),
        Fault(
            kind="pause",
            trigger=OnEvent(kind="VoteAnswered", fields={"is_granted": True}, nth=4),
            params={"duration_ms": 3960},
        ),
    ],
)
def test_repeated_simplification_terminates(fault: Fault) -> None:
    """Always taking the last candidate, the smallest step, is the longest sequence."""
    seen = [fault]
    while simpler := list(simpler_faults(seen[-1])):
        assert all(each not in seen for each in simpler)
        seen.append(simpler[-1])
        assert len(seen) < 100


@pytest.mark.parametrize(
    "fault, text",
    [
        (
            Fault(
                kind="restart",
                target="controller-102",
                trigger=OnDisk(
                    operation="flush",
                    file_class=FileClass.METADATA_LOG,
                    host="controller-102",
                    nth=7,
                ),
                params={"power_loss": True, "after_ms": 50},
            ),
            (
                "restart of controller-102 back after 50 ms, with power loss, after its 7th "
                "flush of the metadata log"
            ),
        ),
        (
            crash("broker-1", 300),
            "restart of broker-1 back after 400 ms, 300 ms after faults begin",
        ),
        (
            Fault(
                kind="partition",
                target="a<>b",
                trigger=OnFrame(api_key=52, is_response=True, server="a", nth=2),
                params={"duration_ms": 1500},
            ),
            "partition of a<>b for 1.5 s, before a's 2nd Vote answer is sent",
        ),
    ],
)
def test_fault_is_described_in_words(fault: Fault, text: str) -> None:
    """A reader without the schedule understands what is injected, where, and when."""
    assert fault_text(fault) == text

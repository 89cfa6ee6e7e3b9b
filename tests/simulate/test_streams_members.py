"""kraftsim's members of streams groups run their tasks apart and copy each record once, and the
invariants find a coordinator that does not keep tasks apart.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.groups import rules_streams_targets
from kraftsim.groups.rules_streams_assignor import (
    AssignedTasks,
    StickyTraits,
    SubtopologyTasks,
    Task,
    TaskMember,
)
from kraftsim.groups.rules_streams_group import StreamsGroup
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.lab.faults.fault import Fault, OnFrame
from protocol.api_keys import ApiKey


def run(
    directory: Path, seed: int, release: str = "4.4", faults: tuple[Fault, ...] = ()
) -> RunResult:
    """Run the scenario without random faults: members still crash, leave and pause."""
    request = RunRequest(
        scenario=scenario("streams_group_under_faults"),
        mode=Mode.SIM,
        seed=seed,
        faults=faults,
        release=release,
        workload={"work_ms": 6000},
    )
    return run_request(request, directory)


@pytest.mark.parametrize("release", ["4.2", "4.3", "4.4"])
def test_members_of_a_streams_group_copy_each_record_once(release: str, tmp_path: Path) -> None:
    result = run(tmp_path, 1, release)
    assert (result.outcome, result.trouble) == ("ok", None), result.violations


@pytest.mark.parametrize(("release", "seed"), [("4.2", 1), ("4.4", 2)])
def test_a_coordinator_whose_disk_is_full_loads_nothing_once_it_has_failed(
    release: str, seed: int, tmp_path: Path
) -> None:
    """The record of the first member does not fit; the node has no other log directory."""
    fault = Fault(
        kind="disk-full",
        target="broker-1",  # the coordinator of the group
        trigger=OnFrame(api_key=ApiKey.STREAMS_GROUP_HEARTBEAT),
        params={"file_class": "partition-log", "after_bytes": 60, "duration_ms": 300},
    )
    result = run(tmp_path, seed, release, (fault,))
    assert (result.outcome, result.trouble) == ("ok", None), result.violations
    events = (tmp_path / "events" / "broker-1.1.jsonl").read_text()
    assert '"NodeFailed","reason":"OSError: [Errno 28] __consumer_offsets' in events


def no_process(group: StreamsGroup, task: Task) -> str | None:
    """Forget which process runs a task."""
    return None


def test_a_coordinator_that_does_not_wait_for_revocations_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next owner gets a task while the former one has yet to report that it is revoked."""
    monkeypatch.setattr(StreamsGroup, "active_process", no_process)
    result = run(tmp_path, 1)
    assert "member-assignments-exclusive" in result.invariants_violated


def test_a_coordinator_that_gives_tasks_to_several_members_is_found_by_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the members see is enough: they own the same partitions in the same epoch."""

    def everything(
        members: Sequence[TaskMember],
        subtopologies: Mapping[str, SubtopologyTasks],
        standby_replicas: int,
        traits: StickyTraits | None = None,
    ) -> dict[str, AssignedTasks]:
        """Assign every task to every member."""
        tasks = {name: tuple(range(each.count)) for name, each in subtopologies.items()}
        return {member.member_id: AssignedTasks(tasks, {}) for member in members}

    monkeypatch.setattr(StreamsGroup, "active_process", no_process)
    monkeypatch.setattr(rules_streams_targets, "assign_tasks", everything)
    result = run(tmp_path, 1)
    assert "partitions-owned-once-per-epoch" in result.invariants_violated

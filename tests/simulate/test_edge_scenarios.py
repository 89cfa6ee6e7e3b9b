"""The scenarios of states at the edges reach what they are for, and hold their invariants there."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.lab.faults.fault import DataLoss, Fault, FileClass, OnEvent, OnFrame
from kraftsim.lab.faults.fault_space import BROKERS
from protocol.api_keys import ApiKey

Seen = Counter[tuple[str, Any]]
SMALL = "small_segments_with_aborted_transactions"
CASES: tuple[tuple[str, int, tuple[tuple[str, Any], ...]], ...] = (
    (SMALL, 2, (("LogStartMoved", None), ("ProducerSnapshotTaken", None))),
    ("topic_recreation_under_load", 1, (("TopicDeleted", None), ("TopicCreated", None))),
    ("reassignment_under_load", 1, (("ReplicaMoved", None), ("PartitionChanged", None))),
    (
        "access_and_quota_changes_under_load",
        1,
        (("ClientQuotaChanged", None), ("ConfigChanged", None)),
    ),
    (
        "transaction_version_upgrade",
        1,
        (("TransactionStateChanged", 0), ("TransactionStateChanged", 2)),
    ),
)
"""Scenario, seed, and events that must be in its log several times: kind, transaction_version."""


def events_of(directory: Path) -> Seen:
    """Count the events of a run, by kind and transaction_version."""
    seen: Seen = Counter()
    for file in sorted(directory.rglob("*.jsonl")):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            version = event.get("transaction_version")
            seen[event["kind"], version] += 1
            if version is not None:
                seen[event["kind"], None] += 1
    return seen


def test_a_broker_that_lost_a_log_directory_uses_it_again_once_faults_are_healed(
    tmp_path: Path,
) -> None:
    """The read of a waiting Fetch fails: the Fetch is answered once, and the broker goes on with
    its other directory. As in Kafka only a restart brings the failed one back; without it,
    reassignments to its replicas are never completed.
    """
    fault = Fault(
        kind="read-error",
        target="broker-4",
        trigger=OnEvent(kind="TransactionsLoaded", nth=4),
        params={"file_class": "partition-log", "first": 512, "duration_ms": 526},
    )
    request = RunRequest(
        scenario=scenario("reassignment_under_load"),
        mode=Mode.SIM,
        seed=502,
        workload={"work_ms": 3000},
        faults=(fault,),
    )
    result = run_request(request, tmp_path)
    assert (result.outcome, result.trouble) == ("ok", None), result.violations
    assert events_of(tmp_path)["LogDirectoryFailed", None] == 1


def test_tasks_of_two_topics_do_not_fence_each_other(tmp_path: Path) -> None:
    """A member has the first partitions of both topics of its subscription, a producer for each."""
    request = RunRequest(
        scenario=scenario("consumer_group_under_faults"), mode=Mode.SIM, seed=722, faults=()
    )
    result = run_request(request, tmp_path)
    assert (result.outcome, result.trouble) == ("ok", None), result.violations


def test_a_coordinator_whose_disk_is_full_loads_nothing_once_it_has_failed(tmp_path: Path) -> None:
    """The record of the first member does not fit; the node has no other log directory."""
    fault = Fault(
        kind="disk-full",
        target="broker-1",  # the coordinator of the group
        trigger=OnFrame(api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT),
        params={"file_class": "partition-log", "after_bytes": 60, "duration_ms": 300},
    )
    request = RunRequest(
        scenario=scenario("consumer_group_under_faults"),
        mode=Mode.SIM,
        seed=1,
        release="4.4",
        workload={"work_ms": 1000},
        faults=(fault,),
    )
    result = run_request(request, tmp_path)
    assert (result.outcome, result.trouble) == ("ok", None), result.violations
    assert events_of(tmp_path)["NodeFailed", None] == 1


@pytest.mark.parametrize("name, seed, wanted", CASES, ids=[case[0] for case in CASES])
def test_an_edge_scenario_reaches_its_edge(
    name: str, seed: int, wanted: tuple[tuple[str, Any], ...], tmp_path: Path
) -> None:
    result = run_request(
        RunRequest(scenario=scenario(name), mode=Mode.SIM, seed=seed), tmp_path / name
    )
    assert (result.outcome, result.trouble) == ("ok", None), result.violations
    seen = events_of(tmp_path / name)
    assert {each: seen[each] for each in wanted if seen[each] < 2} == {}


def test_brokers_that_flush_may_lose_what_they_did_not_flush() -> None:
    """And nothing else; other scenarios keep the records of brokers (KAFKA-4215)."""
    flushing = scenario(SMALL).fault_space
    keeping = scenario("topic_recreation_under_load").fault_space
    assert flushing is not None and keeping is not None
    brokers = flushing.of(BROKERS)
    for space, allowed in ((flushing, brokers), (keeping, ())):
        for size in (space, space.of_size(controllers=3, brokers=3)):
            assert set(size.may_lose[DataLoss.UNFLUSHED]) >= set(allowed)
            assert set(brokers) & set(size.may_lose[DataLoss.UNFLUSHED]) == set(allowed)
            assert not set(brokers) & set(size.may_lose[DataLoss.FLUSHED])


def test_faults_hit_every_class_of_file_of_a_replica() -> None:
    space = scenario(SMALL).fault_space
    assert space is not None
    assert {each.file_class for each in space.files if each.role == BROKERS} == {
        FileClass.METADATA_LOG,
        FileClass.PARTITION_LOG,
        FileClass.OFFSET_INDEX,
        FileClass.TIME_INDEX,
        FileClass.TRANSACTION_INDEX,
        FileClass.PRODUCER_SNAPSHOT,
        FileClass.LEADER_EPOCHS,
        FileClass.HIGH_WATERMARKS,
        FileClass.LOG_STARTS,
        FileClass.RECOVERY_POINTS,
    }

"""Group coordinators whose partition has fewer replicas in sync than min.insync.replicas.

The missing replica is a broker that is registered, never runs, and is added to the replicas of one
partition of `__consumer_offsets`. At the end the reassignment is cancelled.
Source: kafka.coordinator.group.GroupMetadataManager up to 3.9; CoordinatorRuntime and
CoordinatorPartitionWriter since 4.0; Partition.effectiveMinIsr.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kraftsim.conformance.emulated_broker import throw_away_broker
from kraftsim.conformance.expect import expect, expect_equal, expect_error, settled
from kraftsim.conformance.group_client import COMMIT_VERSION, GroupClient
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

REQUIREMENTS = Requirements("consumer-groups", 9, "Coordinators with too few replicas in sync")
RUNTIME = "CoordinatorRuntime.scheduleWriteOperation"
TOPIC = "__consumer_offsets"
LEAST = "min.insync.replicas"
TOPIC_RESOURCE, SET, UNSET = 2, 0, 1
DELETE_GROUPS_VERSION, OFFSET_DELETE_VERSION = 2, 0
REASSIGN_VERSION, CONFIGS_VERSION = 0, 0
TIMEOUT_MS = 15_000
APPLIED_SECONDS = 0.5
"""After the brokers have the metadata, until the log of the leader has the config."""
TOO_SOON_SECONDS = 1.0
"""A response before that has not waited for offsets.commit.timeout.ms, which is 5 s by default."""
OFFSET, NEXT_OFFSET = 5, 9
MISSING = ErrorCode.COORDINATOR_NOT_AVAILABLE
ATTEMPTS = 1000
INT32 = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortOfReplicas:
    """Two groups of one coordinator partition, both with a committed offset."""

    topic: str
    group: GroupClient
    other: GroupClient

    def offset(self, of: GroupClient) -> int:
        """Return the offset that OffsetFetch returns; -1 without one."""
        with of.peer() as peer:
            return of.fetch(peer, self.topic, [0])[0][0]

    def offsets(self) -> tuple[int, int]:
        """Return those of both groups."""
        return self.offset(self.group), self.offset(self.other)

    def deletion(self, of: GroupClient) -> OffsetDeleteRequest:
        """Return the OffsetDelete of a group."""
        row = OffsetDeleteRequestPartition(partition_index=0)
        return OffsetDeleteRequest(
            group_id=of.group_id,
            topics=[OffsetDeleteRequestTopic(name=self.topic, partitions=[row])],
        )

    def commit(self, of: GroupClient) -> OffsetCommitRequest:
        """Return an OffsetCommit of the next offset of a group."""
        row = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=NEXT_OFFSET, committed_metadata=""
        )
        return OffsetCommitRequest(
            group_id=of.group_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[row])],
        )


@contextmanager
def _prepared(target: Target) -> Iterator[tuple[ShortOfReplicas, "_Partition"]]:
    """Yield two groups with offsets, and their partition, whose replicas can be made too few."""
    topic = target.topic().name
    group = GroupClient(target)
    count = len(_rows(target, target.address))
    number = _number_of(group.group_id, count)
    other = next(
        each
        for each in (GroupClient(target) for _ in range(ATTEMPTS))
        if _number_of(each.group_id, count) == number
    )
    for each in (group, other):
        with each.peer() as peer:
            expect_equal(each.commit(peer, [(topic, 0)], offset=OFFSET), [0], "a first commit")
    with throw_away_broker(target) as missing:
        missing.registered()
        partition = _Partition(target, number, group.address, missing.broker_id)
        try:
            yield ShortOfReplicas(topic=topic, group=group, other=other), partition
        finally:
            partition.heal()


class _Partition:
    """The partition of both groups."""

    def __init__(self, target: Target, number: int, leader: str, missing_id: int) -> None:
        self._target = target
        self._number = number
        self._leader = leader
        self._missing_id = missing_id
        self._is_short = False

    def shorten(self) -> None:
        """Add a replica that is not there, and demand one more replica in sync than there are."""
        row = _rows(self._target, self._leader)[self._number]
        self._is_short = True
        self._configure(SET, str(len(row.isr_nodes) + 1))
        self._reassign([*row.replica_nodes, self._missing_id])
        settled(
            lambda: _rows(self._target, self._leader)[self._number].replica_nodes,
            lambda replicas: self._missing_id in replicas,
            "the missing replica in the metadata of the coordinator",
        )
        time.sleep(APPLIED_SECONDS)

    def heal(self) -> None:
        """Undo both, if they were done."""
        if not self._is_short:
            return
        self._is_short = False
        self._configure(UNSET, None)
        self._reassign(None)
        settled(
            lambda: _rows(self._target, self._leader)[self._number].replica_nodes,
            lambda replicas: self._missing_id not in replicas,
            "the former replicas in the metadata of the coordinator",
        )

    def _configure(self, operation: int, value: str | None) -> None:
        config = AlterableConfig(name=LEAST, config_operation=operation, value=value)
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=[config]
        )
        with self._target.peer() as peer:
            answer = peer.ask(
                IncrementalAlterConfigsRequest(resources=[resource]),
                CONFIGS_VERSION,
                IncrementalAlterConfigsResponse,
            )
        expect_error(answer.responses[0].error_code, ErrorCode.NONE, f"a change of {LEAST}")

    def _reassign(self, replicas: list[int] | None) -> None:
        row = ReassignablePartition(partition_index=self._number, replicas=replicas)
        asked = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=TOPIC, partitions=[row])]
        )
        with self._target.peer() as peer:
            answer = peer.ask(asked, REASSIGN_VERSION, AlterPartitionReassignmentsResponse)
        found = answer.responses[0].partitions[0].error_code
        expect_error(found, ErrorCode.NONE, f"a reassignment to {replicas}")


def _rows(target: Target, address: str) -> dict[int, MetadataResponsePartition]:
    """Return the partitions of `__consumer_offsets` as a broker knows them, by number."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    with target.peer(address) as peer:
        answer = peer.ask(asked, target.newest(ApiKey.METADATA), MetadataResponse)
    return {row.partition_index: row for row in answer.topics[0].partitions}


def _number_of(group_id: str, count: int) -> int:
    """Return the partition of a group: its name has ASCII characters only.

    Source: java.lang.String.hashCode, Utils.abs.
    """
    hashed = 0
    for character in group_id.encode():
        hashed = (31 * hashed + character) % INT32
    return (INT32 - hashed if hashed >= INT32 // 2 else hashed) % count


def _delete_groups(peer: Peer, group_id: str) -> ErrorCode:
    answer = peer.ask(
        DeleteGroupsRequest(groups_names=[group_id]), DELETE_GROUPS_VERSION, DeleteGroupsResponse
    )
    return ErrorCode(answer.results[0].error_code)


def _expect_waited(began: float, what: str) -> None:
    expect(time.monotonic() - began > TOO_SOON_SECONDS, f"{what} did not wait for its time-out")


@REQUIREMENTS.that(
    1,
    "OffsetDelete and DeleteGroups succeed, as their tombstones require no replica, and an "
    "OffsetCommit returns COORDINATOR_NOT_AVAILABLE and has no effect",
    source="GroupMetadataManager.cleanupGroupMetadata",
    until="3.9",
)
def tombstones_are_written(target: Target) -> None:
    with _prepared(target) as (groups, partition):
        partition.shorten()
        with groups.group.peer() as peer:
            asked = groups.commit(groups.group)
            committed = peer.ask(asked, COMMIT_VERSION, OffsetCommitResponse)
            expect_error(committed.topics[0].partitions[0].error_code, MISSING, "an OffsetCommit")
            deletion = groups.deletion(groups.other)
            answer = peer.ask(deletion, OFFSET_DELETE_VERSION, OffsetDeleteResponse)
            expect_equal(
                (answer.error_code, [row.error_code for row in answer.topics[0].partitions]),
                (0, [0]),
                "an OffsetDelete",
            )
            expect_equal(groups.offsets(), (OFFSET, -1), "the offsets")
            found = _delete_groups(peer, groups.group.group_id)
            expect_error(found, ErrorCode.NONE, "a DeleteGroups")
        expect_equal(groups.offsets(), (-1, -1), "the offsets in the end")
        partition.heal()
        expect_equal(groups.offsets(), (-1, -1), "the offsets with enough replicas")


@REQUIREMENTS.that(
    2,
    "OffsetDelete and its retry return COORDINATOR_NOT_AVAILABLE after a time-out; the offset is "
    "visible until the tombstone is replicated",
    source=RUNTIME,
    since="4.0",
)
def offset_deletions_wait(target: Target) -> None:
    with _prepared(target) as (groups, partition):
        partition.shorten()
        asked = groups.deletion(groups.group)
        with groups.group.peer() as peer, groups.group.peer() as again:
            began = time.monotonic()
            sent = peer.send(asked, OFFSET_DELETE_VERSION)
            sent_again = again.send(asked, OFFSET_DELETE_VERSION)
            expect_equal(groups.offsets(), (OFFSET, OFFSET), "the offsets meanwhile")
            for connection, correlation_id in ((peer, sent), (again, sent_again)):
                answer = connection.receive(
                    asked, OFFSET_DELETE_VERSION, correlation_id, OffsetDeleteResponse
                )
                expect_equal(
                    (answer.error_code, answer.topics), (int(MISSING), []), "an OffsetDelete"
                )
            _expect_waited(began, "an OffsetDelete")
        expect_equal(groups.offsets(), (OFFSET, OFFSET), "the offsets after the time-out")
        partition.heal()
        settled(groups.offsets, lambda found: found == (-1, OFFSET), "the offsets in the end")


@REQUIREMENTS.that(
    3,
    "DeleteGroups returns COORDINATOR_NOT_AVAILABLE after a time-out; the group is visible until "
    "the tombstones are replicated",
    source=RUNTIME,
    since="4.0",
)
def group_deletions_wait(target: Target) -> None:
    with _prepared(target) as (groups, partition):
        partition.shorten()
        with groups.group.peer() as peer:
            began = time.monotonic()
            found = _delete_groups(peer, groups.group.group_id)
            expect_error(found, MISSING, "a DeleteGroups")
            _expect_waited(began, "a DeleteGroups")
        expect_equal(groups.offsets(), (OFFSET, OFFSET), "the offsets after the time-out")
        partition.heal()
        settled(groups.offsets, lambda found: found == (-1, OFFSET), "the offsets in the end")
        with groups.group.peer() as peer:
            found = _delete_groups(peer, groups.group.group_id)
        expect_error(found, ErrorCode.GROUP_ID_NOT_FOUND, "a retry of DeleteGroups")


@REQUIREMENTS.that(
    4,
    "DeleteGroups deletes no group while an earlier change of its coordinator is not replicated",
    source="GroupCoordinatorService.deleteShareGroups",
    since="4.1",
)
def group_deletions_follow(target: Target) -> None:
    with _prepared(target) as (groups, partition):
        partition.shorten()
        asked = groups.deletion(groups.other)
        with groups.group.peer() as peer, groups.group.peer() as second:
            peer.send(asked, OFFSET_DELETE_VERSION)
            expect_error(
                _delete_groups(second, groups.group.group_id), MISSING, "a DeleteGroups behind it"
            )
        partition.heal()
        settled(groups.offsets, lambda found: found == (OFFSET, -1), "the offsets in the end")


@REQUIREMENTS.that(
    5,
    "an OffsetCommit returns COORDINATOR_NOT_AVAILABLE after a time-out, and is visible once it is "
    "replicated",
    source=RUNTIME,
    since="4.0",
)
def commits_wait(target: Target) -> None:
    with _prepared(target) as (groups, partition):
        partition.shorten()
        asked = groups.commit(groups.group)
        with groups.group.peer() as peer:
            began = time.monotonic()
            answer = peer.ask(asked, COMMIT_VERSION, OffsetCommitResponse)
            expect_error(answer.topics[0].partitions[0].error_code, MISSING, "an OffsetCommit")
            _expect_waited(began, "an OffsetCommit")
        expect_equal(groups.offsets(), (OFFSET, OFFSET), "the offsets after the time-out")
        partition.heal()
        settled(
            groups.offsets, lambda found: found == (NEXT_OFFSET, OFFSET), "the offsets in the end"
        )

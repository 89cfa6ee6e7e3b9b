"""OffsetForLeaderEpoch (23): the end offset of a leader epoch in a partition's log.

Source: KIP-101, KIP-279, KIP-320; KafkaApis.handleOffsetForLeaderEpochRequest,
LeaderEpochFileCache.endOffsetFor.
"""

from kraftsim.conformance.batches import produce
from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k23_offset_for_leader_epoch import (
    CONSUMER_REPLICA_ID,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record

REQUIREMENTS = Requirements("offset-for-leader-epoch", 1, "OffsetForLeaderEpoch")
CACHE = "LeaderEpochFileCache.endOffsetFor"
EPOCH_SINCE = 1
FENCING_SINCE = 2
UNKNOWN = -1


def _ask(
    target: Target,
    topic: TargetTopic,
    version: int,
    asked_epoch: int,
    *,
    partition: int = 0,
    name: str = "",
    current: int = -1,
) -> EpochEndOffset:
    row = OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=asked_epoch
    )
    asked = OffsetForLeaderEpochRequest(
        replica_id=CONSUMER_REPLICA_ID,
        topics=[OffsetForLeaderTopic(topic=name or topic.name, partitions=[row])],
    )
    with target.peer(topic.leader) as peer:
        return peer.ask(asked, version, OffsetForLeaderEpochResponse).topics[0].partitions[0]


def _topic(target: Target) -> TargetTopic:
    topic = target.topic()
    with target.peer(topic.leader) as peer:
        expect_error(
            produce(peer, topic.name, build_batch([Record(value=b"v")] * 3)).error_code,
            ErrorCode.NONE,
            "three records",
        )
    return topic


@REQUIREMENTS.that(
    1,
    "the end offset of the current leader epoch is the log end offset, in every version",
    source=CACHE,
)
def present_epoch(target: Target) -> None:
    topic = _topic(target)
    for version in target.versions(ApiKey.OFFSET_FOR_LEADER_EPOCH):
        row = _ask(target, topic, version, 0)
        expected = (0, 0, 0 if version >= EPOCH_SINCE else UNKNOWN, 3)
        expect_equal(
            (row.error_code, row.partition, row.leader_epoch, row.end_offset),
            expected,
            f"version {version}",
        )


@REQUIREMENTS.that(
    2, "a future epoch, and -1, have no end offset: -1 and -1 without an error", source=CACHE
)
def other_epochs(target: Target) -> None:
    topic = _topic(target)
    for version in target.versions(ApiKey.OFFSET_FOR_LEADER_EPOCH):
        for epoch in (1, 1000, -1):
            row = _ask(target, topic, version, epoch)
            expect_equal(
                (row.error_code, row.leader_epoch, row.end_offset),
                (0, UNKNOWN, UNKNOWN),
                f"version {version}, epoch {epoch}",
            )


@REQUIREMENTS.that(
    3,
    "a current_leader_epoch above the leader's returns UNKNOWN_LEADER_EPOCH",
    source="KIP-320; Partition.checkCurrentLeaderEpoch",
)
def fenced(target: Target) -> None:
    topic = _topic(target)
    for version in target.versions(ApiKey.OFFSET_FOR_LEADER_EPOCH, since=FENCING_SINCE):
        row = _ask(target, topic, version, 0, current=1)
        expect_equal(
            (row.error_code, row.leader_epoch, row.end_offset),
            (int(ErrorCode.UNKNOWN_LEADER_EPOCH), UNKNOWN, UNKNOWN),
            f"version {version}",
        )
        expect_error(
            _ask(target, topic, version, 0, current=0).error_code,
            ErrorCode.NONE,
            f"version {version}, the present epoch",
        )


@REQUIREMENTS.that(
    4,
    "an unknown topic or partition returns UNKNOWN_TOPIC_OR_PARTITION",
    source="ReplicaManager.lastOffsetForLeaderEpoch",
)
def unknown(target: Target) -> None:
    topic = _topic(target)
    for version in target.versions(ApiKey.OFFSET_FOR_LEADER_EPOCH):
        for partition, name in ((9, ""), (0, target.fresh_name())):
            row = _ask(target, topic, version, 0, partition=partition, name=name)
            returned = (row.error_code, row.partition, row.leader_epoch, row.end_offset)
            expect_equal(
                returned,
                (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), partition, UNKNOWN, UNKNOWN),
                f"version {version}, {name or partition}",
            )

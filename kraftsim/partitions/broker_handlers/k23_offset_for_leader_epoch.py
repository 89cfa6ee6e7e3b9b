"""OffsetForLeaderEpoch: the end offset of a leader epoch in this log, by which a client finds where
its own log diverges.

Source: KIP-101, KIP-279, KIP-320, kafka.server.ReplicaManager.lastOffsetForLeaderEpoch.
"""

from kraftsim.core.decision import Refusal
from kraftsim.partitions.partitions import HostingBroker
from kraftsim.partitions.rules_reading import decide_epoch_end
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.slices import Slices
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k23_offset_for_leader_epoch import (
    DEBUGGING_REPLICA_ID,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(broker: HostingBroker, call: Call) -> Answer:
    """Return for each partition UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
    FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, or the end offset.
    """
    request = call.body
    assert isinstance(request, OffsetForLeaderEpochRequest), "dispatch decodes by API key"
    needs_leader = request.replica_id != DEBUGGING_REPLICA_ID
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _find(broker, topic.topic, asked, needs_leader) for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _find(
    broker: HostingBroker, topic: str, asked: OffsetForLeaderPartition, needs_leader: bool
) -> EpochEndOffset:
    hosted = broker.partitions.find(topic, asked.partition)
    if hosted is None:
        return EpochEndOffset(
            partition=asked.partition,
            error_code=broker.not_hosted_error(topic, asked.partition).error,
        )
    found = decide_epoch_end(
        hosted.replica,
        asked.leader_epoch,
        current_leader_epoch=asked.current_leader_epoch,
        needs_leader=needs_leader,
    )
    if isinstance(found, Refusal):
        return EpochEndOffset(partition=asked.partition, error_code=found.error)
    return EpochEndOffset(
        partition=asked.partition, leader_epoch=found.leader_epoch, end_offset=found.end_offset
    )


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every partition."""
    request = call.body
    assert isinstance(request, OffsetForLeaderEpochRequest), "dispatch decodes by API key"
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=asked.partition, error_code=error)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


SLICES = Slices(entries="topics", rows="topics", inner="partitions", inner_rows="partitions")
HANDLER = Handler(key=ApiKey.OFFSET_FOR_LEADER_EPOCH, handle=handle, refuse=refuse, slices=SLICES)

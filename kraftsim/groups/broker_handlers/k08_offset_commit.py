"""OffsetCommit: store the committed offsets of a group.

Source: kafka.server.KafkaApis.handleOffsetCommitRequest,
kafka.coordinator.group.GroupCoordinator.handleCommitOffsets.
"""

from collections.abc import Sequence
from typing import Final

from kraftsim.groups.group_coordinator import GroupTopicsBroker
from kraftsim.groups.rules_committing import NO_RETENTION_MS, OffsetCommitInput, OffsetToCommit
from kraftsim.groups.rules_timing import CommitAnswer, GroupAnswer
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST_VERSION_TO_COORDINATOR: Final = 1
"""Version 0 stored offsets in ZooKeeper, which is not supported."""
FIRST_VERSION_WITH_TOPIC_IDS: Final = 10
NO_NAME: Final = ""


def handle(broker: GroupTopicsBroker, call: Call) -> Answer | Deferred:
    """Return a result for each partition once the offsets are on all in-sync replicas.

    An unknown partition gets UNKNOWN_TOPIC_OR_PARTITION; since version 10, which has topic ids, an
    unknown id gets UNKNOWN_TOPIC_ID.
    """
    request = call.body
    assert isinstance(request, OffsetCommitRequest), "dispatch decodes by API key"
    if call.api_version < FIRST_VERSION_TO_COORDINATOR:
        return refuse(call, ErrorCode.UNSUPPORTED_VERSION)
    by_id = call.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    names = [_name(broker, topic) if by_id else topic.name for topic in request.topics]
    answer = _blank(request)
    rows = [row for topic in answer.topics for row in topic.partitions]
    asked = _asked(request, names)
    known = [
        index
        for index, each in enumerate(asked)
        if broker.image.partition(each.topic, each.partition) is not None
    ]
    found = set(known)
    for index, row in enumerate(rows):
        unknown = (
            ErrorCode.UNKNOWN_TOPIC_ID
            if by_id and not asked[index].topic
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        row.error_code = ErrorCode.NONE if index in found else unknown
    if not known:
        return answer
    led = broker.groups.coordinated(request.group_id, may_be_empty=True)
    if isinstance(led, ErrorCode):
        for index in known:
            rows[index].error_code = led
        return answer
    partition = led
    commit = OffsetCommitInput(
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_ms=NO_RETENTION_MS
        if request.retention_time_ms < 0
        else request.retention_time_ms,
        offsets=[asked[index] for index in known],
    )
    later = Deferred()

    def on_answer(given: GroupAnswer) -> None:
        assert isinstance(given, CommitAnswer), "the answer to a commit"
        for index, error in zip(known, given.errors, strict=True):
            rows[index].error_code = error
        later.complete(answer)

    partition.ask(
        lambda waiter, now: partition.shard.commit(waiter, commit, now, call.api_version), on_answer
    )
    return later


def _name(broker: GroupTopicsBroker, topic: OffsetCommitRequestTopic) -> str:
    """Return the name of a topic; empty if no topic has its id."""
    found = broker.image.topic_by_id(topic.topic_id)
    return NO_NAME if found is None else found.name


def _asked(request: OffsetCommitRequest, names: Sequence[str]) -> list[OffsetToCommit]:
    return [
        OffsetToCommit(
            topic=name,
            partition=each.partition_index,
            offset=each.committed_offset,
            leader_epoch=each.committed_leader_epoch,
            metadata=each.committed_metadata or "",
            commit_timestamp=each.commit_timestamp,
        )
        for topic, name in zip(request.topics, names, strict=True)
        for each in topic.partitions
    ]


def _blank(request: OffsetCommitRequest, error: ErrorCode = ErrorCode.NONE) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=error
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every partition."""
    request = call.body
    assert isinstance(request, OffsetCommitRequest), "dispatch decodes by API key"
    return _blank(request, error)


HANDLER = Handler(key=ApiKey.OFFSET_COMMIT, handle=handle, refuse=refuse)

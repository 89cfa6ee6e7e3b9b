"""Requests of operators about the start offsets of share groups: describe, alter and delete them.

A share group has no committed offsets: where it begins to read a partition is in the state that the
share coordinator keeps. The coordinator of the group asks for that, and knows which share-
partitions there are.
Source: KIP-932, KIP-1226, org.apache.kafka.coordinator.group.GroupCoordinatorService.{
describeShareGroupOffsets, describeShareGroupAllOffsets, alterShareGroupOffsets,
deleteShareGroupOffsets}.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from kraftsim.groups.coordinated_partition import CoordinatedPartition
from kraftsim.groups.group_coordinator import GroupTopicsBroker
from kraftsim.groups.rules_assignors import java_order, uuid_hash
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.large_requests import or_refused
from kraftsim.server.serving_broker import RunningBroker
from kraftsim.share_groups.persister import StateSummary
from kraftsim.share_groups.rules_share_states import (
    NO_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_START_OFFSET,
    SharePartitionKey,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import k90_describe_share_group_offsets as k90
from protocol.messages import k91_alter_share_group_offsets as k91
from protocol.messages import k92_delete_share_group_offsets as k92
from protocol.uuids import ZERO_UUID

NO_OFFSET: Final = -1
NO_LAG: Final = -1
NO_EPOCH: Final = 0
FIRST_VERSION_WITH_LAG: Final = 1
UNKNOWN_TOPIC: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NO_SUCH_TOPIC: Final = "This server does not host this topic-partition."
NOTHING_TO_DELETE: Final = "There is no offset information to delete."


class ShareOffsetsBroker(GroupTopicsBroker, RunningBroker, Protocol):
    """A broker that asks share coordinators."""


# Describing
# --------------------------------------------------------------------------------------------------


def handle_describe(broker: ShareOffsetsBroker, call: Call) -> Answer | Deferred:
    """DescribeShareGroupOffsets: the start offset and the lag of each partition, or of all that the
    group has; -1 where there is none.

    Return a row for each group. Named topics are described by any broker.
    """
    request = call.body
    assert isinstance(request, k90.DescribeShareGroupOffsetsRequest), "dispatch decodes by API key"
    if not broker.groups.serves_shares:
        return refuse_describe(call, ErrorCode.UNSUPPORTED_VERSION)
    later = Deferred()

    async def describe() -> None:
        with_lag = call.api_version >= FIRST_VERSION_WITH_LAG
        rows = [await _described(broker, group, with_lag=with_lag) for group in request.groups]
        later.complete(k90.DescribeShareGroupOffsetsResponse(groups=rows))

    broker.shell.tasks.spawn(
        or_refused(describe(), later, call, refuse_describe), "offsets of share groups"
    )
    return later


async def _described(
    broker: ShareOffsetsBroker, group: k90.RequestedGroup, *, with_lag: bool
) -> k90.DescribedGroup:
    wanted: list[tuple[bytes, str, Sequence[int]]] = []
    absent: list[k90.DescribedTopic] = []
    if group.topics is None:
        led = broker.groups.coordinated(group.group_id, may_be_empty=True)
        if isinstance(led, ErrorCode):
            return k90.DescribedGroup(group_id=group.group_id, error_code=led)
        wanted = _all_topics(broker, led, group.group_id)
    for asked in group.topics or ():
        topic = broker.image.topic(asked.topic_name)
        if topic is not None:
            wanted.append((topic.topic_id, asked.topic_name, asked.partitions))
            continue
        absent.append(
            k90.DescribedTopic(
                topic_name=asked.topic_name,
                topic_id=ZERO_UUID,
                partitions=[
                    k90.DescribedPartition(partition_index=number, start_offset=NO_OFFSET)
                    for number in asked.partitions
                ],
            )
        )
    rows = await _summarized(broker, group.group_id, wanted, with_lag=with_lag) if wanted else []
    return k90.DescribedGroup(group_id=group.group_id, topics=rows + absent)


def _all_topics(
    broker: ShareOffsetsBroker, led: CoordinatedPartition, group_id: str
) -> list[tuple[bytes, str, Sequence[int]]]:
    """Return the existing topics of a share group, with their initialized partitions."""
    from kraftsim.groups.rules_share_group import ShareGroup

    group = led.shard.find(group_id)
    if not isinstance(group, ShareGroup):
        return []
    return [
        (topic_id, topic.name, states.partitions)
        for topic_id, states in group.initialized.items()
        if (topic := broker.image.topic_by_id(topic_id)) is not None
    ]


async def _summarized(
    broker: ShareOffsetsBroker,
    group_id: str,
    wanted: Sequence[tuple[bytes, str, Sequence[int]]],
    *,
    with_lag: bool,
) -> list[k90.DescribedTopic]:
    """Return the start offsets of partitions, in the order of Java's hash maps; a partition whose
    state cannot be read has none.

    The lag is what is behind the start offset without what is acknowledged there already.
    """
    names = {topic_id: name for topic_id, name, _ in wanted}
    numbers_of: dict[bytes, dict[int, None]] = {}
    for topic_id, _, numbers in wanted:
        numbers_of.setdefault(topic_id, {}).update(dict.fromkeys(numbers))
    keys = [
        SharePartitionKey(group_id, topic_id, number)
        for topic_id in java_order(numbers_of, uuid_hash)
        for number in java_order(numbers_of[topic_id], int)
    ]
    states = broker.groups.share_states
    found = {each.key: each for each in await states.summaries(group_id, keys)}
    lagging = [
        (names[key.topic_id], key.partition)
        for key, each in found.items()
        if with_lag
        and each.error is ErrorCode.NONE
        and each.start_offset != UNINITIALIZED_START_OFFSET
        and each.delivery_complete_count != NO_DELIVERY_COMPLETE_COUNT
    ]
    ends = await states.end_offsets(lagging) if lagging else {}
    topics: dict[bytes, k90.DescribedTopic] = {}
    for key in keys:
        topic = topics.setdefault(
            key.topic_id,
            k90.DescribedTopic(topic_name=names[key.topic_id], topic_id=key.topic_id),
        )
        end = ends.get((topic.topic_name, key.partition))
        topic.partitions.append(_row(found[key], end))
    return list(topics.values())


def _row(state: StateSummary, end: tuple[ErrorCode, int] | None) -> k90.DescribedPartition:
    """Return the row of a partition; `end` is its end offset or the error, None if its lag is not
    computed.
    """
    row = k90.DescribedPartition(partition_index=state.key.partition, lag=NO_LAG)
    if end is not None and end[0] is not ErrorCode.NONE:
        row.error_code, row.error_message = end[0], MESSAGES.get(end[0])
    elif state.error is ErrorCode.NONE:
        row.start_offset, row.leader_epoch = state.start_offset, state.leader_epoch
        if end is not None:
            row.lag = end[1] - state.start_offset - state.delivery_complete_count
    else:
        row.start_offset, row.leader_epoch = NO_OFFSET, NO_EPOCH
    return row


MESSAGES: Final = {
    ErrorCode.LEADER_NOT_AVAILABLE: "There is no leader for this topic-partition as we are in the "
    "middle of a leadership election.",
    ErrorCode.NETWORK_EXCEPTION: "The server disconnected before a response was received.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: NO_SUCH_TOPIC,
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process "
    "requests.",
}
"""Kafka's texts for errors (Errors.message)."""


def refuse_describe(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every group."""
    request = call.body
    assert isinstance(request, k90.DescribeShareGroupOffsetsRequest), "dispatch decodes by API key"
    return k90.DescribeShareGroupOffsetsResponse(
        groups=[
            k90.DescribedGroup(group_id=group.group_id, error_code=error)
            for group in request.groups
        ]
    )


DESCRIBE = Handler(
    key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, handle=handle_describe, refuse=refuse_describe
)


# Altering
# --------------------------------------------------------------------------------------------------


def handle_alter(broker: ShareOffsetsBroker, call: Call) -> Answer | Deferred:
    """AlterShareGroupOffsets: let an empty share group begin at other offsets.

    Return a row for each partition, or a group-level error without rows: NON_EMPTY_GROUP,
    GROUP_ID_NOT_FOUND.
    """
    from kraftsim.groups.rules_share_group_states import PartitionToAlter

    request = call.body
    assert isinstance(request, k91.AlterShareGroupOffsetsRequest), "dispatch decodes by API key"
    if not broker.groups.serves_shares:
        return refuse_alter(call, ErrorCode.UNSUPPORTED_VERSION)
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        return refuse_alter(call, led)
    partition, later = led, Deferred()
    rows = [
        PartitionToAlter(topic.topic_name, each.partition_index, each.start_offset)
        for topic in request.topics
        for each in topic.partitions
    ]

    async def alter() -> None:
        given, results = await broker.groups.share_states.alter(partition, request.group_id, rows)
        if given.error is not ErrorCode.NONE:
            later.complete(
                k91.AlterShareGroupOffsetsResponse(error_code=given.error, error_message=given.why)
            )
            return
        found = {(each.key.topic_id, each.key.partition): each for each in results}
        topics = sorted(
            (_altered(broker, topic) for topic in request.topics),
            key=lambda topic: topic.topic_id != ZERO_UUID,
        )
        for topic in topics:
            for row in topic.partitions:
                result = found.get((topic.topic_id, row.partition_index))
                if result is not None and result.error is not ErrorCode.NONE:
                    row.error_code, row.error_message = result.error, result.message
        later.complete(k91.AlterShareGroupOffsetsResponse(responses=topics))

    broker.shell.tasks.spawn(or_refused(alter(), later, call, refuse_alter), "share group offsets")
    return later


def _altered(broker: ShareOffsetsBroker, asked: k91.RequestedTopic) -> k91.AlteredTopic:
    """Return the row of a topic as if all that is known of it were altered."""
    topic = broker.image.topic(asked.topic_name)
    rows = []
    for each in asked.partitions:
        is_known = topic is not None and each.partition_index < len(topic.partitions)
        rows.append(
            k91.AlteredPartition(
                partition_index=each.partition_index,
                error_code=ErrorCode.NONE if is_known else UNKNOWN_TOPIC,
                error_message=None if is_known else NO_SUCH_TOPIC,
            )
        )
    return k91.AlteredTopic(
        topic_name=asked.topic_name,
        topic_id=ZERO_UUID if topic is None else topic.topic_id,
        partitions=rows,
    )


def refuse_alter(call: Call, error: ErrorCode) -> Answer:
    """Return an error response."""
    return k91.AlterShareGroupOffsetsResponse(error_code=error, error_message=MESSAGES.get(error))


ALTER = Handler(key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, handle=handle_alter, refuse=refuse_alter)


# Deleting
# --------------------------------------------------------------------------------------------------


def handle_delete(broker: ShareOffsetsBroker, call: Call) -> Answer | Deferred:
    """DeleteShareGroupOffsets: delete the states of topics of an empty share group.

    Return a row for each topic, or a group-level error without rows: NON_EMPTY_GROUP,
    GROUP_ID_NOT_FOUND.
    """
    request = call.body
    assert isinstance(request, k92.DeleteShareGroupOffsetsRequest), "dispatch decodes by API key"
    if not broker.groups.serves_shares:
        return refuse_delete(call, ErrorCode.UNSUPPORTED_VERSION)
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        return refuse_delete(call, led)
    partition, later = led, Deferred()
    names = [topic.topic_name for topic in request.topics]

    async def delete() -> None:
        states = broker.groups.share_states
        given, errors = await states.delete_offsets(partition, request.group_id, names)
        if given.error is not ErrorCode.NONE:
            later.complete(
                k92.DeleteShareGroupOffsetsResponse(error_code=given.error, error_message=given.why)
            )
            return
        rows = [
            _deleted(broker, topic_id, error)
            for topic_id, error in sorted(errors.items(), key=lambda each: bool(each[1]))
        ]
        known = [row for row in rows if not row.error_code]
        failed = [row for row in rows if row.error_code]
        unknown = [_nothing_to_delete(broker, name) for name in given.unknown]
        later.complete(k92.DeleteShareGroupOffsetsResponse(responses=[*known, *unknown, *failed]))

    broker.shell.tasks.spawn(
        or_refused(delete(), later, call, refuse_delete), "share group offsets"
    )
    return later


def _deleted(broker: ShareOffsetsBroker, topic_id: bytes, error: ErrorCode) -> k92.DeletedTopic:
    topic = broker.image.topic_by_id(topic_id)
    return k92.DeletedTopic(
        topic_name="" if topic is None else topic.name,
        topic_id=topic_id,
        error_code=error,
        error_message=MESSAGES.get(error),
    )


def _nothing_to_delete(broker: ShareOffsetsBroker, name: str) -> k92.DeletedTopic:
    is_there = broker.image.topic(name) is not None
    return k92.DeletedTopic(
        topic_name=name,
        error_code=UNKNOWN_TOPIC,
        error_message=NOTHING_TO_DELETE if is_there else NO_SUCH_TOPIC,
    )


def refuse_delete(call: Call, error: ErrorCode) -> Answer:
    """Return an error response."""
    return k92.DeleteShareGroupOffsetsResponse(error_code=error, error_message=MESSAGES.get(error))


DELETE = Handler(key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, handle=handle_delete, refuse=refuse_delete)


HANDLERS = (DESCRIBE, ALTER, DELETE)

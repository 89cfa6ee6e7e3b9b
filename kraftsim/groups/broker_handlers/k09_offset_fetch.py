"""OffsetFetch: return the committed offsets of groups.

Source: kafka.server.KafkaApis.handleOffsetFetchRequest,
kafka.coordinator.group.GroupMetadataManager.getOffsets, KIP-447, KIP-709.
"""

from collections.abc import Sequence
from typing import Final

from kraftsim.groups.group_coordinator import GroupTopicsBroker
from kraftsim.groups.rules_offsets import TopicPartition
from kraftsim.groups.rules_shard import FoundOffset
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.slices import Slices
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k09_offset_fetch import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol.uuids import ZERO_UUID

FIRST_VERSION_TO_COORDINATOR: Final = 1
"""Version 0 read offsets from ZooKeeper, which is not supported."""
FIRST_VERSION_WITH_GROUP_ERROR: Final = 2
FIRST_VERSION_WITH_GROUPS: Final = 8
FIRST_VERSION_WITH_TOPIC_IDS: Final = 10


def handle(broker: GroupTopicsBroker, call: Call) -> Answer:
    """Return for each partition an offset, none, or UNSTABLE_OFFSET_COMMIT if require_stable is set
    and a transaction is pending.
    """
    request = call.body
    assert isinstance(request, OffsetFetchRequest), "dispatch decodes by API key"
    if call.api_version < FIRST_VERSION_TO_COORDINATOR:
        return refuse(call, ErrorCode.UNSUPPORTED_VERSION)
    if call.api_version >= FIRST_VERSION_WITH_GROUPS:
        by_id = call.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
        look = _fetch_by_id if by_id else _fetch_by_name
        return OffsetFetchResponse(
            groups=[
                look(broker, group, require_stable=request.require_stable)
                for group in request.groups
            ]
        )
    found = _fetch(
        broker, request.group_id, _partitions(request), require_stable=request.require_stable
    )
    return (
        refuse(call, found)
        if isinstance(found, ErrorCode)
        else OffsetFetchResponse(topics=_topics(found))
    )


def _fetch_as(
    broker: GroupTopicsBroker,
    group: OffsetFetchRequestGroup,
    partitions: list[TopicPartition] | None,
    *,
    require_stable: bool,
) -> list[FoundOffset] | ErrorCode:
    """Fetch as a member of a consumer group; its epoch must be current (version 9)."""
    led = broker.groups.coordinated(group.group_id, may_be_empty=True)
    if isinstance(led, ErrorCode):
        return led
    stale = led.shard.refuse_fetch(group.group_id, group.member_id, group.member_epoch)
    return stale or _raise_loading_error(
        led.shard.fetch_offsets(group.group_id, partitions, require_stable=require_stable)
    )


def _fetch_by_name(
    broker: GroupTopicsBroker, group: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    partitions = (
        None
        if group.topics is None
        else [(topic.name, number) for topic in group.topics for number in topic.partition_indexes]
    )
    return _group(
        group.group_id, _fetch_as(broker, group, partitions, require_stable=require_stable)
    )


def _fetch_by_id(
    broker: GroupTopicsBroker, group: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    """Return topics by id: UNKNOWN_TOPIC_ID for unknown requested ids; a request for all topics
    returns the existing ones.
    """
    names = {
        topic.topic_id: named.name
        for topic in group.topics or ()
        if (named := broker.image.topic_by_id(topic.topic_id)) is not None
    }
    partitions: list[TopicPartition] | None = None
    if group.topics is not None:
        partitions = [
            (names[topic.topic_id], number)
            for topic in group.topics
            if topic.topic_id in names
            for number in topic.partition_indexes
        ]
    answer = _group(
        group.group_id, _fetch_as(broker, group, partitions, require_stable=require_stable)
    )
    for row in answer.topics:
        named = broker.image.topic(row.name)
        row.topic_id = ZERO_UUID if named is None else named.topic_id
    answer.topics = [row for row in answer.topics if row.topic_id != ZERO_UUID]
    if not answer.error_code:
        for topic in group.topics or ():
            if topic.topic_id not in names:
                unknown = [
                    OffsetFetchResponsePartitions(
                        partition_index=number,
                        committed_offset=NO_OFFSET,
                        committed_leader_epoch=NO_LEADER_EPOCH,
                        metadata="",
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                    )
                    for number in topic.partition_indexes
                ]
                answer.topics.append(
                    OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=unknown)
                )
    return answer


def _fetch(
    broker: GroupTopicsBroker,
    group_id: str,
    partitions: list[TopicPartition] | None,
    *,
    require_stable: bool,
) -> list[FoundOffset] | ErrorCode:
    led = broker.groups.coordinated(group_id, may_be_empty=True)
    if isinstance(led, ErrorCode):
        return led
    return _raise_loading_error(
        led.shard.fetch_offsets(group_id, partitions, require_stable=require_stable)
    )


def _raise_loading_error(found: list[FoundOffset]) -> list[FoundOffset] | ErrorCode:
    """Return the result.

    COORDINATOR_LOAD_IN_PROGRESS is raised to group level, the only place where clients check for
    it.
    """
    held = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return held if any(each.error is held for each in found) else found


def _partitions(request: OffsetFetchRequest) -> list[TopicPartition] | None:
    if request.topics is None:
        return None
    return [(topic.name, number) for topic in request.topics for number in topic.partition_indexes]


def _topics(found: Sequence[FoundOffset]) -> list[OffsetFetchResponseTopic]:
    topics: dict[str, OffsetFetchResponseTopic] = {}
    for each in found:
        name, number = each.partition
        row = OffsetFetchResponsePartition(
            partition_index=number,
            committed_offset=NO_OFFSET if each.offset is None else each.offset.offset,
            committed_leader_epoch=NO_LEADER_EPOCH
            if each.offset is None
            else each.offset.leader_epoch,
            metadata="" if each.offset is None else each.offset.metadata,
            error_code=each.error,
        )
        topics.setdefault(name, OffsetFetchResponseTopic(name=name)).partitions.append(row)
    return list(topics.values())


def _group(group_id: str, found: Sequence[FoundOffset] | ErrorCode) -> OffsetFetchResponseGroup:
    if isinstance(found, ErrorCode):
        return OffsetFetchResponseGroup(group_id=group_id, error_code=found)
    topics: dict[str, OffsetFetchResponseTopics] = {}
    for each in found:
        name, number = each.partition
        row = OffsetFetchResponsePartitions(
            partition_index=number,
            committed_offset=NO_OFFSET if each.offset is None else each.offset.offset,
            committed_leader_epoch=NO_LEADER_EPOCH
            if each.offset is None
            else each.offset.leader_epoch,
            metadata="" if each.offset is None else each.offset.metadata,
            error_code=each.error,
        )
        topics.setdefault(name, OffsetFetchResponseTopics(name=name)).partitions.append(row)
    return OffsetFetchResponseGroup(
        group_id=group_id, topics=list(topics.values()), error_code=ErrorCode.NONE
    )


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every group; up to version 1 each partition has
    it.
    """
    request = call.body
    assert isinstance(request, OffsetFetchRequest), "dispatch decodes by API key"
    if call.api_version >= FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(
            groups=[_group(group.group_id, error) for group in request.groups]
        )
    if call.api_version >= FIRST_VERSION_WITH_GROUP_ERROR:
        return OffsetFetchResponse(error_code=error)
    return OffsetFetchResponse(
        topics=_topics(
            [FoundOffset(partition, None, error) for partition in _partitions(request) or ()]
        )
    )


def _weight(broker: GroupTopicsBroker, group: OffsetFetchRequestGroup) -> int:
    if group.topics is not None:
        return 1 + sum(1 + len(topic.partition_indexes) for topic in group.topics)
    led = broker.groups.coordinated(group.group_id, may_be_empty=True)
    known = None if isinstance(led, ErrorCode) else led.shard.find(group.group_id)
    return 1 if known is None else 1 + len(known.offsets.committed)


SLICES = Slices(entries="groups", rows="groups", weight=_weight)
HANDLER = Handler(key=ApiKey.OFFSET_FETCH, handle=handle, refuse=refuse, slices=SLICES)

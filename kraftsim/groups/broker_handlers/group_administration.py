"""Requests of operators about groups: describe, list and delete them, and delete offsets.

Each is answered by the coordinator of the group, ListGroups by every broker for its own.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from kraftsim.groups.coordinated_partition import CoordinatedPartition
from kraftsim.groups.group_coordinator import GroupsBroker, GroupTopicsBroker
from kraftsim.groups.rules_classic_group import ClassicGroup, GroupState
from kraftsim.groups.rules_consumer_group import ConsumerGroup
from kraftsim.groups.rules_group_table import Group
from kraftsim.groups.rules_offsets import TopicPartition
from kraftsim.groups.rules_timing import DeletionAnswer, GroupAnswer
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.large_requests import or_refused
from kraftsim.server.serving_broker import RunningBroker
from kraftsim.server.slices import Slices
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k15_describe_groups import (
    OPERATIONS_NOT_ASKED_FOR,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from protocol.messages.k16_list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

FIRST_VERSION_WITH_NOT_FOUND: Final = 6
"""KIP-1043."""


def handle_describe_groups(broker: GroupsBroker, call: Call) -> Answer:
    """DescribeGroups: state, protocol and members of classic groups.

    Return a row for each group; an unknown group is Dead.

    Source: kafka.coordinator.group.GroupCoordinator.handleDescribeGroup,
    kafka.coordinator.group.GroupMetadata.summary, KIP-430.
    """
    request = call.body
    assert isinstance(request, DescribeGroupsRequest), "dispatch decodes by API key"
    groups = [_describe(broker, group_id, call.api_version) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = broker.groups.operations
    return DescribeGroupsResponse(groups=groups)


def _describe(broker: GroupsBroker, group_id: str, api_version: int) -> DescribedGroup:
    led = broker.groups.coordinated(group_id, may_be_empty=True)
    if isinstance(led, ErrorCode):
        return _refused(group_id, led)
    seen = led.shard.seen(group_id)
    group = seen if isinstance(seen, ClassicGroup) else None
    if group is None and api_version >= FIRST_VERSION_WITH_NOT_FOUND:
        is_other = seen is not None
        why = (
            f"Group {group_id} is not a classic group."
            if is_other
            else f"Group {group_id} not found."
        )
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=why,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            protocol_type="",
            protocol_data="",
        )
    if group is None:
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            protocol_type="",
            protocol_data="",
        )
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if group.is_in(GroupState.STABLE) else "",
        members=_members(group),
    )


def _members(group: ClassicGroup) -> list[DescribedGroupMember]:
    """Return the members. Metadata and assignments are included in state Stable only."""
    is_stable = group.is_in(GroupState.STABLE)
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata_for(group.protocol_name or "") if is_stable else b"",
            member_assignment=member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    ]


def _refused(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        authorized_operations=OPERATIONS_NOT_ASKED_FOR,
    )


def refuse_describe_groups(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every group."""
    request = call.body
    assert isinstance(request, DescribeGroupsRequest), "dispatch decodes by API key"
    return DescribeGroupsResponse(groups=[_refused(group_id, error) for group_id in request.groups])


def _weight(broker: GroupsBroker, group_id: str) -> int:
    led = broker.groups.coordinated(group_id, may_be_empty=True)
    group = None if isinstance(led, ErrorCode) else led.shard.groups.get(group_id)
    return 1 if group is None else 1 + len(group.members)


DESCRIBE_GROUPS_SLICES = Slices(entries="groups", rows="groups", weight=_weight)
DESCRIBE_GROUPS = Handler(
    key=ApiKey.DESCRIBE_GROUPS,
    handle=handle_describe_groups,
    refuse=refuse_describe_groups,
    slices=DESCRIBE_GROUPS_SLICES,
)


CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"


class GroupListingParts(Protocol):
    """What the release decides for ListGroups."""

    @property
    def ignores_case_of_group_states(self) -> bool:
        """Whether the states of a filter may be in any case."""
        ...


class GroupListingBroker(GroupsBroker, Protocol):
    """A broker that lists its groups."""

    @property
    def parts(self) -> GroupListingParts:
        """The replaceable classes of the node."""
        ...


def handle_list_groups(broker: GroupListingBroker, call: Call) -> Answer:
    """ListGroups: the groups for which this broker is coordinator.

    Return the groups that match the state and type filters; COORDINATOR_LOAD_IN_PROGRESS while some
    are being loaded.

    Source: kafka.coordinator.group.GroupCoordinator.handleListGroups, KIP-518, KIP-848.
    """
    request = call.body
    assert isinstance(request, ListGroupsRequest), "dispatch decodes by API key"
    normalized = str.lower if broker.parts.ignores_case_of_group_states else str
    states = {normalized(state) for state in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    is_loading = False
    rows: list[ListedGroup] = []
    for led in broker.groups.all():
        is_loading = is_loading or led.is_loading
        if not led.is_loading:
            rows += [
                row
                for row in map(_row, led.shard.all_seen())
                if not types or row.group_type in types
            ]
    rows = [row for row in rows if not states or normalized(row.group_state) in states]
    return ListGroupsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE,
        groups=rows,
    )


def _row(group: Group) -> ListedGroup:
    if not isinstance(group, ClassicGroup | ConsumerGroup):
        return ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state_name,
            group_type=group.type_name,
        )
    if isinstance(group, ConsumerGroup):
        return ListedGroup(
            group_id=group.group_id,
            protocol_type=CONSUMER,
            group_state=group.state.value,
            group_type=CONSUMER,
        )
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC,
    )


LIST_GROUPS = Handler(
    key=ApiKey.LIST_GROUPS,
    handle=handle_list_groups,
    refuse=lambda call, error: ListGroupsResponse(error_code=error),
)


class GroupDeletionBroker(GroupsBroker, RunningBroker, Protocol):
    """A broker that deletes groups, and asks share coordinators before."""


def handle_delete_groups(broker: GroupDeletionBroker, call: Call) -> Deferred:
    """DeleteGroups: delete empty groups and their offsets.

    Return one result for each group, however often it is named: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP
    or NONE. Since 4.0 the groups of one coordinator partition wait for their tombstones together,
    and all get COORDINATOR_NOT_AVAILABLE if these are not replicated in time.

    Source: kafka.coordinator.group.GroupCoordinator.handleDeleteGroups, KIP-229;
    org.apache.kafka.coordinator.group.GroupCoordinatorService.deleteGroups.
    """
    request = call.body
    assert isinstance(request, DeleteGroupsRequest), "dispatch decodes by API key"
    names = list(dict.fromkeys(request.groups_names))
    errors: dict[str, ErrorCode] = {}
    of_partitions: dict[int, tuple[CoordinatedPartition, list[str]]] = {}
    for name in names:
        led = broker.groups.coordinated(name, may_be_empty=True)
        if isinstance(led, ErrorCode):
            errors[name] = led
        else:
            of_partitions.setdefault(led.shard.number, (led, []))[1].append(name)
    later = Deferred()

    def complete() -> None:
        if len(errors) == len(names):
            results = [
                DeletableGroupResult(group_id=name, error_code=errors[name]) for name in names
            ]
            later.complete(DeleteGroupsResponse(results=results))

    for led, of_partition in of_partitions.values():
        if any(_is_share_group(led, name) for name in of_partition):
            work = _delete_share_groups_first(broker, led, of_partition, errors, complete)
            broker.shell.tasks.spawn(
                or_refused(work, later, call, refuse_delete_groups), "deletion of share groups"
            )
        else:
            _delete(led, of_partition, errors, complete)
    if not of_partitions:
        complete()
    return later


def _is_share_group(led: CoordinatedPartition, name: str) -> bool:
    group = led.shard.find(name)
    return not isinstance(group, ClassicGroup | ConsumerGroup | None) and group.type_name == SHARE


async def _delete_share_groups_first(
    broker: GroupDeletionBroker,
    led: CoordinatedPartition,
    names: list[str],
    errors: dict[str, ErrorCode],
    complete: Callable[[], None],
) -> None:
    """Delete the states of share-partitions, and then the groups whose states are deleted, with
    those of other types.
    """
    failed = await broker.groups.share_states.delete_groups(led, names)
    errors.update(failed)
    rest = [name for name in names if name not in failed]
    if rest:
        _delete(led, rest, errors, complete, waits_first=False)
    else:
        complete()


def _delete(
    led: CoordinatedPartition,
    names: list[str],
    errors: dict[str, ErrorCode],
    complete: Callable[[], None],
    *,
    waits_first: bool = True,
) -> None:
    """Delete groups of one partition; `errors` gets their results before `complete` is called."""

    def on_answer(given: GroupAnswer) -> None:
        assert isinstance(given, DeletionAnswer), "the answer to a deletion"
        errors.update(zip(names, given.errors, strict=True))
        complete()

    led.ask(
        lambda waiter, now: led.shard.delete_groups(waiter, names, now, waits_first=waits_first),
        on_answer,
    )


def refuse_delete_groups(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every group."""
    request = call.body
    assert isinstance(request, DeleteGroupsRequest), "dispatch decodes by API key"
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=error)
            for name in dict.fromkeys(request.groups_names)
        ]
    )


DELETE_GROUPS_SLICES = Slices(
    entries="groups_names", rows="results", counting=lambda names: list(dict.fromkeys(names))
)
DELETE_GROUPS = Handler(
    key=ApiKey.DELETE_GROUPS,
    handle=handle_delete_groups,
    refuse=refuse_delete_groups,
    slices=DELETE_GROUPS_SLICES,
)


def handle_offset_delete(broker: GroupTopicsBroker, call: Call) -> Answer | Deferred:
    """OffsetDelete: delete committed offsets of topics to which the group is not subscribed.

    Return a result for each partition, or a group-level error without partitions: since 4.0 that is
    COORDINATOR_NOT_AVAILABLE if the tombstones are not replicated in time.

    Source: kafka.server.KafkaApis.handleOffsetDeleteRequest,
    kafka.coordinator.group.GroupCoordinator.handleDeleteOffsets, KIP-496;
    org.apache.kafka.coordinator.group.GroupCoordinatorService.deleteOffsets.
    """
    request = call.body
    assert isinstance(request, OffsetDeleteRequest), "dispatch decodes by API key"
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        return OffsetDeleteResponse(error_code=led)
    partition = led
    asked = [
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    known = [each for each in asked if broker.image.partition(*each) is not None]
    later = Deferred()

    def on_answer(given: GroupAnswer) -> None:
        assert isinstance(given, DeletionAnswer), "the answer to a deletion"
        if given.error is not ErrorCode.NONE:
            later.complete(OffsetDeleteResponse(error_code=given.error))
            return
        found = dict(zip(known, given.errors, strict=True))
        topics = [_deleted(topic, found) for topic in request.topics]
        later.complete(OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics))

    partition.ask(
        lambda waiter, now: partition.shard.delete_offsets(waiter, request.group_id, known, now),
        on_answer,
    )
    return later


def _deleted(
    topic: OffsetDeleteRequestTopic, found: Mapping[TopicPartition, ErrorCode]
) -> OffsetDeleteResponseTopic:
    rows = [
        OffsetDeleteResponsePartition(
            partition_index=each.partition_index,
            error_code=found.get(
                (topic.name, each.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ),
        )
        for each in topic.partitions
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=rows)


OFFSET_DELETE = Handler(
    key=ApiKey.OFFSET_DELETE,
    handle=handle_offset_delete,
    refuse=lambda call, error: OffsetDeleteResponse(error_code=error),
)


HANDLERS = (
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DELETE_GROUPS,
    OFFSET_DELETE,
)

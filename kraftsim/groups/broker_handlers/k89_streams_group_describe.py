"""StreamsGroupDescribe: streams groups with their topology, members, and the current and target
tasks of each.

Source: kafka.server.KafkaApis.handleStreamsGroupDescribe,
org.apache.kafka.coordinator.group.streams.StreamsGroup.asDescribedGroup, KIP-1071, KIP-1331.
"""

from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.groups.rules_group_table import Group
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.slices import Slices
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k89_streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

STREAMS = "streams"
NOT_STORED = 1
"""The status of a topology description that a broker does not keep."""


def handle(broker: GroupsBroker, call: Call) -> Answer:
    """Return a row for each group: GROUP_ID_NOT_FOUND if there is no such streams group;
    UNSUPPORTED_VERSION if they are disabled.
    """
    request = call.body
    assert isinstance(request, StreamsGroupDescribeRequest), "dispatch decodes by API key"
    if not broker.groups.serves_streams:
        return refuse(call, ErrorCode.UNSUPPORTED_VERSION)
    groups = [_describe(broker, group_id) for group_id in request.group_ids]
    for group in groups:
        if group.error_code != ErrorCode.NONE:
            continue
        if request.include_authorized_operations:
            group.authorized_operations = broker.groups.operations
        if request.include_topology_description:
            group.topology_description_status = NOT_STORED
    return StreamsGroupDescribeResponse(groups=groups)


def _describe(broker: GroupsBroker, group_id: str) -> DescribedGroup:
    led = broker.groups.coordinated(group_id)
    if isinstance(led, ErrorCode):
        return _refused(group_id, led)
    group = led.shard.seen(group_id)
    if group is None or not _is_streams(group):
        why = f"Group {group_id} {'not found' if group is None else 'is not a streams group'}."
        return _refused(group_id, ErrorCode.GROUP_ID_NOT_FOUND, why)
    # imported when there is a streams group: most nodes have none
    from kraftsim.groups.streams_descriptions import description_of

    return description_of(group)


def _is_streams(group: Group) -> bool:
    return getattr(group, "type_name", "") == STREAMS


def _refused(group_id: str, error: ErrorCode, why: str | None = None) -> DescribedGroup:
    return DescribedGroup(error_code=error, error_message=why, group_id=group_id)


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every group."""
    request = call.body
    assert isinstance(request, StreamsGroupDescribeRequest), "dispatch decodes by API key"
    return StreamsGroupDescribeResponse(
        groups=[_refused(group_id, error) for group_id in request.group_ids]
    )


def _weight(broker: GroupsBroker, group_id: str) -> int:
    """Count members: each has a row, and tasks in the current and in the target assignment."""
    led = broker.groups.coordinated(group_id)
    group = None if isinstance(led, ErrorCode) else led.shard.other_groups.get(group_id)
    if group is None or not _is_streams(group):
        return 1
    from kraftsim.groups.streams_descriptions import weight_of

    return weight_of(group)


SLICES = Slices(entries="group_ids", rows="groups", weight=_weight)
HANDLER = Handler(key=ApiKey.STREAMS_GROUP_DESCRIBE, handle=handle, refuse=refuse, slices=SLICES)

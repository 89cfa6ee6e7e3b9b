"""ShareGroupDescribe: share groups with their members, and the assignment of each.

Source: kafka.server.KafkaApis.handleShareGroupDescribe,
org.apache.kafka.coordinator.group.GroupMetadataManager.shareGroupDescribe, KIP-932.
"""

from typing import TYPE_CHECKING, Final

from kraftsim.groups.group_coordinator import GroupTopicsBroker
from kraftsim.groups.rules_assignors import timeline_order
from kraftsim.groups.rules_timing import java_hash
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.slices import Slices
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k77_share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from kraftsim.groups.rules_share_group import ShareGroup, ShareGroupMember

ASSIGNOR: Final = "simple"


def handle(broker: GroupTopicsBroker, call: Call) -> Answer:
    """Return a row for each group: GROUP_ID_NOT_FOUND if there is no such share group;
    UNSUPPORTED_VERSION if they are disabled.
    """
    request = call.body
    assert isinstance(request, ShareGroupDescribeRequest), "dispatch decodes by API key"
    if not broker.groups.serves_shares:
        return refuse(call, ErrorCode.UNSUPPORTED_VERSION)
    named = sorted(request.group_ids, key=bool)  # those without a name are refused at once
    groups = [_describe(broker, group_id) for group_id in named]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = broker.groups.operations
    return ShareGroupDescribeResponse(groups=groups)


def _describe(broker: GroupTopicsBroker, group_id: str) -> DescribedGroup:
    led = broker.groups.coordinated(group_id)
    if isinstance(led, ErrorCode):
        return _refused(group_id, led)
    group = led.shard.seen(group_id)
    found = _share_group(group)
    if found is None:
        what = "is not a share group" if group is not None else "not found"
        return _refused(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=found.state_name,
        group_epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[
            _member(broker, found.members[member_id])
            for member_id in timeline_order(found.members, java_hash)
        ],
    )


def _share_group(group: object) -> "ShareGroup | None":
    from kraftsim.groups.rules_share_group import ShareGroup

    return group if isinstance(group, ShareGroup) else None


def _member(broker: GroupTopicsBroker, member: "ShareGroupMember") -> Member:
    """Deleted topics are omitted."""
    rows = [
        TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=list(numbers))
        for topic_id, numbers in member.assigned.items()
        if (topic := broker.image.topic_by_id(topic_id)) is not None
    ]
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_names),
        assignment=Assignment(topic_partitions=rows),
    )


def _refused(group_id: str, error: ErrorCode, why: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error, error_message=why, group_id=group_id, group_state="", assignor_name=""
    )


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every group."""
    request = call.body
    assert isinstance(request, ShareGroupDescribeRequest), "dispatch decodes by API key"
    return ShareGroupDescribeResponse(
        groups=[_refused(group_id, error) for group_id in request.group_ids]
    )


def _weight(broker: GroupTopicsBroker, group_id: str) -> int:
    """Count the topics of members, too: each has a row."""
    led = broker.groups.coordinated(group_id)
    group = None if isinstance(led, ErrorCode) else _share_group(led.shard.find(group_id))
    return (
        1
        if group is None
        else 1 + sum(1 + len(member.assigned) for member in group.members.values())
    )


SLICES = Slices(entries="group_ids", rows="groups", weight=_weight)
HANDLER = Handler(key=ApiKey.SHARE_GROUP_DESCRIBE, handle=handle, refuse=refuse, slices=SLICES)

"""ConsumerGroupDescribe: consumer groups with their members, and the current and target assignment
of each.

Source: kafka.server.KafkaApis.handleConsumerGroupDescribe,
org.apache.kafka.coordinator.group.GroupMetadataManager.consumerGroupDescribe, KIP-848.
"""

from kraftsim.groups.group_coordinator import GroupTopicsBroker
from kraftsim.groups.rules_assignors import NO_SHARES, Shares
from kraftsim.groups.rules_consumer_group import ConsumerGroup, ConsumerMember
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.slices import Slices
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k69_consumer_group_describe import (
    CLASSIC_MEMBER,
    CONSUMER_MEMBER,
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)


def handle(broker: GroupTopicsBroker, call: Call) -> Answer:
    """Return a row for each group: GROUP_ID_NOT_FOUND if there is no such consumer group;
    UNSUPPORTED_VERSION if they are disabled.
    """
    request = call.body
    assert isinstance(request, ConsumerGroupDescribeRequest), "dispatch decodes by API key"
    if not broker.groups.serves_consumers:
        return refuse(call, ErrorCode.UNSUPPORTED_VERSION)
    groups = [_describe(broker, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = broker.groups.operations
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(broker: GroupTopicsBroker, group_id: str) -> DescribedGroup:
    led = broker.groups.coordinated(group_id)
    if isinstance(led, ErrorCode):
        return _refused(group_id, led)
    group = led.shard.seen(group_id)
    if not isinstance(group, ConsumerGroup):
        why = (
            f"Group {group_id} is not a consumer group."
            if group is not None
            else f"Group {group_id} not found."
        )
        return _refused(group_id, ErrorCode.GROUP_ID_NOT_FOUND, why)
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(broker.groups.consumer_assignors[0]),
        members=[_member(broker, group, member) for member in group.members.values()],
    )


def _member(broker: GroupTopicsBroker, group: ConsumerGroup, member: ConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_names),
        subscribed_topic_regex=member.subscribed_regex or "",
        assignment=_assignment(broker, member.assigned),
        target_assignment=_assignment(broker, group.targets.get(member.member_id, NO_SHARES)),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(broker: GroupTopicsBroker, shares: Shares) -> Assignment:
    """Deleted topics are omitted."""
    rows = [
        TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=list(numbers))
        for topic_id, numbers in shares.items()
        if (topic := broker.image.topic_by_id(topic_id)) is not None
    ]
    return Assignment(topic_partitions=rows)


def _refused(group_id: str, error: ErrorCode, why: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error, error_message=why, group_id=group_id, group_state="", assignor_name=""
    )


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every group."""
    request = call.body
    assert isinstance(request, ConsumerGroupDescribeRequest), "dispatch decodes by API key"
    return ConsumerGroupDescribeResponse(
        groups=[_refused(group_id, error) for group_id in request.group_ids]
    )


def _weight(broker: GroupTopicsBroker, group_id: str) -> int:
    """Count the topics of members, too: each has a row in the current and in the target
    assignment.
    """
    led = broker.groups.coordinated(group_id)
    group = None if isinstance(led, ErrorCode) else led.shard.consumer_groups.get(group_id)
    return (
        1
        if group is None
        else 1 + sum(1 + len(member.assigned) for member in group.members.values())
    )


SLICES = Slices(entries="group_ids", rows="groups", weight=_weight)
HANDLER = Handler(key=ApiKey.CONSUMER_GROUP_DESCRIBE, handle=handle, refuse=refuse, slices=SLICES)

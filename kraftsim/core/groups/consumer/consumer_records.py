"""Consumer groups as records of `__consumer_offsets`.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers.
"""

from kraftsim.core.groups.consumer.consumer_member import ClassicTerms, ConsumerMember
from kraftsim.core.groups.consumer.server_assignors import Shares
from protocol.coordinator.g03_consumer_group_metadata import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from protocol.coordinator.g05_consumer_group_member_metadata import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from protocol.coordinator.g06_consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from protocol.coordinator.g07_consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from protocol.coordinator.g08_consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from protocol.coordinator.g16_consumer_group_regular_expression import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from protocol.schema import Message

Change = tuple[Message, Message | None]
"""Key and value of a record; None is a tombstone."""


def epoch_change(group_id: str, epoch: int, metadata_hash: int) -> Change:
    """The group epoch is bumped."""
    return ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(
        epoch=epoch, metadata_hash=metadata_hash
    )


def member_change(group_id: str, member: ConsumerMember) -> Change:
    """A member joined, or its subscription changed. Topic names are sorted."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_names),
        subscribed_topic_regex=member.subscribed_regex or "",
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=_classic(member.classic),
    )
    return ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value


def target_change(group_id: str, member_id: str, shares: Shares) -> Change:
    """The target assignment of a member changed."""
    rows = [
        TopicPartition(topic_id=topic_id, partitions=list(numbers))
        for topic_id, numbers in shares.items()
    ]
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=rows)


def target_epoch_change(group_id: str, epoch: int, assigned_ms: int) -> Change:
    """The epoch of the target assignment of all members."""
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=max(assigned_ms, 0)
    )
    return ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value


def current_change(group_id: str, member: ConsumerMember, *, with_epochs: bool) -> Change:
    """The current assignment or epoch of a member.

    `with_epochs`: each partition with the epoch in which it was assigned (since 4.3).
    """
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=int(member.state),
        assigned_partitions=_rows(member, member.assigned, with_epochs=with_epochs),
        partitions_pending_revocation=_rows(
            member, member.pending_revocation, with_epochs=with_epochs
        ),
    )
    return ConsumerGroupCurrentMemberAssignmentKey(
        group_id=group_id, member_id=member.member_id
    ), value


def regex_change(
    group_id: str, expression: str, topics: tuple[str, ...], version: int, now_ms: int
) -> Change:
    """A regular expression matches other topics."""
    value = ConsumerGroupRegularExpressionValue(
        topics=list(topics), version=version, timestamp=now_ms
    )
    return ConsumerGroupRegularExpressionKey(
        group_id=group_id, regular_expression=expression
    ), value


def regex_tombstone(group_id: str, expression: str) -> Change:
    """A regular expression has no subscriber any more."""
    return ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression), None


def member_tombstones(group_id: str, member_id: str) -> list[Change]:
    """A member is removed: its current assignment, target assignment and metadata."""
    return [
        (ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        (ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        (ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str) -> list[Change]:
    """A group without members is removed."""
    return [
        (ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        (ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def _classic(terms: ClassicTerms | None) -> ClassicMemberMetadata | None:
    if terms is None:
        return None
    protocols = [
        ClassicProtocol(name=name, metadata=metadata) for name, metadata in terms.protocols
    ]
    return ClassicMemberMetadata(
        session_timeout_ms=terms.session_timeout_ms, supported_protocols=protocols
    )


def _rows(member: ConsumerMember, shares: Shares, *, with_epochs: bool) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=list(numbers),
            assignment_epochs=[member.assignment_epoch(topic_id, number) for number in numbers]
            if with_epochs
            else None,
        )
        for topic_id, numbers in shares.items()
    ]

"""Online migration of a group with members from one protocol to the other: every member keeps its
partitions.

Source: KIP-848 (online migration), group.consumer.migration.policy; ConsumerGroup.fromClassicGroup,
ClassicGroup.fromConsumerGroup.
"""

from collections.abc import Iterable

from kraftsim.core.groups.classic_group import CONSUMER_PROTOCOL, ClassicGroup, GroupState
from kraftsim.core.groups.consumer.consumer_group import ConsumerGroup
from kraftsim.core.groups.consumer.consumer_member import ClassicTerms, ConsumerMember
from kraftsim.core.groups.consumer.consumer_records import (
    Change,
    current_change,
    epoch_change,
    group_tombstones,
    member_change,
    member_tombstones,
    regex_tombstone,
    target_change,
    target_epoch_change,
)
from kraftsim.core.groups.consumer.server_assignors import NO_SHARES, Shares
from kraftsim.core.groups.consumer.topics_view import TopicsView, hash_of_topics
from kraftsim.core.groups.member import Member
from protocol.consumer_protocol import (
    NEWEST_VERSION,
    AssignedPartitions,
    ConsumerProtocolAssignment,
    OwnedPartitions,
    build_assignment,
    parse_assignment,
    parse_subscription,
)
from protocol.coordinator.g02_group_metadata import GroupMetadataKey
from protocol.malformed import MalformedMessage

NEVER_ASSIGNED_MS = 0


def members_of_classic(group: ClassicGroup, topics: TopicsView) -> list[ConsumerMember] | None:
    """Return the members of a classic group as consumer-group members; None if a subscription
    cannot be parsed or would lose data.
    """
    if group.protocol_type != CONSUMER_PROTOCOL:
        return None
    found = [_of_classic(group, member, topics) for member in group.members.values()]
    known = [member for member in found if member is not None]
    return known if len(known) == len(found) else None


def _of_classic(group: ClassicGroup, member: Member, topics: TopicsView) -> ConsumerMember | None:
    if group.protocol_name is None:
        return None
    try:
        subscription = parse_subscription(member.metadata_for(group.protocol_name))
        assignment = (
            parse_assignment(member.assignment)
            if member.assignment
            else ConsumerProtocolAssignment()
        )
    except MalformedMessage:
        return None
    if assignment.user_data:
        return None
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_names=tuple(sorted(dict.fromkeys(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        member_epoch=group.generation_id,
        previous_member_epoch=group.generation_id,
        assigned=shares_of(assignment.assigned_partitions, topics),
        classic=ClassicTerms(
            session_timeout_ms=member.session_timeout_ms, protocols=member.protocols
        ),
    )


def consumer_changes(
    group: ClassicGroup, members: Iterable[ConsumerMember], topics: TopicsView, *, with_epochs: bool
) -> list[Change]:
    """Return the records of a consumer group with these members; the target of each is its current
    assignment.

    A new target is due at once.
    """
    known = list(members)
    names = dict.fromkeys(name for member in known for name in member.subscribed_names)
    changes: list[Change] = [(GroupMetadataKey(group=group.group_id), None)]
    changes += [member_change(group.group_id, member) for member in known]
    changes.append(epoch_change(group.group_id, group.generation_id, hash_of_topics(names, topics)))
    changes += [
        target_change(group.group_id, member.member_id, member.assigned) for member in known
    ]
    changes.append(target_epoch_change(group.group_id, group.generation_id, NEVER_ASSIGNED_MS))
    changes += [current_change(group.group_id, member, with_epochs=with_epochs) for member in known]
    return changes


def tombstones_of(group: ConsumerGroup) -> list[Change]:
    """Return the tombstones of a consumer group and all its members."""
    changes = [
        change
        for member_id in group.members
        for change in member_tombstones(group.group_id, member_id)
    ]
    changes += [regex_tombstone(group.group_id, expression) for expression in group.resolved]
    return changes + group_tombstones(group.group_id)


def classic_of(group: ConsumerGroup, topics: TopicsView, wall_ms: int) -> ClassicGroup:
    """Return the classic group of members that all use the classic protocol; each one is assigned
    its target.
    """
    classic = ClassicGroup(group.group_id, wall_ms)
    classic.generation_id = group.group_epoch
    classic.state = GroupState.STABLE
    for member in group.members.values():
        assert member.classic is not None, f"{member.member_id} uses the consumer protocol"
        classic.add(
            Member(
                group_id=group.group_id,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocol_type=CONSUMER_PROTOCOL,
                protocols=member.classic.protocols,
                assignment=assignment_of(
                    member.classic, group.targets.get(member.member_id, NO_SHARES), topics
                ),
            )
        )
    classic.protocol_name = classic.select_protocol()
    classic.subscribed_topics = classic.read_subscriptions()
    classic.offsets = group.offsets
    return classic


def assignment_of(terms: ClassicTerms, shares: Shares, topics: TopicsView) -> bytes:
    """Return a member's assignment as serialized ConsumerProtocolAssignment, in the version of its
    own subscription.
    """
    named = [(topics.name_of(topic_id), numbers) for topic_id, numbers in shares.items()]
    rows = [
        AssignedPartitions(topic=name, partitions=list(numbers))
        for name, numbers in named
        if name is not None
    ]
    version = int.from_bytes(terms.protocols[0][1][:2], signed=True)
    return build_assignment(
        ConsumerProtocolAssignment(assigned_partitions=rows), min(max(version, 0), NEWEST_VERSION)
    )


def shares_of(rows: Iterable[AssignedPartitions | OwnedPartitions], topics: TopicsView) -> Shares:
    """Return partitions by topic id; topics that do not exist any more are left out."""
    shares: dict[bytes, tuple[int, ...]] = {}
    for row in rows:
        found = topics.find(row.topic)
        if found is not None and row.partitions:
            shares[found[0]] = tuple(sorted({*shares.get(found[0], ()), *row.partitions}))
    return shares

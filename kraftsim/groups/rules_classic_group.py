"""A classic group: its state, members, generation and protocol.

Only the data and its lookups: `rules_rebalance` makes the transitions, when members join, sync,
leave, or miss a deadline.
Source: kafka.coordinator.group.GroupMetadata, KIP-345, KIP-394.
"""

from enum import Enum
from typing import Final

from kraftsim.groups.rules_offsets import GroupOffsets
from kraftsim.groups.rules_timing import JoinAnswer, Member, MemberRow, Protocols
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.version_prefixed import parse_subscription

CONSUMER_PROTOCOL: Final = "consumer"
NO_STATE_TIMESTAMP: Final = -1


class GroupState(Enum):
    """Group states; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


FORMER_STATES: Final = {
    GroupState.EMPTY: (GroupState.PREPARING_REBALANCE,),
    GroupState.PREPARING_REBALANCE: (
        GroupState.STABLE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.EMPTY,
    ),
    GroupState.COMPLETING_REBALANCE: (GroupState.PREPARING_REBALANCE,),
    GroupState.STABLE: (GroupState.COMPLETING_REBALANCE,),
    GroupState.DEAD: tuple(GroupState),
}


class ClassicGroup:
    """Members are kept in the order in which they joined.

    A group without members may still hold offsets.
    """

    def __init__(self, group_id: str, wall_ms: int = NO_STATE_TIMESTAMP) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms = wall_ms
        """The wall clock at the last state transition; -1 if it was not recorded."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_member_ids: dict[str, str] = {}
        self.pending_members: dict[str, None] = {}
        """Member ids that were returned with MEMBER_ID_REQUIRED and have not joined yet
        (KIP-394).
        """
        self.unsynced_members: dict[str, None] = {}
        """Members of this generation that have not sent SyncGroup yet."""
        self.subscribed_topics: frozenset[str] | None = None
        """The topics that the members subscribe to, if they are consumers with parseable
        subscriptions.
        """
        self.initial_remaining_ms: int | None = None
        """During the initial rebalance delay: by how much it may still be extended."""
        self.has_new_member = False
        self.offsets = GroupOffsets()

    # Queries
    # ----------------------------------------------------------------------------------------------

    def is_in(self, *states: GroupState) -> bool:
        """Return whether the group is in one of these states."""
        return self.state in states

    @property
    def is_dead(self) -> bool:
        """Whether the group is removed: requests and callbacks for it have no effect."""
        return self.state is GroupState.DEAD

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def joined_count(self) -> int:
        """The number of members with a pending JoinGroup request."""
        return sum(member.join_waiter is not None for member in self.members.values())

    @property
    def has_all_joined(self) -> bool:
        """Whether all known members have joined and no member id is pending."""
        return not self.pending_members and self.joined_count == len(self.members)

    def is_leader(self, member_id: str) -> bool:
        """Return whether a member is the group leader, which computes the assignment."""
        return self.leader_id == member_id

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode | None:
        """Validate a member id against a group instance id: return FENCED_INSTANCE_ID or
        UNKNOWN_MEMBER_ID; None if valid.
        """
        if group_instance_id is not None:
            owner = self.static_member_ids.get(group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols is compatible with the current members."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and not {
            name for name, _ in protocols
        }.isdisjoint(self.candidates())

    def candidates(self) -> list[str]:
        """Return the protocols that all members support, in the order of the first member."""
        known = [{name for name, _ in member.protocols} for member in self.members.values()]
        if not known:
            return []
        first = next(iter(self.members.values()))
        return [name for name, _ in first.protocols if all(name in names for names in known)]

    def select_protocol(self) -> str:
        """Return the protocol with the most votes; with a tie, the first candidate."""
        candidates = self.candidates()
        assert candidates, "a member without a common protocol was admitted"
        votes = dict.fromkeys(candidates, 0)
        for member in self.members.values():
            votes[member.vote(candidates)] += 1
        return max(candidates, key=lambda name: votes[name])

    def member_rows(self) -> tuple[MemberRow, ...]:
        """Return all members, as reported to the group leader."""
        assert self.protocol_name is not None, "a protocol is selected before members are reported"
        return tuple(
            MemberRow(
                member.member_id, member.group_instance_id, member.metadata_for(self.protocol_name)
            )
            for member in self.members.values()
        )

    def join_answer(self, member_id: str, *, with_members: bool = True) -> JoinAnswer:
        """Return the JoinGroup response of a member for the current generation."""
        return JoinAnswer(
            member_id=member_id,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader_id=self.leader_id or "",
            members=self.member_rows() if with_members and self.is_leader(member_id) else (),
        )

    # Changes
    # ----------------------------------------------------------------------------------------------

    def enter(self, state: GroupState, wall_ms: int) -> None:
        """Transition to another state."""
        assert self.state in FORMER_STATES[state], (
            f"group {self.group_id}: {self.state.value} -> {state.value}"
        )
        self.state = state
        self.state_since_ms = wall_ms

    def add(self, member: Member) -> None:
        """Add a member."""
        assert member.member_id not in self.members, f"{member.member_id} is already a member"
        if not self.members:
            self.protocol_type = member.protocol_type
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_member_ids, (
                f"{member.group_instance_id} is already a member"
            )
            self.static_member_ids[member.group_instance_id] = member.member_id
        self.leader_id = self.leader_id or member.member_id
        self.members[member.member_id] = member
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member, or a pending member id.

        If the leader is removed, the first remaining member becomes leader.
        """
        member = self.members.pop(member_id, None)
        if member is not None and member.group_instance_id is not None:
            self.static_member_ids.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_members.pop(member_id, None)
        self.unsynced_members.pop(member_id, None)

    def replace_static(self, member: Member, new_member_id: str) -> None:
        """Replace a static member by its new incarnation, which becomes last in the order."""
        assert member.group_instance_id is not None, "only a static member can be replaced"
        former = member.member_id
        del self.members[former]
        member.rename(new_member_id)
        self.members[new_member_id] = member
        self.static_member_ids[member.group_instance_id] = new_member_id
        if self.is_leader(former):
            self.leader_id = new_member_id

    def elect_joined_leader(self) -> bool:
        """Elect a leader from the members that have rejoined; return whether there is one."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_waiter is not None:
            return True
        joined = next(
            (
                member.member_id
                for member in self.members.values()
                if member.join_waiter is not None
            ),
            None,
        )
        self.leader_id = joined or self.leader_id
        return joined is not None

    def begin_generation(self, wall_ms: int) -> None:
        """Start the next generation with the current members."""
        self.generation_id += 1
        self.unsynced_members.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.read_subscriptions()
        self.enter(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, wall_ms)

    def read_subscriptions(self) -> frozenset[str] | None:
        """Return the topics that the members subscribe to; None if they are not consumers or a
        subscription cannot be parsed.
        """
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            wanted = [
                parse_subscription(member.metadata_for(self.protocol_name))
                for member in self.members.values()
            ]
        except MalformedMessage:
            return None
        return frozenset(topic for subscription in wanted for topic in subscription.topics)

"""A classic group: its state, its members and what they agree on. What it does about it is in `rebalance`, `joining` and `membership`.

Source: kafka.coordinator.group.GroupMetadata, KIP-345, KIP-394.
"""

from enum import Enum
from typing import Final

from kraftsim.core.groups.answers import JoinAnswer, MemberRow
from kraftsim.core.groups.group_offsets import GroupOffsets
from kraftsim.core.groups.member import Member, Protocols
from protocol.consumer_protocol import parse_subscription
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage

CONSUMER_PROTOCOL: Final = "consumer"
NO_STATE_TIMESTAMP: Final = -1


class GroupState(Enum):
    """The values are Kafka's own words."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


FORMER_STATES: Final = {
    GroupState.EMPTY: (GroupState.PREPARING_REBALANCE,),
    GroupState.PREPARING_REBALANCE: (GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY),
    GroupState.COMPLETING_REBALANCE: (GroupState.PREPARING_REBALANCE,),
    GroupState.STABLE: (GroupState.COMPLETING_REBALANCE,),
    GroupState.DEAD: tuple(GroupState),
}


class ClassicGroup:
    """Members stand in the order in which they came. A group without members may still hold offsets."""

    def __init__(self, group_id: str, wall_ms: int = NO_STATE_TIMESTAMP) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms = wall_ms
        """The wall clock when it came into its state; -1 if nobody wrote that down."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_member_ids: dict[str, str] = {}
        self.pending_members: dict[str, None] = {}
        """Ids that were handed out, and nobody has joined with yet (KIP-394)."""
        self.unsynced_members: dict[str, None] = {}
        """Members of this generation that have not asked for their share yet."""
        self.subscribed_topics: frozenset[str] | None = None
        """What its members read, where they are consumers and said so in words that are understood here."""
        self.initial_remaining_ms: int | None = None
        """While the first members of a group are waited for: how much longer that may be put off."""
        self.has_new_member = False
        self.offsets = GroupOffsets()

    # Looking -------------------------------------------------------------------------------------------------------------------------------

    def is_in(self, *states: GroupState) -> bool:
        """Tell whether the group is in one of some states."""
        return self.state in states

    @property
    def is_dead(self) -> bool:
        """Whether nothing counts for it any more."""
        return self.state is GroupState.DEAD

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest time that any member wants to have."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def joined_count(self) -> int:
        """How many members wait for the rebalance to end."""
        return sum(member.join_waiter is not None for member in self.members.values())

    @property
    def has_all_joined(self) -> bool:
        """Whether nobody is to be waited for."""
        return not self.pending_members and self.joined_count == len(self.members)

    def is_leader(self, member_id: str) -> bool:
        """Tell whether a member works out who reads what."""
        return self.leader_id == member_id

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode | None:
        """Return why somebody is not the member that it says: FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID; None if it is."""
        if group_instance_id is not None:
            owner = self.static_member_ids.get(group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Tell whether somebody who knows these protocols can be a member beside those that are there."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and not {name for name, _ in protocols}.isdisjoint(self.candidates())

    def candidates(self) -> list[str]:
        """Return the protocols that all members know, in the words of the first one."""
        known = [{name for name, _ in member.protocols} for member in self.members.values()]
        if not known:
            return []
        first = next(iter(self.members.values()))
        return [name for name, _ in first.protocols if all(name in names for names in known)]

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer; of several with as many votes the one that was named first."""
        candidates = self.candidates()
        assert candidates, "nobody was let in who knows none of the common protocols"
        votes = dict.fromkeys(candidates, 0)
        for member in self.members.values():
            votes[member.vote(candidates)] += 1
        return max(candidates, key=lambda name: votes[name])

    def member_rows(self) -> tuple[MemberRow, ...]:
        """Return all members, as the leader is told of them."""
        assert self.protocol_name is not None, "a protocol is chosen before anybody is told of members"
        return tuple(
            MemberRow(member.member_id, member.group_instance_id, member.metadata_for(self.protocol_name)) for member in self.members.values()
        )

    def join_answer(self, member_id: str, *, tells_members: bool = True) -> JoinAnswer:
        """Return what a member is told of the present generation."""
        return JoinAnswer(
            member_id=member_id,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader_id=self.leader_id or "",
            members=self.member_rows() if tells_members and self.is_leader(member_id) else (),
        )

    # Changing ------------------------------------------------------------------------------------------------------------------------------

    def enter(self, state: GroupState, wall_ms: int) -> None:
        """Go into another state."""
        assert self.state in FORMER_STATES[state], f"group {self.group_id}: {self.state.value} -> {state.value}"
        self.state = state
        self.state_since_ms = wall_ms

    def add(self, member: Member) -> None:
        """Let a member in."""
        assert member.member_id not in self.members, f"{member.member_id} is in already"
        if not self.members:
            self.protocol_type = member.protocol_type
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_member_ids, f"{member.group_instance_id} is in already"
            self.static_member_ids[member.group_instance_id] = member.member_id
        self.leader_id = self.leader_id or member.member_id
        self.members[member.member_id] = member
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Forget a member, or an id that was handed out; the first of the others leads, if it led."""
        member = self.members.pop(member_id, None)
        if member is not None and member.group_instance_id is not None:
            self.static_member_ids.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_members.pop(member_id, None)
        self.unsynced_members.pop(member_id, None)

    def replace_static(self, member: Member, new_member_id: str) -> None:
        """Let another incarnation of a static member have its place, last in the order."""
        assert member.group_instance_id is not None, "only a static member has a place"
        former = member.member_id
        del self.members[former]
        member.rename(new_member_id)
        self.members[new_member_id] = member
        self.static_member_ids[member.group_instance_id] = new_member_id
        if self.is_leader(former):
            self.leader_id = new_member_id

    def elect_joined_leader(self) -> bool:
        """Let somebody lead who has come back; tell whether there is one."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_waiter is not None:
            return True
        joined = next((member.member_id for member in self.members.values() if member.join_waiter is not None), None)
        self.leader_id = joined or self.leader_id
        return joined is not None

    def begin_generation(self, wall_ms: int) -> None:
        """Begin the next generation with whoever is there."""
        self.generation_id += 1
        self.unsynced_members.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.read_subscriptions()
        self.enter(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, wall_ms)

    def read_subscriptions(self) -> frozenset[str] | None:
        """Return the topics that the members read; None if they are no consumers, or speak in words that are not understood."""
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            wanted = [parse_subscription(member.metadata_for(self.protocol_name)) for member in self.members.values()]
        except MalformedMessage:
            return None
        return frozenset(topic for subscription in wanted for topic in subscription.topics)

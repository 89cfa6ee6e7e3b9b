"""A consumer group of KIP-848: its members, its state, the topics it depends on, and the
reconciliation of each member with its target assignment.

Three epochs drive a group: the group epoch (subscriptions or topics changed), the epoch of the
target assignment, and the epoch of each member, which follows once the member has revoked what it
must. `rules_consumer_groups` decides; only `replay_*` changes a `ConsumerGroup`.
Source: KIP-848, org.apache.kafka.coordinator.group.modern.{ModernGroup, consumer.ConsumerGroup,
consumer.ConsumerGroupMember, consumer.CurrentAssignmentBuilder, MemberState}.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import Final, Protocol

from kraftsim.core.expressions import InvalidExpression, client_expression
from kraftsim.groups.rules_assignors import NO_SHARES, Shares
from kraftsim.groups.rules_classic_group import CONSUMER_PROTOCOL
from kraftsim.groups.rules_offsets import GroupOffsets
from kraftsim.groups.rules_timing import Protocols
from protocol.coordinator.consumer_groups import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)
from protocol.errors import ErrorCode

LEFT_FOR_A_WHILE: Final = -2
"""The member epoch of a static member that has left and will return."""


# --------------------------------------------------------------------------------------------------
# One member: subscription, epochs, assigned partitions, and partitions pending revocation


class MemberState(IntEnum):
    """The reconciliation state of a member; the numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to revoke partitions."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicTerms:
    """The classic-protocol properties of a member, in a group that migrates between the
    protocols.
    """

    session_timeout_ms: int
    protocols: Protocols

    @property
    def protocol_name(self) -> str:
        """The protocol returned to the member: its own first one, as the coordinator assigns."""
        return self.protocols[0][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member, as its records have it; `rebalance_timeout_ms` -1 and `server_assignor` None are
    unset.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_names: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Shares = field(default_factory=dict)
    pending_revocation: Shares = field(default_factory=dict)
    assignment_epochs: Mapping[tuple[bytes, int], int] = field(default_factory=dict)
    """By topic id and partition: the epoch in which each assigned or pending-revocation partition
    was assigned (KIP-1251).
    """
    classic: ClassicTerms | None = None
    """None for a member that uses the consumer protocol."""

    def assignment_epoch(self, topic_id: bytes, number: int) -> int:
        """Return the epoch in which an assigned or pending-revocation partition was assigned; the
        current member epoch for any other.
        """
        return self.assignment_epochs.get((topic_id, number), max(self.member_epoch, 0))

    def gone_for_a_while(self) -> "ConsumerMember":
        """Return a static member that has left temporarily: its next incarnation may commit its
        partitions in any epoch since 0.
        """
        epochs = {
            (topic_id, number): 0
            for topic_id, numbers in self.assigned.items()
            for number in numbers
        }
        return replace(
            self, member_epoch=LEFT_FOR_A_WHILE, pending_revocation={}, assignment_epochs=epochs
        )

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether its current assignment is its target at an epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    @property
    def has_left_for_a_while(self) -> bool:
        """Whether it is a static member that has left temporarily."""
        return self.member_epoch == LEFT_FOR_A_WHILE


# --------------------------------------------------------------------------------------------------
# The group, replayed from its records

NEVER_MS: Final = -1
NO_VERSION: Final = -1


class ConsumerGroupState(Enum):
    """Group states; the values are Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    """Members are kept in the order in which they joined.

    A group without members may still hold offsets.
    """

    def __init__(
        self, group_id: str, group_epoch: int = 0, *, keeps_assignment_epochs: bool = False
    ) -> None:
        self.group_id = group_id
        self.keeps_assignment_epochs = keeps_assignment_epochs
        """Whether a commit with an older epoch is accepted for partitions assigned since that epoch
        or earlier (KIP-1251, since 4.3).
        """
        self.group_epoch = group_epoch
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assigned_ms = NEVER_MS
        """The wall clock when the target assignment was computed."""
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Shares] = {}
        self.resolved: dict[str, tuple[str, ...]] = {}
        """The topics that each regular expression matches."""
        self.offsets = GroupOffsets()
        self.seen_topics = NO_VERSION
        """The version of the topics view at the last update."""
        self.is_over = False
        self._owners: dict[tuple[bytes, int], str] = {}

    @property
    def is_dead(self) -> bool:
        """Whether the group is removed: requests and callbacks for it have no effect."""
        return self.is_over

    # Queries
    # ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        """The state of the group."""
        if self.is_over:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        is_there = all(
            member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()
        )
        return ConsumerGroupState.STABLE if is_there else ConsumerGroupState.RECONCILING

    def is_taken(self, topic_id: bytes, number: int) -> bool:
        """Return whether a partition is assigned to a member or pending revocation."""
        return (topic_id, number) in self._owners

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """Return the member of a group instance id."""
        return next(
            (member for member in self.members.values() if member.instance_id == instance_id), None
        )

    def topics_of(self, member: ConsumerMember) -> list[str]:
        """Return the names of the topics that a member subscribes to, existing or not."""
        found = dict.fromkeys(member.subscribed_names)
        if member.subscribed_regex:
            found.update(dict.fromkeys(self.resolved.get(member.subscribed_regex, ())))
        return sorted(found)

    def subscribed_ids(self, member: ConsumerMember, topics: "TopicsView") -> frozenset[bytes]:
        """Return the ids of the existing topics that a member subscribes to."""
        found = (topics.find(name) for name in self.topics_of(member))
        return frozenset(each[0] for each in found if each is not None)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether any member subscribes to a topic."""
        return any(topic in self.topics_of(member) for member in self.members.values())

    def preferred_assignor(self, default: str) -> str:
        """Return the assignor that most members prefer."""
        wanted: dict[str, int] = {}
        for member in self.members.values():
            if member.server_assignor is not None:
                wanted[member.server_assignor] = wanted.get(member.server_assignor, 0) + 1
        return max(wanted, key=lambda name: wanted[name]) if wanted else default

    def takes_classic(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a classic-protocol member with these protocols is compatible with the
        group's classic-protocol members.
        """
        known = [
            {name for name, _ in member.classic.protocols}
            for member in self.members.values()
            if member.classic is not None
        ]
        return protocol_type == CONSUMER_PROTOCOL and any(
            all(name in names for names in known) for name, _ in protocols
        )

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Return whether other members still own partitions of a member's target assignment."""
        target = self.targets.get(member.member_id, NO_SHARES)
        for topic_id, numbers in target.items():
            has = frozenset(member.assigned.get(topic_id, ()))
            if any(self.is_taken(topic_id, number) for number in numbers if number not in has):
                return True
        return False

    def refuse_commit(
        self,
        member_id: str,
        member_epoch: int,
        api_version: int | None,
        partitions: Iterable[tuple[bytes, int]] = (),
    ) -> ErrorCode | None:
        """Return the error of an offset commit: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, or
        UNSUPPORTED_VERSION of OffsetCommit before 9.

        `api_version` is None inside a transaction, where a request without a member id is not
        fenced. `partitions`, by topic id, are those of the request: one that the member may not
        commit in that epoch fails the whole request.
        """
        has_no_member = member_epoch < 0 and not member_id
        if (member_epoch < 0 and not self.members) or (has_no_member and api_version is None):
            return None
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if (
            api_version is not None
            and api_version < FIRST_COMMIT_WITH_EPOCHS
            and member.classic is None
        ):
            return ErrorCode.UNSUPPORTED_VERSION
        if self.keeps_assignment_epochs and member_epoch < member.member_epoch:
            has_all = all(member_epoch >= member.assignment_epoch(*each) for each in partitions)
            return None if has_all else _stale(member)
        return _refuse_epoch(member, member_epoch)

    def refuse_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode | None:
        """Return the error of an offset fetch; a request without a member id is not validated."""
        if member_id is None and member_epoch < 0:
            return None
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return _refuse_epoch(member, member_epoch)

    # Replay
    # ----------------------------------------------------------------------------------------------

    def replay_epoch(self, epoch: int, metadata_hash: int) -> None:
        """The group epoch is bumped: members, subscriptions or topics changed."""
        self.group_epoch, self.metadata_hash = epoch, metadata_hash

    def replay_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue) -> None:
        """A member joined, or its subscription or settings changed."""
        known = self.members.get(member_id) or ConsumerMember(member_id=member_id)
        self.members[member_id] = replace(
            known,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_names=tuple(value.subscribed_topic_names),
            subscribed_regex=value.subscribed_topic_regex or None,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=_terms(value.classic_member_metadata),
        )

    def replay_gone(self, member_id: str) -> None:
        """A member is removed."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._disown(member)
        self.targets.pop(member_id, None)

    def replay_target(self, member_id: str, shares: Shares | None) -> None:
        """The target assignment of a member changed; None: the member is removed."""
        if shares is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = shares

    def replay_target_epoch(self, epoch: int, assigned_ms: int) -> None:
        """The target assignment of all members is for this epoch."""
        self.assignment_epoch, self.assigned_ms = epoch, assigned_ms

    def replay_current(
        self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        """The current assignment or epoch of a member changed; None: the member has no assignment
        any more.
        """
        known = self.members.get(member_id) or ConsumerMember(member_id=member_id)
        self._disown(known)
        if value is None:
            moved = replace(
                known,
                member_epoch=LEFT,
                previous_member_epoch=LEFT,
                state=MemberState.STABLE,
                assigned=NO_SHARES,
                pending_revocation=NO_SHARES,
                assignment_epochs={},
            )
        else:
            moved = replace(
                known,
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=MemberState(value.state),
                assigned={
                    row.topic_id: tuple(sorted(row.partitions)) for row in value.assigned_partitions
                },
                pending_revocation={
                    row.topic_id: tuple(sorted(row.partitions))
                    for row in value.partitions_pending_revocation
                },
                assignment_epochs=_epochs(
                    (*value.assigned_partitions, *value.partitions_pending_revocation),
                    value.member_epoch,
                ),
            )
        if value is not None or member_id in self.members:
            self.members[member_id] = moved
        for shares in (moved.assigned, moved.pending_revocation):
            for topic_id, numbers in shares.items():
                for number in numbers:
                    self._owners[topic_id, number] = member_id

    def _disown(self, member: ConsumerMember) -> None:
        for shares in (member.assigned, member.pending_revocation):
            for topic_id, numbers in shares.items():
                for number in numbers:
                    if self._owners.get((topic_id, number)) == member.member_id:
                        del self._owners[topic_id, number]


def _refuse_epoch(member: ConsumerMember, member_epoch: int) -> ErrorCode | None:
    if member.member_epoch == member_epoch:
        return None
    return _stale(member)


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _epochs(rows: Sequence[TopicPartitions], default: int) -> dict[tuple[bytes, int], int]:
    """Return the assignment epochs of a record; `default` if a broker before 4.3 wrote it."""
    return {
        (row.topic_id, number): epoch
        for row in rows
        for number, epoch in zip(
            row.partitions, _epochs_of(row) or [max(default, 0)] * len(row.partitions), strict=True
        )
    }


def _epochs_of(row: TopicPartitions) -> list[int] | None:
    epochs = row.assignment_epochs
    return epochs if epochs is not None and len(epochs) == len(row.partitions) else None


def _terms(value: ClassicMemberMetadata | None) -> ClassicTerms | None:
    if value is None:
        return None
    protocols = tuple((each.name, each.metadata) for each in value.supported_protocols)
    return ClassicTerms(session_timeout_ms=value.session_timeout_ms, protocols=protocols)


LEFT: Final = -1
FIRST_COMMIT_WITH_EPOCHS: Final = 9


# --------------------------------------------------------------------------------------------------
# The topics of a group


class TopicsView(Protocol):
    """The topics of the cluster, in the broker's metadata."""

    @property
    def version(self) -> int:
        """A number that changes with every change of the topics."""
        ...

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return id and partition count of a topic; None if it does not exist."""
        ...

    def hash_of(self, name: str) -> int | None:
        """Return the signed 64-bit hash of a topic (rules_topic_hashes); None if it does not
        exist.
        """
        ...

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic; None if it does not exist."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics, sorted."""
        ...


class NoTopics:
    """A cluster without topics."""

    version = 0

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return None."""
        return None

    def hash_of(self, name: str) -> int | None:
        """Return None."""
        return None

    def name_of(self, topic_id: bytes) -> str | None:
        """Return None."""
        return None

    def names(self) -> Iterable[str]:
        """Return no names."""
        return ()


def fitting(expression: str, topics: TopicsView) -> tuple[str, ...]:
    """Return the topics that an expression matches: none if it is invalid, which is possible only
    for one from the log.
    """
    try:
        pattern = client_expression(expression)
    except InvalidExpression:
        return ()
    return tuple(name for name in topics.names() if pattern.fullmatch(name))


# --------------------------------------------------------------------------------------------------
# Reconciliation of a member: revoke, assign, wait
#
# A partition is assigned only after its former owner has reported the revocation. Until then the
# former owner stays in its epoch, and the new owner continues without the partition.

IsTaken = Callable[[bytes, int], bool]


def reconciled(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Shares,
    owned: Shares | None,
    is_taken: IsTaken,
    subscribed: frozenset[bytes] | None = None,
    reads_others: bool = False,
) -> ConsumerMember:
    """Return the member after its next step, or unchanged if there is none.

    `owned` are the partitions that the member reports, None if it does not; `is_taken` returns
    whether a partition is still assigned to another member or pending revocation there. With
    `subscribed` topics a member gets and keeps no partition of others, whatever its target says,
    and one that `reads_others` gives them up at once (CurrentAssignmentBuilder since 4.2).
    """
    if subscribed is not None:
        target = {key: numbers for key, numbers in target.items() if key in subscribed}
    match member.state:
        case MemberState.STABLE if member.member_epoch == target_epoch:
            return _dropped(member, subscribed, owned, target_epoch) if reads_others else member
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(owned, member.pending_revocation):
                return _dropped(member, subscribed, owned, target_epoch) if reads_others else member
            return _next(member, member.member_epoch + 1, target_epoch, target, owned, is_taken)
        case _:
            return _next(member, member.member_epoch, target_epoch, target, owned, is_taken)


def _dropped(
    member: ConsumerMember,
    subscribed: frozenset[bytes] | None,
    owned: Shares | None,
    target_epoch: int,
) -> ConsumerMember:
    """Return a member that gives up what it does not subscribe to any longer."""
    if subscribed is None or subscribed.issuperset(member.assigned):
        return member
    kept = {key: numbers for key, numbers in member.assigned.items() if key in subscribed}
    revoked = dict(member.pending_revocation)
    for key, numbers in member.assigned.items():
        if key not in subscribed:
            revoked[key] = tuple(sorted({*revoked.get(key, ()), *numbers}))
    epoch, state, pending = member.member_epoch, member.state, member.pending_revocation
    if _still_owns(owned, revoked):
        state, pending = MemberState.UNREVOKED_PARTITIONS, revoked
    return _moved(member, epoch, state, kept, pending, target_epoch)


def _next(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Shares,
    owned: Shares | None,
    is_taken: IsTaken,
) -> ConsumerMember:
    kept: dict[bytes, tuple[int, ...]] = {}
    revoked: dict[bytes, tuple[int, ...]] = {}
    taken: dict[bytes, tuple[int, ...]] = {}
    is_waiting = has_more = False
    for topic_id in sorted({**target, **member.assigned}):
        wanted, had = target.get(topic_id, ()), member.assigned.get(topic_id, ())
        is_wanted, is_there = frozenset(wanted), frozenset(had)
        retained = tuple(number for number in had if number in is_wanted)
        removed = tuple(number for number in had if number not in is_wanted)
        lacks = [number for number in wanted if number not in is_there]
        free = [number for number in lacks if not is_taken(topic_id, number)]
        is_waiting = is_waiting or len(free) < len(lacks)
        has_more = has_more or bool(free)
        _put(kept, topic_id, retained)
        _put(revoked, topic_id, removed)
        _put(taken, topic_id, tuple(sorted((*retained, *free))))
    if revoked and _still_owns(owned, revoked):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked, target_epoch)
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _moved(member, target_epoch, state, taken if has_more else kept, NO_SHARES, target_epoch)


def _put(shares: dict[bytes, tuple[int, ...]], topic_id: bytes, numbers: tuple[int, ...]) -> None:
    if numbers:
        shares[topic_id] = numbers


def _moved(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: Shares,
    revoked: Shares,
    target_epoch: int,
) -> ConsumerMember:
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        state=state,
        assigned=dict(assigned),
        pending_revocation=dict(revoked),
        assignment_epochs=_assignment_epochs(member, target_epoch, assigned, revoked),
    )


def _assignment_epochs(
    member: ConsumerMember, target_epoch: int, *held: Shares
) -> dict[tuple[bytes, int], int]:
    """Return the epoch of each partition: that in which it was assigned to the member, and the
    target's for a new one.
    """
    had = {topic_id: frozenset(numbers) for topic_id, numbers in member.assigned.items()}
    return {
        (topic_id, number): member.assignment_epoch(topic_id, number)
        if number in had.get(topic_id, ())
        else target_epoch
        for shares in held
        for topic_id, numbers in shares.items()
        for number in numbers
    }


def _still_owns(owned: Shares | None, shares: Shares) -> bool:
    """Return whether a member owns some of these partitions; one that does not report its
    partitions owns all of them.
    """
    return owned is None or any(
        not frozenset(numbers).isdisjoint(shares.get(topic_id, ()))
        for topic_id, numbers in owned.items()
    )

"""A member of a classic group: its state machine, the client-side assignors, and version probing.

Source: KIP-62, KIP-268, KIP-345, KIP-394, KIP-429, KIP-792,
org.apache.kafka.clients.consumer.internals.{AbstractCoordinator, ConsumerCoordinator}.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from kraftsim.clients.rules_member_steps import (
    COOPERATIVE_STICKY,
    RANGE,
    AssignmentChanged,
    ClientMemberState,
    CountPartitions,
    HeartbeatAnswered,
    Join,
    Joined,
    Leave,
    LeaveAsked,
    Left,
    MemberHeartbeat,
    MemberLost,
    MemberQuestion,
    MemberQuestionLost,
    MemberSettings,
    MembershipEffect,
    MembershipInput,
    MemberStarted,
    PartitionsCounted,
    Released,
    ReleaseWanted,
    SendMemberRequest,
    Subscriber,
    Sync,
    Synced,
    Versions,
)
from kraftsim.clients.rules_producer_steps import TimePassed, TopicPartition
from kraftsim.clients.rules_transaction_steps import (
    CoordinatorFound,
    CoordinatorKind,
    CoordinatorLost,
    FindCoordinator,
)
from protocol.errors import ErrorCode

OF_TASKS: Final = 1
"""The version whose members have one producer per task."""
OF_THREADS: Final = 2
"""The first version whose members may have one producer per thread (KIP-447's document)."""


# --------------------------------------------------------------------------------------------------
# Version probing: members of different releases agree on the latest version that all support,
# without an operator (KIP-268)
#
# Each member sends, in the user data of its subscription, the version in use and its latest
# supported version. The leader returns, in the user data of each assignment, the lowest version in
# use and the latest version that all members support. A leader that meets a member with a later
# version than it supports assigns no partitions to it. A member that receives a lower version than
# it sent, or a later commonly supported version than it uses, switches and rejoins.
# Source: org.apache.kafka.streams.processor.internals.StreamsPartitionAssignor (assign,
# maybeUpdateSubscriptionVersion).


class VersionProbing:
    """The versions of one member.

    `latest`: its latest supported version, used until the leader returns another one.
    """

    def __init__(self, latest: int) -> None:
        self.own = Versions(latest, latest)
        self.assigned = 0
        """The version of the last assignment; 0: none yet."""

    def decide_assignment(self, members: Collection[Versions]) -> Versions:
        """As the leader: return the versions for all members."""
        understood = [each for each in members if not self.is_beyond(each)]
        return Versions(
            min(each.used for each in understood),
            min(self.own.latest, *(each.latest for each in members)),
        )

    def is_beyond(self, member: Versions) -> bool:
        """As the leader: return whether a member uses an unsupported version."""
        return member.used > self.own.latest

    def on_assigned(self, versions: Versions) -> bool:
        """Handle the leader's versions; return whether the member has to rejoin with another
        version.
        """
        common = min(versions.latest, self.own.latest)
        if common > self.own.used or versions.used < self.own.used:
            self.own = Versions(common, self.own.latest)
            return True
        self.assigned = versions.used
        return False


# --------------------------------------------------------------------------------------------------
# The assignors of a group leader: range, and cooperative-sticky
#
# A cooperative assignment never assigns a partition that another member still owns: it is left out,
# and assigned in the follow-up rebalance after the former owner has revoked it.
# Source: org.apache.kafka.clients.consumer.{RangeAssignor, CooperativeStickyAssignor}.

Assignment = dict[str, tuple[TopicPartition, ...]]
"""Member id -> its partitions."""


def assign(
    protocol: str, members: Sequence[Subscriber], partition_counts: Mapping[str, int]
) -> Assignment:
    """Assign every partition of the subscribed topics."""
    if protocol == COOPERATIVE_STICKY:
        return _without_owned_by_others(_sticky(members, partition_counts), members)
    assert protocol == RANGE, f"{protocol} is not a known assignor"
    return _by_ranges(members, partition_counts)


def _by_ranges(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """Assign one range of every topic to each member; the first members get one more if the count
    is not divisible.
    """
    found: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for topic in sorted(partition_counts):
        wanting = sorted(member.member_id for member in members if topic in member.topics)
        if not wanting:
            continue
        size, rest = divmod(partition_counts[topic], len(wanting))
        first = 0
        for place, member_id in enumerate(wanting):
            count = size + (place < rest)
            found[member_id] += [
                TopicPartition(topic, index) for index in range(first, first + count)
            ]
            first += count
    return {member_id: tuple(partitions) for member_id, partitions in found.items()}


def _sticky(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """Keep each member's partitions up to its quota, and assign the rest to the members with the
    fewest.
    """
    everything = [
        TopicPartition(topic, index)
        for topic in sorted(partition_counts)
        for index in range(partition_counts[topic])
    ]
    owner = _owners(members)
    wanting = sorted(members, key=lambda member: member.member_id)
    found: dict[str, list[TopicPartition]] = {member.member_id: [] for member in wanting}
    share = -(-len(everything) // max(1, len(wanting)))
    topics = {member.member_id: member.topics for member in wanting}
    for where in everything:
        member_id = owner.get(where)
        if (
            member_id is not None
            and where.topic in topics[member_id]
            and len(found[member_id]) < share
        ):
            found[member_id].append(where)
    placed = {where for partitions in found.values() for where in partitions}
    for where in everything:
        if where in placed:
            continue
        candidates = [member.member_id for member in wanting if where.topic in member.topics]
        if candidates:
            found[min(candidates, key=lambda member_id: len(found[member_id]))].append(where)
    return {member_id: tuple(sorted(partitions)) for member_id, partitions in found.items()}


def _owners(members: Sequence[Subscriber]) -> dict[TopicPartition, str]:
    """Return the owner of each partition; of two claims the later generation wins, and neither with
    the same generation.
    """
    claims: dict[TopicPartition, list[Subscriber]] = {}
    for member in members:
        for where in member.owned:
            claims.setdefault(where, []).append(member)
    owners = {}
    for where, claimants in claims.items():
        newest = max(member.owned_generation_id for member in claimants)
        holders = [member.member_id for member in claimants if member.owned_generation_id == newest]
        if len(holders) == 1:
            owners[where] = holders[0]
    return owners


def _without_owned_by_others(wanted: Assignment, members: Sequence[Subscriber]) -> Assignment:
    owner = {where: member.member_id for member in members for where in member.owned}
    return {
        member_id: tuple(where for where in partitions if owner.get(where, member_id) == member_id)
        for member_id, partitions in wanted.items()
    }


# --------------------------------------------------------------------------------------------------
# The state machine: join, sync, heartbeat, and revocation
#
# With the eager protocol (range) a member revokes all partitions before it rejoins; with the
# cooperative one (sticky) it keeps them, learns which ones to revoke, and rejoins afterwards. An
# expelled member rejoins when the application has released its partitions: until then it keeps the
# former generation, so that its commits are fenced. The leader checks the partition counts of its
# topics periodically, sooner if a topic was unknown, and rejoins if they have changed since the
# last assignment.

ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
EXPELLED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class GroupMember:
    """One member. Call `step` for every input, and again no later than `wake_at_ms`."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self.state = ClientMemberState.OUTSIDE
        self.member_id = ""
        self.generation_id = -1
        self.assigned: tuple[TopicPartition, ...] = ()
        self._protocol = ""
        self._has_started = False
        self._members: tuple[Subscriber, ...] = ()
        self._coordinator: int | None = None
        self._finds_coordinator = False
        self._counts_partitions = False
        self._shared_out: Mapping[str, int] | None = None
        """By topic: the partition count of the leader's last assignment; None if the member is not
        the leader.
        """
        self._count_at_ms = 0
        self._asked: MemberQuestion | None = None
        self._not_before_ms = 0
        self._beat_at_ms = 0
        self._wants_to_leave = False
        self._probing = (
            None if settings.latest_version is None else VersionProbing(settings.latest_version)
        )
        self._effects: list[MembershipEffect] = []

    @property
    def assigned_version(self) -> int:
        """The version of the last assignment, if members probe versions; 0: none yet."""
        return self._probing.assigned if self._probing else 0

    @property
    def wake_at_ms(self) -> int | None:
        """When TimePassed is due without other inputs; None: never."""
        if (
            not self._has_started
            or self.state is ClientMemberState.GONE
            or self._asked is not None
            or self._finds_coordinator
            or self._must_wait
        ):
            return None
        if self.state in (ClientMemberState.STABLE, ClientMemberState.RELEASING):
            return max(
                min(self._beat_at_ms, self._count_at_ms) if self._recounts else self._beat_at_ms,
                self._not_before_ms,
            )
        return None if self._counts_partitions else self._not_before_ms

    def step(self, happened: MembershipInput, now_ms: int) -> list[MembershipEffect]:
        """Handle an input and return the effects, in order."""
        self._effects = []
        match happened:
            case MemberStarted():
                self._has_started = True
            case LeaveAsked():
                self._wants_to_leave = True
            case Released():
                self._released()
            case TimePassed():
                pass
            case PartitionsCounted(counts):
                self._counts_partitions = False
                self._on_counted(counts, now_ms)
            case CoordinatorFound(broker_id=broker_id):
                self._finds_coordinator, self._coordinator = False, broker_id
            case CoordinatorLost(error_code=error_code):
                self._finds_coordinator, self._not_before_ms = (
                    False,
                    now_ms + self._settings.retry_backoff_ms,
                )
                if error_code is not None and not error_code.retriable:
                    self._lose(error_code, is_fatal=True)
            case Joined() | Synced() | HeartbeatAnswered() | Left() | MemberQuestionLost():
                self._answered(happened, now_ms)
        self._go_on(now_ms)
        effects, self._effects = self._effects, []
        return effects

    def _on_counted(self, counts: Mapping[str, int] | None, now_ms: int) -> None:
        if self.state is ClientMemberState.ASSIGNING:
            if counts is None:
                self._not_before_ms = now_ms + self._settings.retry_backoff_ms
                return
            self._shared_out, self.state = counts, ClientMemberState.SYNCING
            self._ask(self._shared(counts))
        elif (
            self.state is ClientMemberState.STABLE
            and self._shared_out is not None
            and counts not in (None, self._shared_out)
        ):
            self._rebalance()
        is_complete = counts is not None and all(topic in counts for topic in self._topics)
        self._count_at_ms = now_ms + (
            self._settings.metadata_max_age_ms if is_complete else self._settings.retry_backoff_ms
        )

    @property
    def _recounts(self) -> bool:
        return (
            self._shared_out is not None
            and self.state is ClientMemberState.STABLE
            and not self._counts_partitions
        )

    @property
    def _must_wait(self) -> bool:
        return self.state is ClientMemberState.EXPELLED and not self._wants_to_leave

    @property
    def _topics(self) -> tuple[str, ...]:
        """The subscribed topics of all members, as the leader knows them."""
        return tuple(sorted({topic for member in self._members for topic in member.topics}))

    # Responses
    # ----------------------------------------------------------------------------------------------

    def _answered(
        self, answer: Joined | Synced | HeartbeatAnswered | Left | MemberQuestionLost, now_ms: int
    ) -> None:
        question, self._asked = self._asked, None
        assert question is not None, "a response without a request"
        self._beat_at_ms = now_ms + self._settings.heartbeat_interval_ms
        match answer:
            case Joined():
                self._on_joined(answer, now_ms)
            case Synced():
                self._on_synced(answer, now_ms)
            case HeartbeatAnswered(error_code):
                self._on_beaten(error_code, now_ms)
            case Left():
                self.state = ClientMemberState.GONE
            case MemberQuestionLost():
                self._coordinator = None
                self._not_before_ms = now_ms + self._settings.retry_backoff_ms
                if isinstance(question, Join | Sync):
                    self.state = ClientMemberState.OUTSIDE
                elif isinstance(question, Leave):
                    self.state = ClientMemberState.GONE

    def _on_joined(self, answer: Joined, now_ms: int) -> None:
        match answer.error_code:
            case ErrorCode.NONE:
                self.member_id, self.generation_id, self._protocol = (
                    answer.member_id,
                    answer.generation_id,
                    answer.protocol,
                )
                self._shared_out = None
                if answer.is_leader:
                    self._members, self.state = answer.members, ClientMemberState.ASSIGNING
                else:
                    self.state = ClientMemberState.SYNCING
                    self._ask(self._sync({}))
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id, self.state = answer.member_id, ClientMemberState.OUTSIDE
            case error:
                self._out(error, now_ms)

    def _on_synced(self, answer: Synced, now_ms: int) -> None:
        if answer.error_code is not ErrorCode.NONE:
            self._out(answer.error_code, now_ms)
            return
        if (
            self._probing is not None
            and answer.versions is not None
            and self._probing.on_assigned(answer.versions)
        ):
            self.state = ClientMemberState.OUTSIDE
            return
        held, given = self.assigned, answer.partitions
        self.state, self.assigned = ClientMemberState.STABLE, given
        added = tuple(where for where in given if where not in held)
        self._effects.append(
            AssignmentChanged(
                member_id=self.member_id,
                generation_id=self.generation_id,
                partitions=self.assigned,
                added=added,
            )
        )
        gone = tuple(where for where in held if where not in given)
        if gone:
            self.state = ClientMemberState.RELEASING
            self._effects.append(ReleaseWanted(gone))

    def _on_beaten(self, error: ErrorCode, now_ms: int) -> None:
        if error is ErrorCode.REBALANCE_IN_PROGRESS and self.state is ClientMemberState.STABLE:
            self._rebalance()
        elif error in ELSEWHERE:
            self._coordinator = None
        elif error in EXPELLED or error is ErrorCode.FENCED_INSTANCE_ID:
            self._out(error, now_ms)

    def _rebalance(self) -> None:
        if self._settings.assignor == COOPERATIVE_STICKY or not self.assigned:
            self.state = ClientMemberState.OUTSIDE
        else:
            self.state = ClientMemberState.RELEASING
            self._effects.append(ReleaseWanted(self.assigned))

    def _released(self) -> None:
        if self.state is ClientMemberState.RELEASING:
            if self._settings.assignor != COOPERATIVE_STICKY:
                self.assigned = ()
            self.state = ClientMemberState.OUTSIDE
        elif self.state is ClientMemberState.EXPELLED:
            self.state = ClientMemberState.OUTSIDE

    def _out(self, error: ErrorCode, now_ms: int) -> None:
        """Handle an error: rejoin, look up the coordinator, or fail."""
        has_partitions = bool(self.assigned) or self.state is ClientMemberState.RELEASING
        self.state = ClientMemberState.OUTSIDE
        if error in EXPELLED:
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self._lose(error, is_fatal=False)
            if has_partitions:
                self.state = ClientMemberState.EXPELLED
        elif error in ELSEWHERE:
            self._coordinator = None
        elif not error.retriable and error is not ErrorCode.REBALANCE_IN_PROGRESS:
            self._lose(error, is_fatal=True)
        self._not_before_ms = now_ms + (
            0 if error is ErrorCode.REBALANCE_IN_PROGRESS else self._settings.retry_backoff_ms
        )

    def _lose(self, error: ErrorCode, *, is_fatal: bool) -> None:
        self.assigned, self.generation_id = (), -1
        self.state = ClientMemberState.GONE if is_fatal else ClientMemberState.OUTSIDE
        self._effects.append(MemberLost(error_code=error, is_fatal=is_fatal))

    # Next action
    # ----------------------------------------------------------------------------------------------

    def _go_on(self, now_ms: int) -> None:
        if not self._has_started or self.state is ClientMemberState.GONE or self._asked is not None:
            return
        if self._wants_to_leave and not self.member_id:
            self.state = ClientMemberState.GONE
            return
        if now_ms < self._not_before_ms or self._finds_coordinator or self._must_wait:
            return
        if self._coordinator is None:
            self._finds_coordinator = True
            self._effects.append(
                FindCoordinator(kind=CoordinatorKind.GROUP, key=self._settings.group_id)
            )
        elif self._wants_to_leave:
            self.state = ClientMemberState.LEAVING
            self._ask(Leave(self.member_id))
        elif self.state is ClientMemberState.OUTSIDE:
            self.state = ClientMemberState.JOINING
            own = self._probing.own if self._probing else None
            self._ask(
                Join(
                    member_id=self.member_id,
                    owned=self.assigned,
                    generation_id=self.generation_id,
                    versions=own,
                )
            )
        elif self.state is ClientMemberState.ASSIGNING and not self._counts_partitions:
            self._counts_partitions = True
            self._effects.append(CountPartitions(self._topics))
        elif self.state in (ClientMemberState.STABLE, ClientMemberState.RELEASING):
            self._live_on(now_ms)

    def _live_on(self, now_ms: int) -> None:
        """Send heartbeats; as the leader, check the partition counts."""
        if self._recounts and now_ms >= self._count_at_ms:
            self._counts_partitions = True
            self._effects.append(CountPartitions(self._topics))
        if now_ms >= self._beat_at_ms:
            self._ask(MemberHeartbeat(member_id=self.member_id, generation_id=self.generation_id))

    def _shared(self, counts: Mapping[str, int]) -> Sync:
        """Compute the assignment.

        A member with a version that this leader does not support gets no partitions (KIP-268).
        """
        versions = [each.versions for each in self._members if each.versions is not None]
        if self._probing is None or not versions:
            return self._sync(assign(self._protocol, self._members, counts))
        understood = [
            each
            for each in self._members
            if each.versions is None or not self._probing.is_beyond(each.versions)
        ]
        shares: dict[str, tuple[TopicPartition, ...]] = {
            each.member_id: () for each in self._members
        }
        shares |= assign(self._protocol, understood, counts)
        return msgspec.structs.replace(
            self._sync(shares), versions=self._probing.decide_assignment(versions)
        )

    def _sync(self, assignment: dict[str, tuple[TopicPartition, ...]]) -> Sync:
        return Sync(
            member_id=self.member_id,
            generation_id=self.generation_id,
            protocol=self._protocol,
            assignment=assignment,
        )

    def _ask(self, question: MemberQuestion) -> None:
        if (
            self._coordinator is None
        ):  # lost while partition counts were requested: the group continues without it
            self.state = ClientMemberState.OUTSIDE
            return
        self._asked = question
        self._effects.append(SendMemberRequest(broker_id=self._coordinator, question=question))

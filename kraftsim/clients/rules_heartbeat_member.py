"""A member of a group whose coordinator assigns, a consumer group (KIP-848) or a streams group
(KIP-1071): one kind of heartbeat, by which it joins, receives its assignment step by step,
acknowledges what it owns, and leaves.

The member epoch is the generation of its commits. It follows the group's once the member has
acknowledged that it has revoked what its new target assignment lacks. A fenced member releases
everything first, and then rejoins under the same id.

Left out of Kafka's client: max.poll.interval.ms, by which a member that does not poll leaves.
Source: KIP-848, KIP-1082, org.apache.kafka.clients.consumer.internals.{AbstractMembershipManager,
StreamsMembershipManager, AbstractHeartbeatRequestManager, MemberState}.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from kraftsim.clients.rules_member_steps import (
    AssignmentChanged,
    ClientMemberState,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswered,
    LeaveAsked,
    MemberLost,
    MemberQuestionLost,
    MemberSettings,
    MembershipEffect,
    MembershipInput,
    MemberStarted,
    Released,
    ReleaseWanted,
    SendMemberRequest,
    StreamsHeartbeatAnswered,
    StreamsMemberHeartbeat,
)
from kraftsim.clients.rules_producer_steps import TimePassed, TopicPartition
from kraftsim.clients.rules_transaction_steps import (
    CoordinatorFound,
    CoordinatorKind,
    CoordinatorLost,
    FindCoordinator,
)
from protocol.errors import ErrorCode

JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2
"""The member epochs of requests that are more than a heartbeat."""
FENCED: Final = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
ELSEWHERE: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
HEARTBEATS_AT_ONCE: Final = (
    ClientMemberState.OUTSIDE,
    ClientMemberState.JOINING,
    ClientMemberState.ACKNOWLEDGING,
)
Name = TypeVar("Name", bytes, str)


class HeartbeatMembership(ABC, Generic[Name]):
    """One member, whose assignment has numbers by name: the partitions of a topic id, or the tasks
    of a subtopology, ascending. Call `step` for every input, and again no later than `wake_at_ms`.

    `member_id` is its own for its whole life, over all epochs.
    """

    assigned_version = 0
    """The heartbeat has no user data by which members could probe versions."""

    def __init__(self, settings: MemberSettings, member_id: str) -> None:
        self._settings = settings
        self.member_id = member_id
        self.state = ClientMemberState.OUTSIDE
        self.generation_id = JOINS
        """The member epoch; 0 outside the group."""
        self.assigned: tuple[TopicPartition, ...] = ()
        self._has_started = False
        self._wants_to_leave = False
        self._coordinator: int | None = None
        self._finds_coordinator = False
        self._asked: ConsumerHeartbeat | StreamsMemberHeartbeat | None = None
        self._not_before_ms = 0
        self._beat_at_ms = 0
        self._interval_ms = settings.heartbeat_interval_ms
        self._target: Mapping[Name, tuple[int, ...]] = {}
        self._owned: Mapping[Name, tuple[int, ...]] = {}
        """What is assigned, by name."""
        self._reached: Mapping[Name, tuple[int, ...]] = {}
        """What is assigned once the application has released partitions."""
        self._effects: list[MembershipEffect] = []

    @property
    def wake_at_ms(self) -> int | None:
        """When TimePassed is due without other inputs; None: never."""
        return self._heartbeat_at_ms

    @property
    def _heartbeat_at_ms(self) -> int | None:
        if (
            not self._has_started
            or self.state is ClientMemberState.GONE
            or self._asked is not None
            or self._finds_coordinator
            or self._must_wait
        ):
            return None
        return max(self._not_before_ms, 0 if self._is_due_at_once else self._beat_at_ms)

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
            case CoordinatorFound(broker_id=broker_id):
                self._finds_coordinator, self._coordinator = False, broker_id
            case CoordinatorLost(error_code=error_code):
                self._finds_coordinator = False
                self._not_before_ms = now_ms + self._settings.retry_backoff_ms
                if error_code is not None and not error_code.retriable:
                    self._lose(error_code, is_fatal=True)
            case MemberQuestionLost():
                self._on_unanswered(now_ms)
            case _:
                self._on_other(happened, now_ms)
        self._go_on(now_ms)
        effects, self._effects = self._effects, []
        return effects

    @property
    def _must_wait(self) -> bool:
        """Whether the application has yet to release what other members may own."""
        return self.state is ClientMemberState.EXPELLED and not self._wants_to_leave

    @property
    def _is_due_at_once(self) -> bool:
        return self._wants_to_leave or self.state in HEARTBEATS_AT_ONCE

    # What the protocols differ in
    # ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _on_other(self, happened: MembershipInput, now_ms: int) -> None:
        """Handle an input of this protocol."""

    @abstractmethod
    def _known(self, now_ms: int) -> Mapping[Name, tuple[int, ...]]:
        """Return the part of the target whose partitions are known, and ask for the others."""

    @abstractmethod
    def _named(self, assigned: Mapping[Name, tuple[int, ...]]) -> tuple[TopicPartition, ...]:
        """Return the partitions of an assignment, ascending."""

    @abstractmethod
    def _forget_sent(self) -> None:
        """Let the next heartbeat have every field: the coordinator may know none."""

    @abstractmethod
    def _heartbeat(self) -> ConsumerHeartbeat | StreamsMemberHeartbeat:
        """Return the next heartbeat, with the fields that the coordinator does not know yet."""

    @abstractmethod
    def _leaving(self, member_epoch: int) -> ConsumerHeartbeat | StreamsMemberHeartbeat:
        """Return the last heartbeat."""

    # Responses
    # ----------------------------------------------------------------------------------------------

    def _on_answered(
        self,
        answer: ConsumerHeartbeatAnswered | StreamsHeartbeatAnswered,
        assigned: Mapping[Name, tuple[int, ...]] | None,
        now_ms: int,
    ) -> None:
        """Take a response; `assigned` None: the target is unchanged."""
        asked, self._asked = self._asked, None
        assert asked is not None, "a response without a request"
        if asked.member_epoch < JOINS:
            self._leave()
            return
        if answer.error_code is not ErrorCode.NONE:
            self._beat_at_ms = now_ms  # as soon as the backoff allows it
            self._forget_sent()
            self._on_error(answer.error_code, now_ms)
            return
        self._interval_ms = answer.heartbeat_interval_ms
        self._beat_at_ms = now_ms + self._interval_ms
        has_new_epoch = self.generation_id != answer.member_epoch
        self.generation_id = answer.member_epoch
        if assigned is not None:
            self._target = {
                name: tuple(sorted(numbers))
                for name, numbers in sorted(assigned.items())
                if numbers
            }
        if has_new_epoch:
            self._tell(())
        is_news = assigned is not None or self.state is ClientMemberState.JOINING
        if is_news and self.state is not ClientMemberState.RELEASING:
            self.state = self._state_by_target

    def _on_error(self, error: ErrorCode, now_ms: int) -> None:
        self._not_before_ms = now_ms + self._settings.retry_backoff_ms
        if error in FENCED:
            self._not_before_ms = now_ms
            self._lose(error, is_fatal=False)
        elif error in ELSEWHERE:
            self._coordinator, self._not_before_ms = None, now_ms
        elif not error.retriable and error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._lose(error, is_fatal=True)

    def _on_unanswered(self, now_ms: int) -> None:
        """The coordinator may have handled the request, or not: the next one has every field."""
        asked, self._asked = self._asked, None
        assert asked is not None, "a response without a request"
        self._coordinator, self._beat_at_ms = None, now_ms
        self._not_before_ms = now_ms + self._settings.retry_backoff_ms
        self._forget_sent()
        if asked.member_epoch < JOINS:
            self._leave()

    def _leave(self) -> None:
        self.state, self.assigned = ClientMemberState.GONE, ()

    def _lose(self, error: ErrorCode, *, is_fatal: bool) -> None:
        """The member is fenced, or has failed: its partitions may belong to others."""
        has_partitions = bool(self.assigned) or self.state is ClientMemberState.RELEASING
        self.assigned, self._owned, self._target, self._reached = (), {}, {}, {}
        self._effects.append(MemberLost(error_code=error, is_fatal=is_fatal))
        self.generation_id = JOINS
        if is_fatal:
            self.state = ClientMemberState.GONE
        else:
            self.state = ClientMemberState.EXPELLED if has_partitions else ClientMemberState.OUTSIDE

    @property
    def _state_by_target(self) -> ClientMemberState:
        is_reached = self._target == self._owned
        return ClientMemberState.STABLE if is_reached else ClientMemberState.RECONCILING

    # Reconciliation
    # ----------------------------------------------------------------------------------------------

    def _reconcile(self, now_ms: int) -> None:
        """Release what the target lacks, then take what it adds, as far as it is known."""
        reached = self._known(now_ms)
        if reached == self._owned:
            return  # until the others are known
        self._reached = reached
        gone = tuple(where for where in self.assigned if where not in self._named(reached))
        if gone:
            self.state = ClientMemberState.RELEASING
            self._effects.append(ReleaseWanted(gone))
        else:
            self._take_reached()

    def _take_reached(self) -> None:
        held = self.assigned
        self._owned, self.assigned = self._reached, self._named(self._reached)
        self.state = ClientMemberState.ACKNOWLEDGING
        self._tell(tuple(where for where in self.assigned if where not in held))

    def _released(self) -> None:
        if self.state is ClientMemberState.RELEASING:
            self._take_reached()
        elif self.state is ClientMemberState.EXPELLED:
            self.state = ClientMemberState.OUTSIDE

    def _tell(self, added: tuple[TopicPartition, ...]) -> None:
        self._effects.append(
            AssignmentChanged(
                member_id=self.member_id,
                generation_id=self.generation_id,
                partitions=self.assigned,
                added=added,
            )
        )

    # Next action
    # ----------------------------------------------------------------------------------------------

    def _go_on(self, now_ms: int) -> None:
        if not self._has_started or self.state is ClientMemberState.GONE:
            return
        if self.state is ClientMemberState.RECONCILING and not self._wants_to_leave:
            self._reconcile(now_ms)
        if self._asked is not None:
            return
        if self._wants_to_leave and self.generation_id <= JOINS:
            self._leave()
            return
        if now_ms < self._not_before_ms or self._finds_coordinator or self._must_wait:
            return
        if not self._is_due_at_once and now_ms < self._beat_at_ms:
            return
        if self._coordinator is None:
            self._finds_coordinator = True
            self._effects.append(
                FindCoordinator(kind=CoordinatorKind.GROUP, key=self._settings.group_id)
            )
        elif self._wants_to_leave:
            self.state = ClientMemberState.LEAVING
            self._ask(self._coordinator, self._leaving(self._last_epoch))
        else:
            if self.state is ClientMemberState.OUTSIDE:
                self.state = ClientMemberState.JOINING
                self._forget_sent()
            self._ask(self._coordinator, self._heartbeat())

    @property
    def _last_epoch(self) -> int:
        is_back_soon = self._settings.group_instance_id is not None and self._settings.returns_soon
        return LEAVES_FOR_A_WHILE if is_back_soon else LEAVES

    def _ask(self, coordinator: int, question: ConsumerHeartbeat | StreamsMemberHeartbeat) -> None:
        self._asked = question
        self._effects.append(SendMemberRequest(broker_id=coordinator, question=question))

"""Producers of designs that were not adopted: KIP-758's window of sequences, KIP-447's fatal
fencing, and sequences that do not wrap.

Source: KIP-447, KIP-588, KIP-758; KafkaProducer and DefaultRecordBatch.incrementSequence for what
shipped.
"""

from kraftsim.clients.rules_idempotent_producer import IdempotentProducer
from kraftsim.clients.rules_producer_steps import (
    REMEMBERED_BATCHES,
    OutgoingBatch,
    PartitionQueue,
    ProducerIdentity,
    ProducerSettings,
    TopicPartition,
    WindowAnnounced,
)
from kraftsim.clients.rules_transaction_steps import (
    NO_GENERATION_ID,
    AbortAsked,
    BeginAsked,
    CommitAsked,
    CommitOffsets,
    InitAsked,
    Meaning,
    OffsetsGiven,
    PrepareAsked,
    Question,
)
from kraftsim.clients.rules_transactional_producer import GatedProducer, TransactionalProducer
from kraftsim.producer_state.rules_entries import LAST_SEQUENCE
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode

REQUESTS_MAX = 1000
"""Not a protocol limit: the maximum of in-flight requests per connection."""


# --------------------------------------------------------------------------------------------------
# KIP-758, second phase: limited not by in-flight requests, but by the leader's window of sequence
# numbers
#
# A leader without an announced window is an existing broker: at most five requests are in flight to
# it. The same holds after each leader change, until the first response of the new leader. A batch
# with DUPLICATE_SEQUENCE_NUMBER is in the log and resolved; an out-of-order one is retried as
# usual.


class WindowedQueue(PartitionQueue):
    """Holds as many unresolved batches as fit in the window; five without a window."""

    def __init__(self, where: TopicPartition, first_sequence: int = 0) -> None:
        super().__init__(where, first_sequence)
        self.window: int | None = None

    def has_room_for(self, batch: OutgoingBatch) -> bool:
        """Return whether a batch may join the unresolved ones."""
        if self.window is None:
            return super().has_room_for(batch)
        under_way = self.sequences_under_way()
        return not under_way or under_way + len(batch.records) <= self.window


class LiteralQueue(WindowedQueue):
    """Falls back to five sequence numbers, as in the text: a batch of six records waits until it is
    alone.
    """

    def has_room_for(self, batch: OutgoingBatch) -> bool:
        """Return whether a batch may join the unresolved ones."""
        if self.window is not None:
            return super().has_room_for(batch)
        under_way = self.sequences_under_way()
        return not under_way or under_way + len(batch.records) <= REMEMBERED_BATCHES


class WindowedProducer(IdempotentProducer):
    """Sends to each leader within its window."""

    queue_class = WindowedQueue

    def __init__(self, settings: ProducerSettings) -> None:
        super().__init__(settings)
        self._windows: dict[int, int] = {}

    def _on_window(self, announced: WindowAnnounced) -> None:
        if announced.sequences is None:
            self._windows.pop(announced.broker_id, None)
        else:
            self._windows[announced.broker_id] = announced.sequences

    def _requests_max(self, broker_id: int) -> int:
        return (
            REQUESTS_MAX
            if broker_id in self._windows
            else min(super()._requests_max(broker_id), REMEMBERED_BATCHES)
        )

    def _may_send_to(self, where: TopicPartition) -> bool:
        queue = self._queues[where]
        assert isinstance(queue, WindowedQueue), "its queues are windowed"
        queue.window = self._windows.get(self._leaders.get(where, -1))
        return super()._may_send_to(where)


class LiteralProducer(WindowedProducer):
    """Follows the text literally for a leader without a window."""

    queue_class = LiteralQueue


class UncheckedProducer(WindowedProducer):
    """Does not fall back: a window announced by one leader is used for the next one."""

    def _may_send_to(self, where: TopicPartition) -> bool:
        announced = max(self._windows.values(), default=None)
        may = super()._may_send_to(where)
        queue = self._queues[where]
        assert isinstance(queue, WindowedQueue), "its queues are windowed"
        queue.window = queue.window or announced
        return may

    def _requests_max(self, broker_id: int) -> int:
        return REQUESTS_MAX if self._windows else super()._requests_max(broker_id)


# --------------------------------------------------------------------------------------------------
# KIP-447's text: an error of the group's fencing is fatal, and offset commits without a member are
# rejected
#
# What shipped is milder: a commit that the group rejects is abortable, and the API without group
# metadata stayed, unfenced.
# Source: KIP-447 ("ProducerFencedException", "will throw if the old API is used").

FENCED_BY_ITS_GROUP = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
)


class DesignDocumentProducer(TransactionalProducer):
    """Treats errors as fatal that are abortable for the shipped one."""

    def meaning_of(self, question: Question, error: ErrorCode) -> Meaning:
        """Return how an error of a request is handled."""
        if isinstance(question, CommitOffsets) and error in FENCED_BY_ITS_GROUP:
            return Meaning.FATAL
        return super().meaning_of(question, error)

    def _on_application(
        self,
        happened: InitAsked | BeginAsked | OffsetsGiven | PrepareAsked | CommitAsked | AbortAsked,
        now_ms: int,
    ) -> None:
        if isinstance(happened, OffsetsGiven) and happened.group.generation_id == NO_GENERATION_ID:
            self._need_abort(
                ApiKey.TXN_OFFSET_COMMIT,
                ErrorCode.UNSUPPORTED_VERSION,
                "offsets are committed for a member of a group",
            )
            return
        super()._on_application(happened, now_ms)


# --------------------------------------------------------------------------------------------------
# No wrap-around: at 2^31-1 the producer bumps the epoch and continues from 0
#
# KIP-758 considered and rejected this: without wrapping sequences no bound is needed for sequences
# behind the latest batch. An idempotent producer completes the open batches and continues with the
# next epoch; a transaction that would exceed the maximum is aborted.
# Source: KIP-758 (Rejected Alternatives).


class EndingQueue(PartitionQueue):
    """Gives no batch a sequence beyond `sequence_max`: it waits for the next epoch instead."""

    sequence_max = LAST_SEQUENCE

    def __init__(self, where: TopicPartition, first_sequence: int = 0) -> None:
        super().__init__(where, first_sequence)
        self._numbers_left = self.sequence_max + 1 - first_sequence

    def sendable(self, identity: ProducerIdentity, now_ms: int) -> OutgoingBatch | None:
        """Return the batch that may be sent now; one that would exceed the maximum is refused
        before it is sent.
        """
        batch = super().sendable(identity, now_ms)
        if (
            batch is not None
            and not batch.attempts
            and self.identity in (identity, None)
            and len(batch.records) > self._numbers_left
        ):
            self.refuse(batch)
            return None
        return batch

    def send(self, batch: OutgoingBatch, identity: ProducerIdentity) -> None:
        """Mark a batch as in flight, and count its sequences."""
        begins = batch.identity is None
        if begins and self.identity not in (identity, None):
            self._numbers_left = self.sequence_max + 1
        super().send(batch, identity)
        self._numbers_left -= len(batch.records) if begins else 0

    def restart_sequences(self) -> None:
        """Restart at sequence 0 with the next identity."""
        super().restart_sequences()
        self._numbers_left = self.sequence_max + 1


class EndingProducer(IdempotentProducer):
    """An idempotent producer that bumps its epoch for all partitions at the end of the sequence
    numbers.
    """

    queue_class = EndingQueue

    def _go_on(self, now_ms: int) -> None:
        super()._go_on(now_ms)
        if any(queue.needs_new_identity() for queue in self._queues.values()):
            super()._go_on(now_ms)


class EndingSender(GatedProducer):
    """The sender of such a transactional producer: records that would exceed the maximum fail."""

    queue_class = EndingQueue

    def _go_on(self, now_ms: int) -> None:
        super()._go_on(now_ms)
        self._renew_identities()


class EndingTransactionalProducer(TransactionalProducer):
    """Aborts the transaction that would exceed the maximum, and bumps the epoch for the next
    one.
    """

    sender_class = EndingSender

"""The state machine of an idempotent producer with acks=all: what is sent next, and the result of
each record.

Inputs are events, outputs are effects. All decisions about identities, sequences, order and retries
are here; the caller does the I/O.
Source: KIP-98, KIP-360, org.apache.kafka.clients.producer.internals.{Sender, TransactionManager}.
"""

from typing import assert_never

from kraftsim.clients.rules_producer_steps import (
    MAX_PRODUCER_EPOCH,
    NO_OFFSET,
    BatchState,
    FlushAsked,
    IdentityTaken,
    MetadataArrived,
    MetadataLost,
    OutgoingBatch,
    OutgoingRecord,
    PartitionAnswer,
    PartitionQueue,
    ProduceAnswered,
    ProduceLost,
    ProducerEffect,
    ProducerIdArrived,
    ProducerIdentity,
    ProducerIdLost,
    ProducerInput,
    ProducerSettings,
    RecordDelivered,
    RecordGiven,
    RecordGivenUp,
    SendInitProducerId,
    SendMetadataRequest,
    SendProduce,
    Started,
    TimePassed,
    TopicPartition,
    WindowAnnounced,
)
from protocol.errors import ErrorCode

NEVER_MS = 2**62
NOT_IN_SEQUENCE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
"""The broker expects another sequence.

With an earlier batch unresolved this may be temporary; otherwise the log has lost earlier records.
"""


class IdempotentProducer:
    """One producer.

    Call `step` for every input and execute its effects in order; call it again no later than
    `wake_at_ms`.
    """

    queue_class = PartitionQueue

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._identity: ProducerIdentity | None = None
        self._asks_for_identity = False
        self._ask_identity_at_ms: int | None = None
        self._fatal: tuple[ErrorCode, str] | None = None
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._asks_for_metadata = False
        self._metadata_is_stale = True
        self._ask_metadata_at_ms = 0
        self._requests: dict[int, SendProduce] = {}
        self._next_request_id = 0
        self._record_count = 0
        self._now_ms = 0
        self._effects: list[ProducerEffect] = []

    @property
    def identity(self) -> ProducerIdentity | None:
        """The producer id and epoch of new batches; None before the first InitProducerId
        response.
        """
        return self._identity

    @property
    def refusal(self) -> ErrorCode | None:
        """The fatal error of InitProducerId, if any."""
        return None if self._fatal is None else self._fatal[0]

    @property
    def record_count(self) -> int:
        """The number of records that are neither acknowledged nor failed."""
        return self._record_count

    @property
    def wake_at_ms(self) -> int | None:
        """When TimePassed is due without other inputs; None: never."""
        earliest = None
        for moment in (self._ask_identity_at_ms, self._metadata_moment(), *self._queue_moments()):
            if (
                moment is not None
                and moment > self._now_ms
                and (earliest is None or moment < earliest)
            ):
                earliest = moment
        return earliest

    def step(self, happened: ProducerInput, now_ms: int) -> list[ProducerEffect]:
        """Handle an input and return the effects, in order."""
        self._effects, self._now_ms = [], now_ms
        match happened:
            case Started():
                self._ask_identity()
            case RecordGiven(record):
                if not self._give(record, now_ms):
                    return []
            case FlushAsked():
                for queue in self._queues.values():
                    queue.close_open_batch()
            case TimePassed():
                pass
            case MetadataArrived(leaders):
                self._asks_for_metadata, self._metadata_is_stale = False, False
                self._leaders = dict(leaders)
                self._ask_metadata_at_ms = now_ms + self._settings.retry_backoff_ms
            case MetadataLost():
                self._asks_for_metadata = False
                self._ask_metadata_at_ms = now_ms + self._settings.retry_backoff_ms
            case ProducerIdArrived(producer_id, producer_epoch):
                self._take_identity(ProducerIdentity(producer_id, producer_epoch))
            case ProducerIdLost(error_code):
                self._lose_identity(error_code, now_ms)
            case ProduceAnswered(request_id, answers):
                self._settle_request(request_id, answers, now_ms)
            case ProduceLost(request_id):
                self._lose_request(request_id, now_ms)
            case WindowAnnounced():
                self._on_window(happened)
            case _:
                assert_never(happened)
        self._go_on(now_ms)
        effects, self._effects = self._effects, []
        return effects

    # Identity
    # ----------------------------------------------------------------------------------------------

    def _ask_identity(self) -> None:
        if not self._asks_for_identity:
            self._asks_for_identity, self._ask_identity_at_ms = True, None
            self._effects.append(SendInitProducerId())

    def _take_identity(self, identity: ProducerIdentity) -> None:
        assert self._asks_for_identity, "an identity without a request"
        self._asks_for_identity = False
        self._identity = identity
        self._effects.append(IdentityTaken(identity))

    def _lose_identity(self, error_code: ErrorCode | None, now_ms: int) -> None:
        self._asks_for_identity = False
        if error_code is None or error_code.retriable:
            self._ask_identity_at_ms = now_ms + self._settings.retry_backoff_ms
        else:
            self._fatal = (error_code, "InitProducerId was refused")

    def _renew_identities(self) -> None:
        """Restart partitions with a lost sequence under the next epoch; with epochs exhausted,
        under a new producer id (KIP-360).
        """
        for queue in self._queues.values():
            if not queue.has_lost_sequence or not queue.needs_new_identity():
                continue
            old = queue.identity
            queue.restart_sequences()
            if self._identity is None or self._identity != old:
                continue
            if self._identity.producer_epoch < MAX_PRODUCER_EPOCH:
                self._identity = ProducerIdentity(
                    self._identity.producer_id, self._identity.producer_epoch + 1
                )
                self._effects.append(IdentityTaken(self._identity))
            else:
                self._identity = None
                self._ask_identity()

    # Records
    # ----------------------------------------------------------------------------------------------

    def _give(self, record: OutgoingRecord, now_ms: int) -> bool:
        """Add a record; return whether something can be sent now.

        Mostly it only joins an open batch.
        """
        self._record_count += 1
        queue = self._queues.get(record.where)
        is_new = queue is None
        if queue is None:
            queue = self._queues[record.where] = self.queue_class(
                record.where, self._settings.first_sequence
            )
            self._metadata_is_stale = self._metadata_is_stale or record.where not in self._leaders
        has_closed = queue.add(record, self._settings.batch_size_bytes, now_ms)
        return has_closed or is_new or self._settings.linger_ms == 0 or self._fatal is not None

    def _settle_request(
        self, request_id: int, answers: tuple[PartitionAnswer, ...], now_ms: int
    ) -> None:
        said = {answer.where: answer for answer in answers}
        for batch in self._requests.pop(request_id).batches:
            answer = said.get(batch.where)
            if answer is None:
                self._queues[batch.where].retry(batch, now_ms + self._settings.retry_backoff_ms)
            else:
                self._settle_batch(batch, answer, now_ms)

    def _settle_batch(self, batch: OutgoingBatch, answer: PartitionAnswer, now_ms: int) -> None:
        queue, error = self._queues[batch.where], answer.error_code
        assert batch.state is BatchState.IN_FLIGHT, "a response is for a batch in flight"
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            queue.remove(batch, sequence_is_used=True)
            if error is ErrorCode.NONE:
                self._deliver(batch, answer.base_offset)
            else:
                self._deliver_duplicate(batch)
        elif error in NOT_IN_SEQUENCE:
            if queue.is_first_open(batch):
                queue.refuse(batch)
            else:
                queue.retry(batch, now_ms)
        elif error.retriable:
            self._metadata_is_stale = self._metadata_is_stale or error.refreshes_metadata
            queue.retry(batch, now_ms + self._settings.retry_backoff_ms)
        else:
            queue.remove(batch, sequence_is_used=False)
            self._give_up(batch, error, "the broker refused the batch")

    def _lose_request(self, request_id: int, now_ms: int) -> None:
        self._metadata_is_stale = True
        for batch in self._requests.pop(request_id).batches:
            self._queues[batch.where].retry(batch, now_ms + self._settings.retry_backoff_ms)

    def _deliver(self, batch: OutgoingBatch, base_offset: int) -> None:
        self._record_count -= len(batch.records)
        for index, record in enumerate(batch.records):
            self._effects.append(
                RecordDelivered(
                    record=record, offset=NO_OFFSET if base_offset < 0 else base_offset + index
                )
            )

    def _deliver_duplicate(self, batch: OutgoingBatch) -> None:
        self._record_count -= len(batch.records)
        for record in batch.records:
            delivered = RecordDelivered(
                record=record,
                offset=NO_OFFSET,
                duplicate_of=batch.identity,
                base_sequence=batch.base_sequence,
            )
            self._effects.append(delivered)

    def _give_up(self, batch: OutgoingBatch, error_code: ErrorCode, reason: str) -> None:
        self._record_count -= len(batch.records)
        for record in batch.records:
            self._effects.append(RecordGivenUp(record=record, error_code=error_code, reason=reason))

    # Next actions
    # ----------------------------------------------------------------------------------------------

    def _go_on(self, now_ms: int) -> None:
        self._expire(now_ms)
        self._renew_identities()
        if self._ask_identity_at_ms is not None and self._ask_identity_at_ms <= now_ms:
            self._ask_identity()
        for queue in self._queues.values():
            if (
                queue.gathering is not None
                and queue.gathering.created_ms + self._settings.linger_ms <= now_ms
            ):
                queue.close_open_batch()
        if self._identity is not None:
            self._send_all(self._identity, now_ms)
        moment = self._metadata_moment()
        if moment is not None and moment <= now_ms:
            self._asks_for_metadata = True
            self._effects.append(
                SendMetadataRequest(tuple(dict.fromkeys(where.topic for where in self._queues)))
            )

    def _expire(self, now_ms: int) -> None:
        """Fail batches older than delivery.timeout.ms, or all waiting ones after a fatal error of
        InitProducerId.
        """
        error, reason = self._fatal or (
            ErrorCode.REQUEST_TIMED_OUT,
            "not acknowledged within delivery.timeout.ms",
        )
        created_before_ms = NEVER_MS if self._fatal else now_ms - self._settings.delivery_timeout_ms
        for queue in self._queues.values():
            if queue.is_younger_than(created_before_ms):
                continue
            for batch in queue.overdue(created_before_ms):
                queue.remove(batch, sequence_is_used=False)
                self._give_up(batch, error, reason)

    def _send_all(self, identity: ProducerIdentity, now_ms: int) -> None:
        asked = {self._leaders.get(queue.where) for queue in self._queues.values() if queue.batches}
        """Those that lead a partition with batches: for membership only."""
        if not asked:
            return
        in_flight: dict[int, int] = {}
        for request in self._requests.values():
            in_flight[request.broker_id] = in_flight.get(request.broker_id, 0) + 1
        for broker_id in dict.fromkeys(self._leaders.values()):
            if broker_id not in asked:
                continue
            while in_flight.get(broker_id, 0) < self._requests_max(broker_id):
                batches = self._next_batches(broker_id, identity, now_ms)
                if not batches:
                    break
                request = SendProduce(
                    request_id=self._next_request_id, broker_id=broker_id, batches=batches
                )
                self._next_request_id += 1
                self._requests[request.request_id] = request
                in_flight[broker_id] = in_flight.get(broker_id, 0) + 1
                self._effects.append(request)

    def _next_batches(
        self, broker_id: int, identity: ProducerIdentity, now_ms: int
    ) -> tuple[OutgoingBatch, ...]:
        """Take at most one batch per partition led by the broker, up to max.request.size, and mark
        them as in flight.
        """
        chosen: list[OutgoingBatch] = []
        room_bytes = self._settings.max_request_size_bytes
        for queue in self._queues.values():
            if (
                not queue.batches
                or self._leaders.get(queue.where) != broker_id
                or not self._may_send_to(queue.where)
            ):
                continue
            batch = queue.sendable(identity, now_ms)
            if batch is not None and (batch.size_bytes <= room_bytes or not chosen):
                queue.send(batch, identity)
                chosen.append(batch)
                room_bytes -= batch.size_bytes
        return tuple(chosen)

    def _on_window(self, announced: WindowAnnounced) -> None:
        """Handle an announced window: ignored by the shipped producer."""

    def _requests_max(self, broker_id: int) -> int:
        """Return the maximum number of in-flight requests per broker."""
        return self._settings.max_in_flight_requests_per_connection

    def _may_send_to(self, where: TopicPartition) -> bool:
        """Return whether a partition may be written to: always, without transactions."""
        return True

    # Timers
    # ----------------------------------------------------------------------------------------------

    def _metadata_moment(self) -> int | None:
        """When metadata has to be requested: only while records wait for unknown leaders."""
        if self._asks_for_metadata or not self._record_count:
            return None
        if self._metadata_is_stale:
            return self._ask_metadata_at_ms
        for where, queue in self._queues.items():
            if queue.batches and where not in self._leaders:
                return self._ask_metadata_at_ms
        return None

    def _queue_moments(self) -> list[int]:
        """When linger, retry backoff or delivery timeout end.

        Times in the past do not count: `step` has handled them.
        """
        moments = []
        for queue in self._queues.values():
            if queue.gathering is not None:
                moments.append(queue.gathering.created_ms + self._settings.linger_ms)
            if queue.batches:
                moments.append(queue.batches[0].created_ms + self._settings.delivery_timeout_ms + 1)
            for batch in queue.batches:
                if batch.state is BatchState.READY:
                    moments.append(batch.not_before_ms)
                    break
        return moments

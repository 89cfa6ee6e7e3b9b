"""Producers as their frames show them: the records that they sent, what was acknowledged, and what
became of their transactions.

Every claim must hold for a correct client of a correct cluster, whatever was lost on the way:

- A record of an idempotent producer is sent once per sequence number. A batch that is sent again,
  or in parts, has the same records; another record with a used sequence number, or the same one
  under another epoch, is a new send. Without a producer id every attempt counts: each may be in the
  log.
- A record is acknowledged if the response to acks=all says so. With acks=1 a leader may lose it.
- A record has failed if the error can neither be retried nor answered with another batch.
- A transaction is committed or aborted if EndTxn was answered without error. If the producer never
  learned it, the outcome is unknown.

Source: KIP-98, KIP-360, KIP-447, KIP-890;
org.apache.kafka.clients.producer.internals.{Sender, TransactionManager}.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kraftsim.clients.events import (
    ClientInitialized,
    ClientStarted,
    RecordAcknowledged,
    RecordFailed,
    RecordReportedDuplicate,
    RecordSent,
)
from kraftsim.clients.events_transactions import (
    TransactionalIdTaken,
    TransactionBegun,
    TransactionEndAsked,
    TransactionEnded,
    TransactionErred,
    TransactionOffsetAccepted,
    TransactionOffsetSent,
)
from kraftsim.core.record_keys import record_key
from kraftsim.events.event import Event
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k00_produce import ACKS_ALL, ProduceRequest, ProduceResponse
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.k28_txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from protocol.records.batches import NO_PRODUCER_ID, SEQUENCES, RecordBatch, split_batches

NO_OFFSET = -1
COMMITTED, ABORTED, UNKNOWN_OUTCOME = "committed", "aborted", "unknown"
SENT_AGAIN_AFTER = (
    ErrorCode.MESSAGE_TOO_LARGE,  # in smaller batches
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,  # after the batches before it
    ErrorCode.UNKNOWN_PRODUCER_ID,  # under a new epoch
)
"""Errors that are not retriable, and after which some producers send the records again."""
SKIPPED = ErrorCode.OPERATION_NOT_ATTEMPTED
FATAL = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
)
"""After these errors a transactional producer can only be closed, except for a wrong epoch in
Produce, after which it may abort.
"""
Emit = Callable[[Event], object]
NameOf = Callable[[str, bytes], str | None]
"""The name and the id of a topic in a message -> its name; None if the id is unknown."""
Identity = tuple[int, int]
"""Producer id and epoch."""
Log = tuple[int, str, int]
"""Producer epoch, topic, partition."""


class ObservedNames:
    """The names of the clients of a process: HOST/CLIENT_ID, or HOST/TRANSACTIONAL_ID.

    Each producer with an id has a name of its own, with #2, #3 if it was taken before: invariants
    find the transaction of a record by the name of its client. Everything else that uses a client
    id shares one name. Names are not used again when the process restarts.
    """

    def __init__(self, host: str, emit: Emit) -> None:
        self._host = host
        self._emit = emit
        self._taken: dict[str, int] = {}
        self._shared: dict[str, str] = {}
        self.library = "unknown"
        """The software of the client whose frame is being read, as far as it said."""

    def own(self, client_id: str) -> str:
        """Return a new name."""
        base = f"{self._host}/{client_id}" if client_id else self._host
        number = self._taken[base] = self._taken.get(base, 0) + 1
        name = base if number == 1 else f"{base}#{number}"
        self._emit(ClientStarted(client_id=name, library=self.library))
        return name

    def shared(self, client_id: str) -> str:
        """Return the name of the clients with this client id that are no producers with an id."""
        name = self._shared.get(client_id)
        if name is None:
            name = self._shared[client_id] = self.own(client_id)
        return name

    def forget(self) -> None:
        """The process has ended."""
        self._shared.clear()


@dataclass(slots=True, eq=False)
class ObservedTransaction:
    """One transaction of a producer, from its first request to the answer of EndTxn."""

    name: str
    identity: Identity
    end_asked: bool | None = None
    """Whether EndTxn was sent: True to commit, False to abort."""
    offsets: dict[tuple[str, str, int, int], bool] = field(default_factory=dict)
    """(group, topic, partition, offset) -> whether the coordinator accepted it."""
    errors: dict[ErrorCode, None] = field(default_factory=dict)
    """The errors that the producer received."""


@dataclass(slots=True, eq=False)
class ObservedProducer:
    """One producer. `transaction` is the last one, `is_open` whether it has not ended yet."""

    client_id: str
    transactional_id: str
    identity: Identity
    transaction: ObservedTransaction | None = None
    transaction_count: int = 0
    is_open: bool = False
    sent: dict[Log, dict[int, tuple[str, str]]] = field(default_factory=dict)
    """Sequence number -> key and transaction of each record that was not acknowledged yet."""


@dataclass(slots=True, eq=False)
class SentBatch:
    """A batch whose answer is awaited."""

    client_id: str
    producer: ObservedProducer | None
    transaction: str
    topic: str
    partition: int
    keys: list[str]
    identity: Identity
    base_sequence: int
    is_acknowledged_by_all: bool


class ObservedProducers:
    """All producers of a process."""

    def __init__(self, names: ObservedNames, emit: Emit, name_of: NameOf) -> None:
        self._names = names
        self._emit = emit
        self._name_of = name_of
        self._producers: dict[Identity, ObservedProducer] = {}
        self._by_id: dict[int, ObservedProducer] = {}
        """The last producer of each producer id: one without transactions bumps its epoch
        itself.
        """

    def forget(self) -> None:
        """The process has ended: no open transaction will hear its outcome."""
        for producer in dict.fromkeys(self._producers.values()):
            self._give_up(producer, ErrorCode.NONE)
        self._producers.clear()
        self._by_id.clear()

    # Producer ids
    # ----------------------------------------------------------------------------------------------

    def initialized(
        self, request: InitProducerIdRequest, response: InitProducerIdResponse, client_id: str
    ) -> None:
        """A producer has an id and an epoch, new ones or the next epoch of its own."""
        if response.error_code != ErrorCode.NONE:
            return
        identity = (response.producer_id, response.producer_epoch)
        transactional_id = request.transactional_id or ""
        producer = self._producers.get((request.producer_id, request.producer_epoch))
        if producer is None or producer.transactional_id != transactional_id:
            name = self._names.own(transactional_id or client_id)
            producer = ObservedProducer(name, transactional_id, identity)
        else:
            self._give_up(producer, ErrorCode.NONE)
        if transactional_id:
            self._emit(
                TransactionalIdTaken(
                    client_id=producer.client_id,
                    transactional_id=transactional_id,
                    producer_id=identity[0],
                    producer_epoch=identity[1],
                )
            )
        self._use(producer, identity)

    def _use(self, producer: ObservedProducer, identity: Identity) -> None:
        producer.identity = identity
        producer.sent = {}
        self._producers[identity] = self._by_id[identity[0]] = producer
        self._emit(
            ClientInitialized(
                client_id=producer.client_id, producer_id=identity[0], producer_epoch=identity[1]
            )
        )

    def _producer(
        self, identity: Identity, transactional_id: str, client_id: str
    ) -> ObservedProducer:
        """Return the producer of a batch or request; a new one if its id was not seen before."""
        found = self._producers.get(identity)
        if found is None and not transactional_id:
            found = self._by_id.get(identity[0])
        if found is None:
            name = self._names.own(transactional_id or client_id)
            found = ObservedProducer(name, transactional_id, identity)
            self._by_id[identity[0]] = found
        self._producers[identity] = found
        return found

    # Records
    # ----------------------------------------------------------------------------------------------

    def produced(
        self, request: ProduceRequest, client_id: str, *, is_copy: bool = False
    ) -> list[SentBatch]:
        """Process a Produce request; return its batches.

        Of a copy that a fault has made of a request only what may be written twice counts.
        """
        batches = []
        for topic in request.topic_data:
            name = self._name_of(topic.name, topic.topic_id)
            if name is None:
                continue
            for partition in topic.partition_data:
                try:
                    found = list(split_batches(partition.records or b""))
                    keys = [[record_key(r.key, r.value) for r in each.records()] for each in found]
                except MalformedMessage:
                    continue  # the leader refuses what cannot be read
                if is_copy:
                    pairs = zip(found, keys, strict=True)
                    for each, own in pairs:
                        if each.producer_id == NO_PRODUCER_ID:
                            shared = self._names.shared(client_id)
                            self._emit_sent(shared, name, partition.index, own, "")
                elif len(found) == 1:
                    batches.append(
                        self._sent(request, client_id, name, partition.index, found[0], keys[0])
                    )
        return batches

    def _sent(
        self,
        request: ProduceRequest,
        client_id: str,
        topic: str,
        partition: int,
        batch: RecordBatch,
        keys: list[str],
    ) -> SentBatch:
        sent = SentBatch(
            client_id="",
            producer=None,
            transaction="",
            topic=topic,
            partition=partition,
            keys=keys,
            identity=(batch.producer_id, batch.producer_epoch),
            base_sequence=batch.base_sequence,
            is_acknowledged_by_all=request.acks == ACKS_ALL,
        )
        if batch.producer_id == NO_PRODUCER_ID:
            sent.client_id = self._names.shared(client_id)
            self._emit_sent(sent.client_id, topic, partition, keys, "")
            return sent
        transactional_id = (request.transactional_id or "") if batch.is_transactional else ""
        producer = self._producer(sent.identity, transactional_id, client_id)
        sent.producer, sent.client_id = producer, producer.client_id
        waiting = producer.sent.setdefault((batch.producer_epoch, topic, partition), {})
        sequences = [(batch.base_sequence + index) % SEQUENCES for index in range(len(keys))]
        new = [
            (sequence, key)
            for sequence, key in zip(sequences, keys, strict=True)
            if sequence not in waiting or waiting[sequence][0] != key
        ]
        if new and batch.is_transactional:
            sent.transaction = self._begin(producer, sent.identity).name
        elif not new:
            sent.transaction = waiting[sequences[0]][1] if sequences else ""
        self._emit_sent(
            producer.client_id, topic, partition, [key for _, key in new], sent.transaction
        )
        for sequence, key in new:
            waiting[sequence] = (key, sent.transaction)
        return sent

    def _emit_sent(
        self, client_id: str, topic: str, partition: int, keys: Sequence[str], transaction: str
    ) -> None:
        for key in keys:
            self._emit(
                RecordSent(
                    client_id=client_id,
                    topic=topic,
                    partition=partition,
                    record_key=key,
                    transaction=transaction,
                )
            )

    def answered(self, batches: Sequence[SentBatch], response: ProduceResponse) -> None:
        """Process the results of the batches of a request."""
        waiting = {(batch.topic, batch.partition): batch for batch in batches}
        for topic in response.responses:
            name = self._name_of(topic.name, topic.topic_id)
            for partition in topic.partition_responses:
                batch = waiting.pop((name or "", partition.index), None)
                if batch is None:
                    continue
                error = error_of(partition.error_code)
                if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    offset = NO_OFFSET if error else partition.base_offset
                    self._acknowledged(batch, offset, is_duplicate=error is not ErrorCode.NONE)
                elif not error.retriable and error not in SENT_AGAIN_AFTER:
                    self._failed(batch, error)

    def _acknowledged(self, batch: SentBatch, base_offset: int, *, is_duplicate: bool) -> None:
        producer = batch.producer
        if producer is not None:
            waiting = producer.sent.get((batch.identity[1], batch.topic, batch.partition), {})
            for index in range(len(batch.keys)):
                waiting.pop((batch.base_sequence + index) % SEQUENCES, None)
            last = producer.transaction
            if batch.transaction and (last is None or last.name != batch.transaction):
                return  # a later transaction may have sent the same keys since
        if not batch.is_acknowledged_by_all:
            return
        for index, key in enumerate(batch.keys):
            if is_duplicate:
                self._emit(
                    RecordReportedDuplicate(
                        client_id=batch.client_id,
                        topic=batch.topic,
                        partition=batch.partition,
                        record_key=key,
                        producer_id=batch.identity[0],
                        producer_epoch=batch.identity[1],
                        base_sequence=batch.base_sequence,
                    )
                )
            self._emit(
                RecordAcknowledged(
                    client_id=batch.client_id,
                    topic=batch.topic,
                    partition=batch.partition,
                    record_key=key,
                    offset=NO_OFFSET if base_offset < 0 else base_offset + index,
                )
            )

    def _failed(self, batch: SentBatch, error: ErrorCode) -> None:
        if batch.transaction and batch.producer is not None:
            is_fatal = error in FATAL and error is not ErrorCode.INVALID_PRODUCER_EPOCH
            self._err(batch.producer, ApiKey.PRODUCE, error, is_fatal=is_fatal)
        for key in batch.keys:
            self._emit(
                RecordFailed(
                    client_id=batch.client_id,
                    topic=batch.topic,
                    partition=batch.partition,
                    record_key=key,
                    error_code=int(error),
                    reason=f"the leader answered {error.name}",
                )
            )

    # Transactions
    # ----------------------------------------------------------------------------------------------

    def partitions_added(self, request: AddPartitionsToTxnRequest, client_id: str) -> None:
        """A producer adds partitions to its transaction, which begins with the first of them."""
        if request.v3_and_below_transactional_id:
            identity = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
            producer = self._producer(identity, request.v3_and_below_transactional_id, client_id)
            self._begin(producer, identity)

    def partitions_answered(
        self, request: AddPartitionsToTxnRequest, response: AddPartitionsToTxnResponse
    ) -> None:
        """Process the answer."""
        identity = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        self._take_errors(
            identity,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            (
                partition.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            ),
        )

    def offsets_added(self, request: AddOffsetsToTxnRequest, client_id: str) -> None:
        """A producer adds a group to its transaction."""
        identity = (request.producer_id, request.producer_epoch)
        self._begin(self._producer(identity, request.transactional_id, client_id), identity)

    def offsets_added_answered(
        self, request: AddOffsetsToTxnRequest, response: AddOffsetsToTxnResponse
    ) -> None:
        """Process the answer."""
        identity = (request.producer_id, request.producer_epoch)
        self._take_errors(identity, ApiKey.ADD_OFFSETS_TO_TXN, (response.error_code,))

    def offsets_sent(self, request: TxnOffsetCommitRequest, client_id: str) -> None:
        """A producer commits offsets of a group in its transaction."""
        identity = (request.producer_id, request.producer_epoch)
        producer = self._producer(identity, request.transactional_id, client_id)
        transaction = self._begin(producer, identity)
        for topic, partition, offset in self._offsets_of(request):
            known = (request.group_id, topic, partition, offset)
            if known in transaction.offsets:
                continue
            transaction.offsets[known] = False
            self._emit(
                TransactionOffsetSent(
                    client_id=producer.client_id,
                    transaction=transaction.name,
                    producer_id=identity[0],
                    producer_epoch=identity[1],
                    group_id=request.group_id,
                    generation_id=request.generation_id_or_member_epoch,
                    topic=topic,
                    partition=partition,
                    offset=offset,
                )
            )

    def offsets_answered(
        self, request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse
    ) -> None:
        """Process the answer: which offsets are pending now."""
        identity = (request.producer_id, request.producer_epoch)
        producer = self._producers.get(identity)
        if producer is None or producer.transaction is None:
            return
        errors = {
            (self._name_of(topic.name, topic.topic_id), partition.partition_index): (
                partition.error_code
            )
            for topic in response.topics
            for partition in topic.partitions
        }
        transaction = producer.transaction
        for topic, partition, offset in self._offsets_of(request):
            known = (request.group_id, topic, partition, offset)
            if (
                errors.get((topic, partition)) == ErrorCode.NONE
                and transaction.offsets.get(known) is False
            ):
                transaction.offsets[known] = True
                self._emit(
                    TransactionOffsetAccepted(
                        client_id=producer.client_id,
                        transaction=transaction.name,
                        producer_id=identity[0],
                        producer_epoch=identity[1],
                        group_id=request.group_id,
                        topic=topic,
                        partition=partition,
                        offset=offset,
                    )
                )
        self._take_errors(identity, ApiKey.TXN_OFFSET_COMMIT, errors.values())

    def _offsets_of(self, request: TxnOffsetCommitRequest) -> Iterator[tuple[str, int, int]]:
        for topic in request.topics:
            name = self._name_of(topic.name, topic.topic_id)
            for partition in topic.partitions if name is not None else ():
                yield name or "", partition.partition_index, partition.committed_offset

    def end_asked(self, request: EndTxnRequest) -> None:
        """A producer commits or aborts: from here on a read_committed reader may see the
        transaction.
        """
        producer = self._producers.get((request.producer_id, request.producer_epoch))
        if producer is None or producer.transaction is None or not producer.is_open:
            return
        producer.transaction.identity = (request.producer_id, request.producer_epoch)
        if producer.transaction.end_asked is not request.committed:
            producer.transaction.end_asked = request.committed
            self._emit(
                TransactionEndAsked(
                    client_id=producer.client_id,
                    transactional_id=producer.transactional_id,
                    transaction=producer.transaction.name,
                    is_commit=request.committed,
                )
            )

    def end_answered(self, request: EndTxnRequest, response: EndTxnResponse) -> None:
        """Process the answer: the transaction is over, or goes on."""
        identity = (request.producer_id, request.producer_epoch)
        producer = self._producers.get(identity)
        if producer is None:
            return
        error = error_of(response.error_code)
        if error is ErrorCode.NONE:
            self._end(producer, COMMITTED if request.committed else ABORTED, error)
            next_identity = (response.producer_id, response.producer_epoch)
            if next_identity[0] != NO_PRODUCER_ID and next_identity != producer.identity:
                self._use(producer, next_identity)
        elif not error.retriable:
            self._err(producer, ApiKey.END_TXN, error, is_fatal=error in FATAL)
            if error is not ErrorCode.TRANSACTION_ABORTABLE:
                self._give_up(producer, error)

    def _begin(self, producer: ObservedProducer, identity: Identity) -> ObservedTransaction:
        """Return the open transaction; begin the next one if there is none, or if its end was
        requested.
        """
        transaction = producer.transaction
        if transaction is not None and producer.is_open:
            if transaction.end_asked is None:
                return transaction
            self._give_up(producer, ErrorCode.NONE)
        producer.transaction_count += 1
        transaction = producer.transaction = ObservedTransaction(
            f"{producer.client_id}/{producer.transaction_count}", identity
        )
        producer.is_open = True
        self._emit(
            TransactionBegun(
                client_id=producer.client_id,
                transactional_id=producer.transactional_id,
                transaction=transaction.name,
                producer_id=identity[0],
                producer_epoch=identity[1],
            )
        )
        return transaction

    def _give_up(self, producer: ObservedProducer, error: ErrorCode) -> None:
        self._end(producer, UNKNOWN_OUTCOME, error)

    def _end(self, producer: ObservedProducer, outcome: str, error: ErrorCode) -> None:
        transaction = producer.transaction
        if transaction is None or not producer.is_open:
            return
        producer.is_open = False
        self._emit(
            TransactionEnded(
                client_id=producer.client_id,
                transactional_id=producer.transactional_id,
                transaction=transaction.name,
                producer_id=transaction.identity[0],
                producer_epoch=transaction.identity[1],
                outcome=outcome,
                error_code=int(error),
            )
        )

    def _take_errors(self, identity: Identity, api: ApiKey, codes: Iterable[int]) -> None:
        producer = self._producers.get(identity)
        for code in codes:
            error = error_of(code)
            if producer is not None and error not in (ErrorCode.NONE, SKIPPED):
                if not error.retriable:
                    self._err(producer, api, error, is_fatal=error in FATAL)
                return

    def _err(
        self, producer: ObservedProducer, api: ApiKey, error: ErrorCode, *, is_fatal: bool
    ) -> None:
        """Emit an error, once for each transaction."""
        transaction = producer.transaction
        if transaction is not None and error in transaction.errors:
            return
        if transaction is not None:
            transaction.errors[error] = None
        self._emit(
            TransactionErred(
                client_id=producer.client_id,
                transactional_id=producer.transactional_id,
                transaction="" if transaction is None else transaction.name,
                error_code=int(error),
                is_fatal=is_fatal,
                api=api.name,
            )
        )


def error_of(code: int) -> ErrorCode:
    """Return the error; UNKNOWN_SERVER_ERROR for a code that this release does not know."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR

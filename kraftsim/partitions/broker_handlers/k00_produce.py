"""Produce: append a batch to each named partition, and return the result of each.

Partitions are independent: a rejected batch next to an appended one has its own error. With acks=0
there is no response; the only sign of an error is that the connection is closed.

Source: kafka.server.KafkaApis.handleProduceRequest, kafka.server.ReplicaManager.appendRecords,
ProduceRequest.validateRecords, KIP-951; error codes verified against Apache Kafka 3.9.1.
"""

from typing import Protocol, TypeAlias, cast

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_topic_names import ADMIN_CLIENT_ID, is_internal
from kraftsim.partitions.events import ProduceRefused
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log_directory import PartitionKey
from kraftsim.partitions.record_validation import (
    FIRST_VERSION_OF_FORMAT_2,
    ValidatedRecords,
    ValidatingBroker,
    must_validate_aside,
    topic_name,
    validate_records,
    validated_by,
)
from kraftsim.partitions.rules_append import (
    ALL_REPLICAS,
    AppendDecision,
    NothingToAppend,
    UncheckedRecords,
    client_batch,
)
from kraftsim.producer_state.rules_entries import Duplicate
from kraftsim.releases.traits import APPENDS_BY_TOPIC_ID
from kraftsim.server.call import NO_ANSWER, Answer, Call, Closing, Deferred, Handler, completed_by
from kraftsim.server.config_keys import ANNOUNCED_WINDOW, BY_PRODUCE
from kraftsim.server.large_requests import or_refused
from kraftsim.server.purgatory import Purgatory
from kraftsim.server.serving_broker import AddressBroker, ConfiguredBroker, ReleaseBroker
from kraftsim.server.slices import ENTRIES_PER_SLICE, Slices
from kraftsim.transactions.verification import ProduceVerification, Verified, Verifier
from protocol.announced_window import FIRST_VERSION as FIRST_VERSION_WITH_WINDOW
from protocol.announced_window import announce_window
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    ACKS_NONE,
    NO_OFFSET,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.records.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, RecordBatch

FIRST_VERSION_WITH_RECORD_ERRORS = 8
FIRST_VERSION_WITH_LEADER = 10
NO_TIMESTAMP = -1
TRANSACTIONAL_BIT = 0x10
MAGIC_POSITION, ATTRIBUTES_LOW_BYTE, FIRST_MAGIC_WITH_TRANSACTIONS = 16, 22, 2
"""Their positions in a batch, and the first message format with transactions."""
ERRORS_BEFORE_THE_LOG = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors that are returned without a log start offset."""


class ProducingBroker(ValidatingBroker, ConfiguredBroker, AddressBroker, ReleaseBroker, Protocol):
    """A broker that appends what producers send."""

    @property
    def verifier(self) -> Verifier:
        """Asks transaction coordinators whether partitions are in a transaction."""
        ...

    @property
    def produces(self) -> Purgatory[PartitionKey]:
        """Requests that wait for the in-sync replicas."""
        ...

    @property
    def fetches(self) -> Purgatory[PartitionKey]:
        """Requests that wait for records."""
        ...


KnownTopic: TypeAlias = tuple[str | None, bytes | None]
"""The name of a topic, None for an unknown id, and its id; None if it is unknown, or if the release
appends to whatever topic has the name by then.
"""


class Unreplicated:
    """A batch that is acknowledged once everything below `required_offset` is replicated."""

    __slots__ = ("answer", "hosted", "required_offset")

    def __init__(
        self, hosted: HostedPartition, required_offset: int, answer: PartitionProduceResponse
    ) -> None:
        self.hosted = hosted
        self.required_offset = required_offset
        self.answer = answer


class ProduceWork:
    """One Produce request: the response under construction, and the logs that must be flushed
    before it is sent.
    """

    def __init__(self, broker: ProducingBroker, call: Call, request: ProduceRequest) -> None:
        self.broker = broker
        self.version = call.api_version
        self.listener = call.listener
        self.is_admin = call.client_id == ADMIN_CLIENT_ID
        self.acks = request.acks
        self.now_ms = broker.world.clock.wall_ms()
        self.verified: Verified | None = None
        """The verification result of the batches' transaction; None if they are not transactional
        or need no verification.
        """
        self.topics: dict[tuple[str, bytes], KnownTopic] = {}
        """What the broker knew before the request waited, by how the request names a topic."""
        self.examined: ValidatedRecords = {}
        self.opened: dict[int, RecordBatch | Refusal] = {}
        """What `client_batch` returned for verification, by the identity of the row."""
        self.is_large = False
        """Whether the request has so many batches that they are appended over several iterations of
        the event loop.
        """
        self.owed: list[tuple[HostedPartition, PartitionProduceResponse]] = []
        self.unreplicated: list[Unreplicated] = []
        self.first_error = ErrorCode.NONE
        self.leader_endpoints: dict[int, NodeEndpoint] = {}
        self.response = ProduceResponse()
        announces = (
            broker.config.producer_state == ANNOUNCED_WINDOW
            and broker.config.window_carrier == BY_PRODUCE
        )
        if announces and self.version >= FIRST_VERSION_WITH_WINDOW:
            announce_window(
                self.response, broker.config.max_in_flight_sequence_number_per_connection
            )

    def known(self, topic: TopicProduceData) -> KnownTopic:
        """Return what the broker knew of a topic before the request waited, else knows now."""
        found = self.topics.get((topic.name, topic.topic_id))
        return found or _known_topic(self.broker, topic, self.version)

    def keep_known(self, request: ProduceRequest) -> None:
        """Keep what the broker knows now: the request waits, and topics may be deleted."""
        for topic in request.topic_data:
            self.topics.setdefault((topic.name, topic.topic_id), self.known(topic))

    def run(self, request: ProduceRequest) -> None:
        """Append every batch of the request."""
        for topic in request.topic_data:
            name, topic_id = self.known(topic)
            if name is None:
                unknown = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "unknown topic id")
                answers = [self._refused("", data.index, unknown) for data in topic.partition_data]
            else:
                answers = [self._append(name, topic_id, data) for data in topic.partition_data]
            self.response.responses.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=answers
                )
            )
        if self.leader_endpoints:
            self.response.node_endpoints = list(self.leader_endpoints.values())

    async def run_in_slices(self, request: ProduceRequest) -> None:
        """The same, with one slice of the batches in each iteration of the event loop."""
        whole, responses = request.topic_data, self.response.responses
        for part in SLICES.split(request):
            assert isinstance(part.body, ProduceRequest), "a slice is a request of the same API"
            self.run(part.body)
            if part.continues:
                more = responses.pop()
                responses[-1].partition_responses.extend(more.partition_responses)
            await self.broker.shell.turns.next()
        assert len(responses) == len(whole), "one response row for each topic"

    def refuse_all(self, call: Call, request: ProduceRequest, error: ErrorCode, why: str) -> Answer:
        """Reject the whole request."""
        for topic in request.topic_data:
            for data in topic.partition_data:
                self._refused(topic.name, data.index, Refusal(error, why))
        return refuse(call, error)

    def _append(
        self, topic: str, topic_id: bytes | None, data: PartitionProduceData
    ) -> PartitionProduceResponse:
        if is_internal(topic) and not self.is_admin:
            return self._refused(
                topic,
                data.index,
                Refusal(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, "clients cannot write to internal topics"
                ),
            )
        partition = self.broker.partitions.find(topic, data.index)
        if partition is None:
            return self._refused(topic, data.index, self._not_here(topic, data.index))
        if topic_id is not None and partition.topic_id != topic_id:
            # the topic was deleted and created again while the batch was verified or validated
            return self._refused(
                topic, data.index, Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "of a deleted topic")
            )
        batch = (
            validated_by(self.examined, data, partition.replica.rules)
            or self.opened.get(id(data))
            or (
                client_batch(data.records, self.version)
                if self.version >= FIRST_VERSION_OF_FORMAT_2
                else UncheckedRecords(data.records or b"")
            )
        )
        if isinstance(batch, Refusal):
            return self._refused(topic, data.index, batch)
        guard = None
        if self.verified is not None:
            refusal = self.verified.refused.get((topic, data.index))
            if refusal is not None:
                return self._refused(topic, data.index, refusal)
            guard = self.verified.guards.get((topic, data.index))
        try:
            outcome = (
                partition.append(batch, self.acks, self.now_ms, guard)
                if isinstance(batch, RecordBatch)
                else partition.append_of_any_format(batch, self.acks, self.now_ms)
            )
        except OSError as failure:
            self.broker.partitions.disk_failed(partition.log.directory, "write", failure)
            return self._refused(
                topic, data.index, Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
            )
        match outcome:
            case AppendDecision():
                self.broker.fetches.check((topic, data.index))
                append_time = (
                    NO_TIMESTAMP if outcome.append_timestamp is None else outcome.append_timestamp
                )
                return self._acknowledged(
                    partition,
                    outcome.last_offset,
                    self._appended(partition, outcome.first_offset, append_time),
                )
            case Duplicate():
                answer = self._appended(partition, outcome.first_offset, outcome.log_append_time_ms)
                answer.error_code = outcome.error
                return self._acknowledged(partition, outcome.last_offset, answer)
            case NothingToAppend():
                return self._appended(partition, NO_OFFSET, NO_TIMESTAMP)
            case Refusal():
                return self._answered(topic, data.index, outcome, partition)

    def result_of(self, each: Unreplicated) -> ErrorCode | None:
        """Return the result of a batch that must be replicated; None while it is unknown."""
        hosted = each.hosted
        if self.broker.partitions.find(hosted.topic, hosted.partition) is hosted:
            return hosted.replica.replicated(each.required_offset)
        return self._not_here(hosted.topic, hosted.partition).error

    def fail_unflushed(self) -> None:
        """Fail the batches whose partition went offline before it was flushed."""
        for partition, answer in self.owed:
            if self.broker.partitions.find(partition.topic, partition.partition) is not partition:
                answer.error_code, answer.base_offset = (
                    self._not_here(partition.topic, partition.partition).error,
                    NO_OFFSET,
                )
                self.unreplicated = [
                    each for each in self.unreplicated if each.answer is not answer
                ]

    def _acknowledged(
        self, partition: HostedPartition, last_offset: int, answer: PartitionProduceResponse
    ) -> PartitionProduceResponse:
        """Make the response wait for a flush and for the in-sync replicas, where required."""
        if partition.owes_flush:
            self.owed.append((partition, answer))
        if self.acks == ALL_REPLICAS and partition.replica.high_watermark <= last_offset:
            self.unreplicated.append(Unreplicated(partition, last_offset + 1, answer))
        return answer

    def _not_here(self, topic: str, index: int) -> Refusal:
        return self.broker.not_hosted_error(topic, index)

    def _appended(
        self, partition: HostedPartition, first_offset: int, append_time: int
    ) -> PartitionProduceResponse:
        return PartitionProduceResponse(
            index=partition.partition,
            base_offset=first_offset,
            log_append_time_ms=append_time,
            log_start_offset=partition.replica.log_start_offset,
        )

    def _refused(self, topic: str, index: int, refusal: Refusal) -> PartitionProduceResponse:
        """Return an error found before the append, and emit its event."""
        self.broker.world.emit(
            ProduceRefused(
                topic=topic,
                partition=index,
                error_code=refusal.error,
                reason=refusal.why,
                producer_id=NO_PRODUCER_ID,
                producer_epoch=NO_PRODUCER_EPOCH,
                base_sequence=NO_SEQUENCE,
            )
        )
        return self._answered(topic, index, refusal, None)

    def _answered(
        self, topic: str, index: int, refusal: Refusal, partition: HostedPartition | None
    ) -> PartitionProduceResponse:
        error = refusal.error
        self.first_error = self.first_error or error
        answer = PartitionProduceResponse(
            index=index, error_code=error, base_offset=NO_OFFSET, error_message=refusal.why or None
        )
        if refusal.records and self.version >= FIRST_VERSION_WITH_RECORD_ERRORS:
            answer.record_errors = [
                BatchIndexAndErrorMessage(
                    batch_index=record.batch_index, batch_index_error_message=record.why
                )
                for record in refusal.records
            ]
        if partition is not None and error not in ERRORS_BEFORE_THE_LOG:
            answer.log_start_offset = partition.replica.log_start_offset
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and self.version >= FIRST_VERSION_WITH_LEADER:
            self._name_leader(topic, index, answer)
        return answer

    def _name_leader(self, topic: str, index: int, answer: PartitionProduceResponse) -> None:
        """Save the client a Metadata request: add the current leader and its endpoint to the
        response (KIP-951).
        """
        registered = self.broker.image.partition(topic, index)
        if registered is None:
            return
        answer.current_leader = LeaderIdAndEpoch(
            leader_id=registered.leader, leader_epoch=registered.leader_epoch
        )
        found = self.broker.address_of(registered.leader, self.listener)
        if found is not None:
            self.leader_endpoints[registered.leader] = NodeEndpoint(
                node_id=registered.leader, host=found.host, port=found.port, rack=found.rack
            )


class DelayedProduce:
    """A Produce request with acks=all that waits until all in-sync replicas have its records.

    Source: kafka.server.DelayedProduce.
    """

    def __init__(self, work: ProduceWork, later: Deferred) -> None:
        self._work = work
        self._later = later

    def keys(self) -> list[tuple[str, int]]:
        """Return the partitions to watch."""
        return [(each.hosted.topic, each.hosted.partition) for each in self._work.unreplicated]

    def try_complete(self) -> bool:
        """Respond once the result of every partition is known."""
        work = self._work
        still = []
        for each in work.unreplicated:
            outcome = work.result_of(each)
            if outcome is None:
                still.append(each)
            elif outcome is not ErrorCode.NONE:
                each.answer.error_code = outcome
        work.unreplicated = still
        if still:
            return False
        self._later.complete(_answer(work))
        return True

    def expire(self) -> None:
        """Respond with a timeout; the appended records remain in the log and may still be
        replicated.
        """
        for each in self._work.unreplicated:
            each.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._later.complete(_answer(self._work))


def _known_topic(broker: ProducingBroker, topic: TopicProduceData, version: int) -> KnownTopic:
    name = topic_name(broker, topic, version)
    known = (
        broker.image.topic(name)
        if name is not None and broker.parts.release.has(APPENDS_BY_TOPIC_ID)
        else None
    )
    return name, None if known is None else known.topic_id


def handle(broker: ProducingBroker, call: Call) -> Answer | Deferred:
    """Return the base offset of each batch or an error; with acks=0 there is no response, or the
    connection is closed after an error.
    """
    request = call.body
    assert isinstance(request, ProduceRequest), "dispatch decodes by API key"
    rows = [(topic.name, data) for topic in request.topic_data for data in topic.partition_data]
    if any(
        data.records is None and broker.image.partition(name, data.index) is not None
        for name, data in rows
    ):
        # verified against Apache Kafka 3.9.1: never responds, and later requests of the connection
        # are not served
        return Deferred()
    work = ProduceWork(broker, call, request)
    if len(rows) > ENTRIES_PER_SLICE:
        work.is_large = True
        for _, data in rows:  # they outlive the receive buffer
            data.records = None if data.records is None else bytes(data.records)
        later = Deferred()
        broker.shell.tasks.spawn(
            or_refused(_validated_later(broker, call, work, request, later), later, call, refuse),
            "serve-many-batches",
        )
        return later
    return _validated(broker, call, work, request)


async def _validated_later(
    broker: ProducingBroker, call: Call, work: ProduceWork, request: ProduceRequest, later: Deferred
) -> None:
    for part in SLICES.split(request):
        assert isinstance(part.body, ProduceRequest), "a slice is a request of the same API"
        work.keep_known(part.body)
        await broker.shell.turns.next()
    completed_by(_validated(broker, call, work, request), later)


def _validated(
    broker: ProducingBroker, call: Call, work: ProduceWork, request: ProduceRequest
) -> Answer | Deferred:
    if must_validate_aside(broker, request, call.api_version):
        return _validated_first(broker, call, work, request)
    return _served(broker, call, work, request)


def _validated_first(
    broker: ProducingBroker, call: Call, work: ProduceWork, request: ProduceRequest
) -> Deferred:
    """Append after a thread has validated the records.

    The connection processes no further request meanwhile, which keeps the order.
    """
    later = Deferred()
    if not work.is_large:
        work.keep_known(request)

    async def validate_and_append() -> None:
        work.examined = await validate_records(broker, request, call.api_version, work.now_ms)
        completed_by(
            _served(broker, call, work, request), later
        )  # even if the client has disconnected: the request was received

    broker.shell.tasks.spawn(
        or_refused(validate_and_append(), later, call, refuse), "examine-records"
    )
    return later


def _served(
    broker: ProducingBroker, call: Call, work: ProduceWork, request: ProduceRequest
) -> Answer | Deferred:
    if not has_transactional(request):
        return _finish(work, call, request, None)
    return _verified_first(broker, call, work, request)


def has_transactional(request: ProduceRequest) -> bool:
    """Return whether the first batch of some partition is transactional."""
    return any(
        data.records is not None
        and len(data.records) > ATTRIBUTES_LOW_BYTE
        and data.records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT
        and data.records[MAGIC_POSITION] >= FIRST_MAGIC_WITH_TRANSACTIONS
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _verified_first(
    broker: ProducingBroker, call: Call, work: ProduceWork, request: ProduceRequest
) -> Answer | Deferred:
    """Append transactional batches after the coordinator has verified them, where required."""
    if not work.is_large:
        work.keep_known(request)
    if request.transactional_id is None:
        return work.refuse_all(
            call,
            request,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch without a transactional id",
        )
    batches = _transactional_batches(broker, work, request)
    if len({(batch.producer_id, batch.producer_epoch) for batch in batches.values()}) > 1:
        return work.refuse_all(
            call,
            request,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "transactional batches of several producers",
        )
    later = Deferred()

    def append(verified: Verified) -> None:
        work.verified, work.now_ms = verified, broker.world.clock.wall_ms()
        _finish(work, call, request, later)

    ProduceVerification(
        partitions=broker.partitions,
        verifier=broker.verifier,
        clock=broker.world.clock,
        config=broker.config,
        transactional_id=request.transactional_id,
        version=call.api_version,
        on_verified=append,
    ).run(batches)
    return later


def _transactional_batches(
    broker: ProducingBroker, work: ProduceWork, request: ProduceRequest
) -> dict[PartitionKey, RecordBatch]:
    """Return the valid transactional batches by partition.

    They are copied, because they may outlive the receive buffer.
    """
    batches: dict[PartitionKey, RecordBatch] = {}
    for topic in request.topic_data:
        name, _ = work.known(topic)
        for data in topic.partition_data if name is not None else ():
            data.records = None if data.records is None else bytes(data.records)
            batch = work.opened[id(data)] = client_batch(data.records, work.version)
            if isinstance(batch, RecordBatch) and batch.is_transactional and batch.producer_id >= 0:
                batches[cast(str, name), data.index] = batch
    return batches


def _finish(
    work: ProduceWork, call: Call, request: ProduceRequest, later: Deferred | None
) -> Answer | Deferred:
    """Append, and respond at once or through `later`, which is created if it is needed and None."""
    if work.is_large:
        later = later or Deferred()
        work.broker.shell.tasks.spawn(
            or_refused(_appended_in_slices(work, request, later), later, call, refuse),
            "append-in-slices",
        )
        return later
    work.run(request)
    if not work.owed and not work.unreplicated and later is None:
        return _answer(work)
    later = later or Deferred()
    _answer_when_replicated(work, request, later)
    return later


async def _appended_in_slices(work: ProduceWork, request: ProduceRequest, later: Deferred) -> None:
    await work.run_in_slices(request)
    _answer_when_replicated(work, request, later)


def _answer_when_replicated(work: ProduceWork, request: ProduceRequest, later: Deferred) -> None:
    """Respond once the required logs are flushed and the required records are on the in-sync
    replicas.
    """
    broker = work.broker

    def wait_for_replicas() -> None:
        work.fail_unflushed()
        if not work.unreplicated:
            later.complete(_answer(work))
            return
        delayed = DelayedProduce(work, later)
        operation = broker.produces.try_complete_else_watch(
            delayed, delayed.keys(), request.timeout_ms
        )
        if operation is not None:
            later.when_abandoned(lambda: broker.produces.leave(operation))

    if work.owed:
        broker.partitions.flush_then([partition for partition, _ in work.owed], wait_for_replicas)
    else:
        wait_for_replicas()


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every partition."""
    request = call.body
    assert isinstance(request, ProduceRequest), "dispatch decodes by API key"
    if request.acks == ACKS_NONE:
        return Closing(f"acks=0 and error {error}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=error, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _answer(work: ProduceWork) -> Answer:
    if work.acks != ACKS_NONE:
        return work.response
    return (
        NO_ANSWER
        if work.first_error is ErrorCode.NONE
        else Closing(f"acks=0 and error {work.first_error.name}")
    )


SLICES = Slices(
    entries="topic_data", rows="responses", inner="partition_data", inner_rows="partition_responses"
)
HANDLER = Handler(key=ApiKey.PRODUCE, handle=handle, refuse=refuse)

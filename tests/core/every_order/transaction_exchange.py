"""One transactional producer, two partitions at two brokers, and the coordinator of its
transactions: the messages between them, of which one may be lost, a coordinator that is replaced,
and a transaction that times out.

Every decision is made by the rules that nodes use: the client's (`TransactionalProducer`), the
partition's (`ProducerStateManager`), the coordinator's (`TransactionRules`, `TransactionEntry`,
`MarkerQueue`) and its records. This file has the messages between them, which are late, lost or
overtaken. A request whose response was lost may still arrive later, once.
No time passes: backoffs are 0, and a transaction may time out whenever it is open.

`parts` are those of a release, or of one with a bug: a switch of `kraftsim list bugs` acts here as
in a node. With transaction.version 1 a late EndTxn ends the next transaction (KAFKA-17754), in
Apache Kafka, too: `late_requests=False` leaves such requests out.
Source: KIP-98, KIP-360, KIP-890; KAFKA-10080, 16352, 17754, 19999, 20090.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from kraftsim.clients.rules_producer_steps import (
    MetadataArrived,
    OutgoingRecord,
    PartitionAnswer,
    ProduceAnswered,
    ProduceLost,
    ProducerIdentity,
    ProducerSettings,
    RecordGiven,
    SendMetadataRequest,
    SendProduce,
)
from kraftsim.clients.rules_producer_steps import TopicPartition as Where
from kraftsim.clients.rules_transaction_steps import (
    AbortAsked,
    AddPartitions,
    Answered,
    BeginAsked,
    CommitAsked,
    CoordinatorFound,
    EndTransaction,
    FindCoordinator,
    InitAsked,
    InitProducerId,
    ProducerErred,
    ProducerState,
    QuestionLost,
    SendQuestion,
    TransactionalEffect,
    TransactionalInput,
    TransactionalSettings,
    TransactionOutcome,
    TransactionSettled,
)
from kraftsim.core.decision import Refusal
from kraftsim.producer_state.rules_entries import Duplicate, ProducerStatePolicy
from kraftsim.producer_state.rules_manager import EndMarker, ProducerStateManager
from kraftsim.server.parts import Parts
from kraftsim.transactions.rules_coordinator import (
    Already,
    EndTxnInput,
    MustAbort,
    NeedsProducerId,
    TransactionRules,
)
from kraftsim.transactions.rules_markers import (
    Complete,
    Marker,
    MarkerEffect,
    MarkerQueue,
    PreparedTransaction,
    RetryLater,
    SendMarkers,
)
from kraftsim.transactions.rules_state import (
    EMPTY,
    ONGOING,
    PREPARED,
    TopicPartition,
    TransactionEntry,
    TransactionFacts,
    facts_record,
    read_facts,
    value_version,
)
from kraftsim.transactions.verification import produce_refusal
from protocol.coordinator.registry import CoordinatorTopic, parse_record
from protocol.coordinator.transactions import TransactionLogValue
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record

TRANSACTIONAL_ID: Final = "x"
A, B = "a", "b"
PARTITIONS: Final[dict[str, TopicPartition]] = {A: (A, 0), B: (B, 0)}
BROKER_OF: Final = {A: 1001, B: 1002}
PARTITION_AT: Final = {1001: A, 1002: B}
COORDINATOR: Final = 1003
FIRST_PRODUCER_ID: Final = 1
VERSION_THAT_ADDS, VERSION_THAT_VERIFIES = 12, 11
"""Versions of Produce: of transaction.version 2, and of earlier ones."""
CLIENT_MOVES: Final = ("begin", "commit", "abort", "reply", "acknowledge")
FAULTS: Final = ("lose", "fail over", "time out", "late")


class Sent(NamedTuple):
    """A batch of one record, which belongs to a transaction of the client by its number."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    transaction: int


@dataclass(slots=True)
class Attempt:
    """One Produce request to one partition. `request_id` is None if no one awaits the response."""

    sent: Sent
    request_id: int | None
    adds: bool
    stage: str = "sent"
    """sent, asking (the coordinator has to verify), storing (it writes the record), verified,
    answered.
    """
    guard: int | None = None
    error: ErrorCode = ErrorCode.NONE
    offset: int = -1


@dataclass(slots=True)
class Entry:
    """What is in the log of a partition: records of a transaction, or a marker (`commits`)."""

    transaction: int
    commits: bool | None = None


@dataclass(slots=True)
class Partition:
    """A partition at its leader."""

    state: ProducerStateManager
    log: list[Entry] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)


class After(NamedTuple):
    """What follows once a record is committed."""

    kind: str
    """added, given, decided, forced, verified (a partition), completed."""
    partition: str = ""
    answers: bool = False
    """Whether the client awaits the response."""


@dataclass(slots=True)
class Coordinator:
    """The coordinator of the id. `written` are records being replicated, in order."""

    epoch: int
    entry: TransactionEntry
    queue: MarkerQueue
    written: list[tuple[TransactionFacts, After]] = field(default_factory=list)
    asked: dict[int, tuple[Marker, ...]] = field(default_factory=dict)
    """WriteTxnMarkers on their way to brokers."""
    answered: dict[int, dict[int, dict[TopicPartition, ErrorCode]]] = field(default_factory=dict)
    """Their responses, on their way back."""
    taken: dict[int, list[PreparedTransaction]] = field(default_factory=dict)
    """Responses that are processed, and not checked for completion: other threads may run."""
    retries: bool = False


class TransactionExchange:
    """The moves of a search.World, without what must hold after each."""

    def __init__(
        self,
        parts: Parts,
        *,
        version: int = 2,
        transactions: int = 2,
        partitions: int = 2,
        first_epoch: int = 0,
        loses: str = "",
        failovers: int = 0,
        timeouts: int = 0,
        late_requests: bool = True,
        aborts: bool = True,
    ) -> None:
        self._version, self._transactions, self._aborts = version, transactions, aborts
        self._loses = loses
        """What is lost once, if at all: request, produce, or markers, or the response to one."""
        self._left = {"lose": int(bool(loses)), "fail over": failovers, "time out": timeouts}
        self._has_late_requests = late_requests
        self._written_to = tuple(PARTITIONS)[:partitions]
        self._rules: TransactionRules = parts.transaction_rules()
        self._entry_class: type[TransactionEntry] = parts.transaction_shard.entry_class
        self._queue_class: type[MarkerQueue] = parts.marker_queue
        self._absent = (
            ErrorCode.TRANSACTION_ABORTABLE
            if parts.verification_is_abortable
            else ErrorCode.INVALID_TXN_STATE
        )
        policy = ProducerStatePolicy(
            verifies_transactions=parts.verifies_transactions,
            transactions_have_epochs=parts.transactions_have_epochs,
            checks_epochs_first=parts.checks_epochs_first,
        )
        self.partitions = {
            name: Partition(parts.producer_state_manager(policy)) for name in PARTITIONS
        }
        first = TransactionFacts(
            producer_id=FIRST_PRODUCER_ID,
            producer_epoch=first_epoch - 1,
            timeout_ms=1,
            state=EMPTY,
            last_update_ms=0,
        )
        self.log: list[TransactionFacts] = [first]
        """Committed records of the transactional id."""
        self._next_producer_id = FIRST_PRODUCER_ID + 1
        self._now = Coordinator(0, self._loaded(first), self._queue_class(self._leader_of))
        self._late_markers: list[tuple[int, Marker]] = []
        self._request: SendQuestion | None = None
        """The client's request to the coordinator, until it is taken."""
        self._reply: Answered | None = None
        self._is_awaited = False
        self._answers = False
        """Whether the move being made responds to the client."""
        self._late_requests: list[SendQuestion] = []
        self._begun = 0
        self.outcomes: list[TransactionOutcome] = []
        """What the client was answered for each transaction."""
        self._has_failed = False
        self._forced = 0
        producer = ProducerSettings(
            linger_ms=0, retry_backoff_ms=0, max_in_flight_requests_per_connection=1
        )
        self._client = parts.transactional_producer(
            TransactionalSettings(
                transactional_id=TRANSACTIONAL_ID, producer=producer, busy_backoff_ms=0
            )
        )
        self._start()

    def _start(self) -> None:
        """Initialise the client, without faults."""
        faults, self._left = self._left, dict.fromkeys(self._left, 0)
        self._step(InitAsked())
        while self._client.state is not ProducerState.READY:
            self.make(next(each for each in self.moves() if each != "begin"))
        self._left = faults

    # Moves
    # ----------------------------------------------------------------------------------------------

    def moves(self) -> list[str]:
        """See search.World."""
        return [*self._client_moves(), *self._coordinator_moves(), *self._partition_moves()]

    def _may_lose(self, what: str) -> bool:
        return self._left["lose"] > 0 and self._loses == what

    def _client_moves(self) -> list[str]:
        found = []
        match self._client.state:
            case ProducerState.READY if self._begun < self._transactions:
                found.append("begin")
            case ProducerState.IN_TRANSACTION:
                found += ["commit", "abort"] if self._aborts else ["commit"]
            case ProducerState.ABORTABLE_ERROR:
                found.append("abort")
        if self._reply is not None:
            found.append("reply")
        if self._may_lose("request") and self._is_awaited:
            found.append("lose request")
        for name, partition in self.partitions.items():
            for attempt in partition.attempts:
                if attempt.request_id is None:
                    continue
                if attempt.stage == "answered":
                    found.append(f"acknowledge {name}")
                if self._may_lose("produce"):
                    found.append(f"lose produce {name}")
        return found

    def _coordinator_moves(self) -> list[str]:
        now, found = self._now, []
        if self._request is not None:
            found.append("request")
        found += [f"late request {index}" for index in range(len(self._late_requests))]
        if now.written:
            found.append("store")
        for name, partition in self.partitions.items():
            found += [
                f"verify {name} {index}"
                for index, attempt in enumerate(partition.attempts)
                if attempt.stage == "asking"
            ]
        for broker_id in sorted(now.answered):
            found.append(f"take {broker_id}")
        for broker_id in sorted(now.taken):
            found.append(f"check {broker_id}")
        if self._may_lose("markers"):
            found += [f"lose markers {each}" for each in sorted({*now.asked, *now.answered})]
        if now.retries:
            found.append("retry")
        if (
            self._left["time out"] > 0
            and now.entry.facts.state is ONGOING
            and now.entry.pending is None
        ):
            found.append("time out")
        if self._left["fail over"] > 0:
            found += ["fail over to another", "fail over and back"]
            if now.written:
                found += ["fail over to another, kept", "fail over and back, kept"]
        return found

    def _partition_moves(self) -> list[str]:
        found = []
        for name, partition in self.partitions.items():
            broker_id = BROKER_OF[name]
            if broker_id in self._now.asked:
                found.append(f"mark {broker_id}")
            for index, attempt in enumerate(partition.attempts):
                if attempt.stage == "sent":
                    late = "" if attempt.request_id is not None else "late "
                    found.append(f"{late}produce {name} {index}")
                elif attempt.stage == "verified":
                    found.append(f"append {name} {index}")
        found += [f"late marker {index}" for index in range(len(self._late_markers))]
        return found

    def make(self, move: str) -> None:
        """See search.World."""
        match move.split(" "):
            case ["begin" | "commit" | "abort" | "reply" | "acknowledge", *_]:
                self._move_of_client(move)
            case ["lose", *what]:
                self._left["lose"] -= 1
                self._lose(*what)
            case ["request"]:
                asked, self._request = self._request, None
                assert asked is not None, "it was sent"
                self._serve(asked, is_late=False)
            case ["late", "request", index]:
                self._serve(self._late_requests.pop(int(index)), is_late=True)
            case ["store"]:
                self._store()
            case ["verify", name, index]:
                self._verify(name, self.partitions[name].attempts[int(index)])
            case ["take", broker_id]:
                answer = self._now.answered.pop(int(broker_id))
                self._now.taken[int(broker_id)] = self._now.queue.take_answer(
                    int(broker_id), answer
                )
            case ["check", broker_id]:
                touched = self._now.taken.pop(int(broker_id))
                self._carry_out(self._now.queue.settle_all(touched))
            case ["retry"]:
                self._now.retries = False
                self._carry_out(self._now.queue.retry())
            case ["time", "out"]:
                self._left["time out"] -= 1
                self._force_abort()
            case ["fail", "over", *how]:
                self._left["fail over"] -= 1
                self._fail_over(returns="back" in how or "back," in how, keeps="kept" in how)
            case ["mark", broker_id]:
                self._mark(int(broker_id))
            case ["late", "marker", index]:
                leader, marker = self._late_markers.pop(int(index))
                self._write(PARTITION_AT[leader], marker)
            case ["late", "produce", name, index] | ["produce", name, index]:
                self._arrive(name, self.partitions[name].attempts[int(index)])
            case ["append", name, index]:
                self._append(name, self.partitions[name].attempts[int(index)])
            case _:
                raise ValueError(move)

    # The client
    # ----------------------------------------------------------------------------------------------

    def _move_of_client(self, move: str) -> None:
        match move.split(" "):
            case ["begin"]:
                self._begun += 1
                self._step(BeginAsked())
                for name in self._written_to:
                    record = OutgoingRecord(
                        where=Where(*PARTITIONS[name]),
                        key="",
                        value=str(self._begun).encode(),
                        timestamp_ms=0,
                    )
                    self._step(RecordGiven(record))
            case ["commit"]:
                self._step(CommitAsked())
            case ["abort"]:
                self._step(AbortAsked())
            case ["reply"]:
                reply, self._reply, self._is_awaited = self._reply, None, False
                assert reply is not None, "it was sent"
                self._step(reply)
            case ["acknowledge", name]:
                partition = self.partitions[name]
                done = next(
                    each
                    for each in partition.attempts
                    if each.stage == "answered" and each.request_id is not None
                )
                partition.attempts.remove(done)
                assert done.request_id is not None
                answer = PartitionAnswer(
                    where=Where(*PARTITIONS[name]), error_code=done.error, base_offset=done.offset
                )
                self._step(ProduceAnswered(done.request_id, (answer,)))

    def _step(self, happened: TransactionalInput) -> None:
        for effect in self._client.step(happened, 0):
            self._carry_out_for_client(effect)

    def _carry_out_for_client(self, effect: TransactionalEffect) -> None:
        match effect:
            case FindCoordinator(kind=kind):
                self._step(
                    CoordinatorFound(
                        kind=kind, broker_id=COORDINATOR, transaction_version=self._version
                    )
                )
            case SendMetadataRequest():
                leaders = {
                    Where(*PARTITIONS[name]): broker_id for name, broker_id in BROKER_OF.items()
                }
                self._step(MetadataArrived(leaders))
            case SendQuestion():
                assert not self._is_awaited, "one request at a time"
                self._request, self._is_awaited = effect, True
            case SendProduce(request_id=request_id, batches=batches):
                for batch in batches:
                    assert batch.identity is not None
                    sent = Sent(*batch.identity, batch.base_sequence, int(batch.records[0].value))
                    attempts = self.partitions[batch.where.topic].attempts
                    attempts.append(Attempt(sent, request_id, self._client.is_implicit))
            case TransactionSettled(outcome=outcome):
                self.outcomes.append(outcome)
            case ProducerErred(is_fatal=True):
                assert self._forced, (
                    f"the producer fails with {effect.error_code.name}, and no one has fenced it"
                )
                self._has_failed = True

    def _lose(self, what: str, where: str = "") -> None:
        match what:
            case "request":
                if self._request is not None and self._has_late_requests:
                    self._late_requests.append(self._request)
                self._request = self._reply = None
                self._is_awaited = False
                self._now.written = [
                    (facts, after._replace(answers=False)) for facts, after in self._now.written
                ]
                self._step(QuestionLost())
            case "produce":
                attempts = self.partitions[where].attempts
                lost = next(each for each in attempts if each.request_id is not None)
                request_id, lost.request_id = lost.request_id, None
                if lost.stage == "answered" or not self._has_late_requests:
                    attempts.remove(lost)
                assert request_id is not None
                self._step(ProduceLost(request_id))
            case _:
                self._now.asked.pop(int(where), None)
                self._now.answered.pop(int(where), None)
                self._carry_out(self._now.queue.on_lost(int(where)))

    # The coordinator
    # ----------------------------------------------------------------------------------------------

    def _serve(self, asked: SendQuestion, *, is_late: bool) -> None:
        self._answers = not is_late
        match asked.question:
            case InitProducerId(identity=identity):
                self._init(identity)
            case AddPartitions(identity=identity, partitions=partitions):
                outcome = self._rules.decide_add(
                    self._now.entry, identity, [(each.topic, 0) for each in partitions], 0, 0
                )
                self._settle(outcome, "added")
            case EndTransaction(identity=identity, is_commit=is_commit):
                end = EndTxnInput(
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                    is_commit=is_commit,
                    transaction_version=2 if asked.is_implicit else 0,
                )
                ended = self._rules.decide_end(self._now.entry, end, 0)
                if isinstance(ended, NeedsProducerId):
                    ended = self._rules.decide_end(self._now.entry, end, 0, self._claim())
                assert not isinstance(ended, NeedsProducerId)
                self._settle(ended, "decided")

    def _init(self, identity: ProducerIdentity | None) -> None:
        entry = self._now.entry
        outcome = self._rules.decide_init(entry, identity, 1, 0)
        if isinstance(outcome, NeedsProducerId):
            outcome = self._rules.decide_init(entry, identity, 1, 0, self._claim())
        if isinstance(outcome, MustAbort):
            if self._force_abort():
                self._answer(ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        assert not isinstance(outcome, NeedsProducerId)
        self._settle(outcome, "given")

    def _settle(self, outcome: TransactionFacts | Already | Refusal, kind: str) -> None:
        match outcome:
            case Refusal():
                self._answer(outcome.error)
            case Already(producer_id, producer_epoch):
                self._answer(ErrorCode.NONE, ProducerIdentity(producer_id, producer_epoch))
            case TransactionFacts():
                self._put(outcome, After(kind, answers=self._answers))

    def _answer(self, error: ErrorCode, identity: ProducerIdentity | None = None) -> None:
        if self._answers:
            self._reply = Answered(error_code=error, identity=identity)

    def _claim(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def _put(self, facts: TransactionFacts, after: After) -> None:
        self._now.entry.begin(facts)
        self._now.written.append((facts, after))

    def _store(self) -> None:
        now = self._now
        facts, after = now.written.pop(0)
        self.log.append(facts)
        now.entry.finish(self._rules.held(now.entry.facts, facts))
        self._answers = after.answers
        match after.kind:
            case "added":
                self._answer(ErrorCode.NONE)
            case "given":
                self._answer(
                    ErrorCode.NONE, ProducerIdentity(facts.producer_id, facts.producer_epoch)
                )
            case "decided":
                self._answer(ErrorCode.NONE, ProducerIdentity(*self._rules.identity_after(facts)))
                self._prepared()
            case "forced":
                self._prepared()
            case "verified":
                for attempt in self.partitions[after.partition].attempts:
                    if attempt.stage == "storing":
                        attempt.stage = "verified"

    def _prepared(self) -> None:
        now = self._now
        completion = self._rules.completed(now.entry, 0)
        self._carry_out(now.queue.add(PreparedTransaction(now.entry, completion, 0, now.epoch)))

    def _force_abort(self) -> bool:
        entry = self._now.entry
        facts = self._rules.decide_forced_abort(entry, self._version, 0)
        if isinstance(facts, NeedsProducerId):
            facts = self._rules.decide_forced_abort(entry, self._version, 0, self._claim())
        assert isinstance(facts, TransactionFacts), f"the transaction may not be aborted: {facts}"
        self._forced += 1
        self._put(facts, After("forced"))
        return True

    def _verify(self, name: str, attempt: Attempt) -> None:
        producer = (attempt.sent.producer_id, attempt.sent.producer_epoch)
        where = PARTITIONS[name]
        if not attempt.adds:
            error = self._rules.verify(self._now.entry, producer, where, absent=self._absent)
            attempt.stage, attempt.error = "verified", error
            return
        outcome = self._rules.decide_add(self._now.entry, producer, [where], 2, 0)
        match outcome:
            case Refusal(error=ErrorCode.CONCURRENT_TRANSACTIONS):
                attempt.stage, attempt.guard = "sent", None
            case Refusal():
                attempt.stage, attempt.error = "verified", outcome.error
            case TransactionFacts():
                attempt.stage = "storing"
                self._put(outcome, After("verified", name))
            case _:
                attempt.stage = "verified"

    def _carry_out(self, effects: Sequence[MarkerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendMarkers():
                    self._now.asked[effect.broker_id] = effect.markers
                case Complete():
                    ended = effect.ended
                    if ended.coordinator_epoch == self._now.epoch:
                        self._put(ended.completion, After("completed"))
                case RetryLater():
                    self._now.retries = True

    def _fail_over(self, *, returns: bool, keeps: bool) -> None:
        """Another broker becomes coordinator, or the same one again: then responses to its earlier
        requests still arrive.
        """
        now = self._now
        self._answers = any(after.answers for _, after in now.written)
        if keeps:
            self.log.append(now.written[0][0])
        queue, asked, answered = self._queue_class(self._leader_of), {}, {}
        if returns:
            queue, asked, answered = now.queue, now.asked, now.answered
            queue.forget_shard(0)
        elif self._has_late_requests:
            self._late_markers += [
                (broker_id, marker) for broker_id, each in now.asked.items() for marker in each
            ]
        self._now = Coordinator(now.epoch + 1, self._loaded(self.log[-1]), queue)
        self._now.asked, self._now.answered = asked, answered
        for partition in self.partitions.values():
            for attempt in partition.attempts:
                if attempt.stage in ("asking", "storing"):
                    attempt.stage, attempt.error = "verified", ErrorCode.NOT_COORDINATOR
        self._answer(ErrorCode.NOT_COORDINATOR)
        if self._now.entry.facts.state in PREPARED:
            self._prepared()

    def _loaded(self, facts: TransactionFacts) -> TransactionEntry:
        """Return what another coordinator reads from the log: not everything is in the record."""
        key, value = facts_record(TRANSACTIONAL_ID, facts, value_version(self._version))
        parsed = parse_record(CoordinatorTopic.TRANSACTION_STATE, key, value)
        assert parsed is not None and isinstance(parsed[1], TransactionLogValue)
        return self._entry_class(TRANSACTIONAL_ID, read_facts(parsed[1]))

    def _leader_of(self, where: TopicPartition) -> int:
        return BROKER_OF[where[0]]

    # The partitions
    # ----------------------------------------------------------------------------------------------

    def _arrive(self, name: str, attempt: Attempt) -> None:
        sent = attempt.sent
        guard = self.partitions[name].state.begin_verification(
            sent.producer_id, sent.producer_epoch, sent.base_sequence, 0, adds=attempt.adds
        )
        match guard:
            case Refusal():
                self._acknowledge(name, attempt, guard.error)
            case None:
                self._append(name, attempt)
            case _:
                attempt.stage, attempt.guard = "asking", guard

    def _append(self, name: str, attempt: Attempt) -> None:
        """Append a batch that is verified or need not be."""
        partition, sent = self.partitions[name], attempt.sent
        if attempt.error is not ErrorCode.NONE:
            version = VERSION_THAT_ADDS if attempt.adds else VERSION_THAT_VERIFIES
            self._acknowledge(name, attempt, produce_refusal(attempt.error, version).error)
            return
        batch = _batch(sent)
        verdict = partition.state.check(batch, attempt.guard)
        match verdict:
            case Refusal():
                self._acknowledge(name, attempt, verdict.error)
            case Duplicate():
                self._acknowledge(name, attempt, verdict.error, verdict.first_offset)
            case _:
                offset = len(partition.log)
                partition.state.apply(batch, offset)
                partition.log.append(Entry(sent.transaction))
                self._acknowledge(name, attempt, ErrorCode.NONE, offset)

    def _acknowledge(self, name: str, attempt: Attempt, error: ErrorCode, offset: int = -1) -> None:
        attempt.stage, attempt.error, attempt.offset = "answered", error, offset
        if attempt.request_id is None:
            self.partitions[name].attempts.remove(attempt)

    def _mark(self, broker_id: int) -> None:
        answer: dict[int, dict[TopicPartition, ErrorCode]] = {}
        for marker in self._now.asked.pop(broker_id):
            errors = answer.setdefault(marker.ended.producer_id, {})
            name = PARTITION_AT[broker_id]
            errors[PARTITIONS[name]] = self._write(name, marker)
        self._now.answered[broker_id] = answer

    def _write(self, name: str, marker: Marker) -> ErrorCode:
        ended, partition = marker.ended, self.partitions[name]
        refusal = partition.state.check_marker(
            ended.producer_id,
            ended.producer_epoch,
            ended.coordinator_epoch,
            ended.transaction_version,
        )
        if refusal is not None:
            return refusal.error
        offset = len(partition.log)
        partition.state.apply(
            _marker(
                ended.producer_id, ended.producer_epoch, ended.coordinator_epoch, ended.is_commit
            ),
            offset,
        )
        partition.state.on_high_watermark(offset + 1)
        partition.log.append(Entry(0, commits=ended.is_commit))
        return ErrorCode.NONE


@lru_cache(maxsize=4096)
def _batch(sent: Sent) -> RecordBatch:
    return RecordBatch(
        build_batch(
            [Record(timestamp=0, key=None, value=b"")],
            producer_id=sent.producer_id,
            producer_epoch=sent.producer_epoch,
            base_sequence=sent.base_sequence,
            transactional=True,
        )
    )


@lru_cache(maxsize=4096)
def _marker(
    producer_id: int, producer_epoch: int, coordinator_epoch: int, is_commit: bool
) -> RecordBatch:
    marker = EndMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        is_commit=is_commit,
    )
    return marker.batch(0)

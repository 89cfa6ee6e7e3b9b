"""Scripts of transactions (tests/core/scripts): kraftsim's producer, the coordinator's state
transitions, its markers, and verification.

Source: KIP-98, KIP-360, KIP-890, KAFKA-10080, KAFKA-16352.
"""

from collections.abc import Callable, Sequence

import pytest

from kraftsim.clients.rules_producer_steps import (
    IdentityTaken,
    MetadataArrived,
    OutgoingRecord,
    PartitionAnswer,
    ProduceAnswered,
    ProduceLost,
    ProducerIdentity,
    ProducerSettings,
    RecordDelivered,
    RecordGiven,
    RecordGivenUp,
    SendMetadataRequest,
    SendProduce,
    TimePassed,
    TopicPartition,
)
from kraftsim.clients.rules_transaction_steps import (
    AbortAsked,
    Answered,
    BeginAsked,
    CommitAsked,
    CoordinatorFound,
    CoordinatorKind,
    CoordinatorLost,
    FindCoordinator,
    GroupIdentity,
    IdTaken,
    InitAsked,
    OffsetsAccepted,
    OffsetsGiven,
    ProducerErred,
    QuestionLost,
    SendQuestion,
    TransactionalEffect,
    TransactionalInput,
    TransactionalSettings,
    TransactionSettled,
)
from kraftsim.clients.rules_transactional_producer import TransactionalProducer
from kraftsim.core.decision import Refusal
from kraftsim.transactions.rules_coordinator import (
    NEEDS_PRODUCER_ID,
    Already,
    EndTxnInput,
    MustAbort,
    NeedsProducerId,
    TransactionRules,
)
from kraftsim.transactions.rules_markers import (
    Ask,
    Complete,
    MarkerEffect,
    MarkerQueue,
    NoLeader,
    PreparedTransaction,
    Question,
    RetryLater,
    SendMarkers,
    VerificationQueue,
    VerificationResult,
)
from kraftsim.transactions.rules_state import (
    TransactionEntry,
    TransactionFacts,
    first_facts,
)
from protocol.errors import ErrorCode
from tests.core.effect_format import spelt

GROUP = GroupIdentity("g", 3, "m")
Outcome = TransactionFacts | Already | Refusal | NeedsProducerId | MustAbort


class ProducerDriver:
    """A transactional producer of topic t, driven by lines such as "send a b:1", "ok", or "refuse
    NOT_COORDINATOR".
    """

    def __init__(self) -> None:
        self.do_cluster("0")

    def do_cluster(self, transaction_version: str) -> None:
        """Start over, in a cluster of this transaction.version."""
        self.now_ms = 0
        self.version = int(transaction_version)
        sending = ProducerSettings(linger_ms=0, retry_backoff_ms=100, delivery_timeout_ms=5000)
        self.rules = TransactionalProducer(
            TransactionalSettings(transactional_id="x", producer=sending)
        )
        self.requests: dict[int, SendProduce] = {}
        self.looked_for = CoordinatorKind.TRANSACTION

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        before = self.rules.state
        effects: list[TransactionalEffect] = (
            getattr(self, f"do_{verb.replace('-', '_')}")(*words) or []
        )
        states = (
            [f"is {self.rules.state.name}"]
            if self.rules.state is not before and verb != "cluster"
            else []
        )
        return "\n".join([*(self._line(effect) for effect in effects), *states])

    def do_init(self) -> list[TransactionalEffect]:
        return self._step(InitAsked())

    def do_found(self, broker_id: str) -> list[TransactionalEffect]:
        return self._step(
            CoordinatorFound(
                kind=self.looked_for, broker_id=int(broker_id), transaction_version=self.version
            )
        )

    def do_not_found(self, error: str = "") -> list[TransactionalEffect]:
        return self._step(
            CoordinatorLost(kind=self.looked_for, error_code=ErrorCode[error] if error else None)
        )

    def do_ok(self, *identity: str) -> list[TransactionalEffect]:
        """Success, for every partition; with a producer id and an epoch if given."""
        identified = ProducerIdentity(int(identity[0]), int(identity[1])) if identity else None
        return self._step(Answered(error_code=ErrorCode.NONE, identity=identified))

    def do_refuse(self, error: str) -> list[TransactionalEffect]:
        return self._step(Answered(error_code=ErrorCode[error]))

    def do_lose_answer(self) -> list[TransactionalEffect]:
        return self._step(QuestionLost())

    def do_begin(self) -> list[TransactionalEffect]:
        return self._step(BeginAsked())

    def do_send(self, *keys: str) -> list[TransactionalEffect]:
        """Records by key; "a:1" goes to partition 1, "a" to partition 0."""
        effects = []
        for each in keys:
            key, _, partition = each.partition(":")
            effects += self._step(
                RecordGiven(
                    OutgoingRecord(
                        where=_where(partition or "0"),
                        key=key,
                        value=b"v",
                        timestamp_ms=self.now_ms,
                    )
                )
            )
        return effects

    def do_leaders(self, *leaders: str) -> list[TransactionalEffect]:
        return self._step(
            MetadataArrived(
                {_where(each.split("=")[0]): int(each.split("=")[1]) for each in leaders}
            )
        )

    def do_written(self, request_id: str, said: str) -> list[TransactionalEffect]:
        """A base offset, or the name of an error; for every partition of the request."""
        request = self.requests[int(request_id)]
        error, offset = (ErrorCode.NONE, int(said)) if said.isdigit() else (ErrorCode[said], -1)
        answers = tuple(
            PartitionAnswer(where=batch.where, error_code=error, base_offset=offset)
            for batch in request.batches
        )
        return self._step(ProduceAnswered(request.request_id, answers))

    def do_lose(self, request_id: str) -> list[TransactionalEffect]:
        return self._step(ProduceLost(int(request_id)))

    def do_offsets(self, *offsets: str) -> list[TransactionalEffect]:
        return self._step(
            OffsetsGiven(
                group=GROUP,
                offsets={_where(each.split("=")[0]): int(each.split("=")[1]) for each in offsets},
            )
        )

    def do_commit(self) -> list[TransactionalEffect]:
        return self._step(CommitAsked())

    def do_abort(self) -> list[TransactionalEffect]:
        return self._step(AbortAsked())

    def do_at(self, now_ms: str) -> list[TransactionalEffect]:
        self.now_ms = int(now_ms)
        return self._step(TimePassed())

    def _step(self, happened: TransactionalInput) -> list[TransactionalEffect]:
        return self.rules.step(happened, self.now_ms)

    def _line(self, effect: TransactionalEffect) -> str:
        match effect:
            case FindCoordinator(kind=kind, key=key):
                self.looked_for = kind
                return f"find coordinator of {kind.name.lower()} {key}"
            case SendQuestion(broker_id=broker_id, question=question):
                text = spelt(question).replace(" transactional_id=x", "")
                return f"to {broker_id}: {text.replace(' transaction_timeout_ms=60000', '')}"
            case SendProduce():
                self.requests[effect.request_id] = effect
                batches = (
                    f"[{' '.join(each.key for each in batch.records)}] to {spelt(batch.where)}"
                    for batch in effect.batches
                )
                return f"request {effect.request_id} to {effect.broker_id}: {', '.join(batches)}"
            case TransactionSettled(outcome=outcome, identity=identity, error_code=error):
                return (
                    f"{outcome.name.lower()} as "
                    f"{spelt(identity)}"
                    f"{'' if error is ErrorCode.NONE else f' after {error.name}'}"
                )
            case IdTaken(identity):
                return f"x is initialised as {spelt(identity)}"
            case IdentityTaken(identity):
                return f"continues as {spelt(identity)}"
            case OffsetsAccepted(offsets=offsets):
                return (
                    "offsets accepted: "
                    f"{', '.join(f'{spelt(where)} {offset}' for where, offset in offsets)}"
                )
            case SendMetadataRequest(topics):
                return f"refresh metadata of {', '.join(topics)}"
            case RecordDelivered(record=record, offset=offset):
                return f"delivered {record.key} at {offset}"
            case RecordGivenUp(record=record, error_code=error):
                return f"failed {record.key}: {error.name}"
            case ProducerErred(error_code=error):
                return f"error {error.name}"


class CoordinatorDriver:
    """One transactional id at its coordinator: "init", "add t-0", "commit", "marked t-0"; the
    record of each decision is committed immediately.
    """

    def __init__(self) -> None:
        self.do_id("1000", "-1", "2")

    def do_id(self, producer_id: str, producer_epoch: str, transaction_version: str) -> None:
        """Start over: the known state of the id, and the transaction.version of its producer."""
        facts = first_facts(int(producer_id), 60_000, 0)
        self.rules, self.entry, self.version = (
            TransactionRules(),
            TransactionEntry("x", facts),
            int(transaction_version),
        )
        if int(producer_epoch) >= 0:
            self.entry.take(
                TransactionFacts(
                    producer_id=int(producer_id),
                    producer_epoch=int(producer_epoch),
                    timeout_ms=60_000,
                    state=facts.state,
                    last_update_ms=0,
                )
            )
        self.fresh = 2000

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        outcome: Outcome | None = getattr(self, f"do_{verb}")(*words)
        match outcome:
            case None:
                return "" if verb == "id" else self._state()
            case TransactionFacts():
                self.entry.begin(outcome)
                self.entry.finish(outcome)
                return self._state()
            case Refusal(error):
                return error.name
            case Already():
                return f"already: {outcome.producer_id}/{outcome.producer_epoch}"
            case MustAbort():
                return "must abort first"
            case NeedsProducerId():
                raise AssertionError("it was given one")

    def do_init(self, *expected: str) -> Outcome:
        named = (int(expected[0]), int(expected[1])) if expected else None
        outcome = self.rules.decide_init(self.entry, named, 60_000, 0)
        if outcome is not NEEDS_PRODUCER_ID:
            return outcome
        return self.rules.decide_init(self.entry, named, 60_000, 0, self._fresh())

    def do_add(self, identity: str, *partitions: str) -> Outcome:
        return self.rules.decide_add(
            self.entry, _identity(identity), _partitions(partitions), self.version, 0
        )

    def do_commit(self, identity: str) -> Outcome:
        return self._end(identity, is_commit=True)

    def do_abort(self, identity: str) -> Outcome:
        return self._end(identity, is_commit=False)

    def do_force(self) -> Outcome:
        """A forced abort: the transaction timed out, or another producer initialised."""
        outcome = self.rules.decide_forced_abort(self.entry, self.version, 0)
        return (
            outcome
            if outcome is not NEEDS_PRODUCER_ID
            else self.rules.decide_forced_abort(self.entry, self.version, 0, self._fresh())
        )

    def do_marked(self, *partitions: str) -> Outcome | None:
        self.entry.marked(_partitions(partitions))
        return self.rules.completed(self.entry, 0) if not self.entry.facts.partitions else None

    def _end(self, identity: str, *, is_commit: bool) -> Outcome:
        producer_id, producer_epoch = _identity(identity)
        asked = EndTxnInput(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_commit=is_commit,
            transaction_version=self.version,
        )
        outcome = self.rules.decide_end(self.entry, asked, 0)
        return (
            outcome
            if outcome is not NEEDS_PRODUCER_ID
            else self.rules.decide_end(self.entry, asked, 0, self._fresh())
        )

    def _fresh(self) -> int:
        self.fresh += 1
        return self.fresh

    def _state(self) -> str:
        facts = self.entry.facts
        partitions = "".join(f" {topic}-{number}" for topic, number in facts.partitions)
        return f"{facts.state.label} {facts.producer_id}/{facts.producer_epoch}{partitions}"


class MarkerDriver:
    """The pending markers of a coordinator: "leads 1 a b", "decide x a b c", "answer 1
    b=NOT_LEADER_OR_FOLLOWER".
    """

    def __init__(self) -> None:
        self.leaders: dict[str, int | NoLeader] = {}
        self.queue = MarkerQueue(lambda where: self.leaders.get(where[0], NoLeader.GONE))
        self.ended: dict[str, PreparedTransaction] = {}
        self.count = 0

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        effects: list[MarkerEffect] | None = getattr(self, f"do_{verb.replace('-', '_')}")(*words)
        return "\n".join(map(self._line, effects or []))

    def do_leads(self, broker: str, *topics: str) -> None:
        """A broker, or "unknown"; "none" for deleted topics."""
        leader = {"unknown": NoLeader.UNKNOWN, "none": NoLeader.GONE}.get(broker)
        self.leaders |= dict.fromkeys(topics, int(broker) if leader is None else leader)

    def do_decide(self, name: str, *topics: str) -> list[MarkerEffect]:
        """A commit of partition 0 of topics, by a producer of its own; a second one of the same
        name comes from the next coordinator epoch.
        """
        self.count += 1
        entry = TransactionEntry(name, first_facts(self.count, 60_000, 0))
        rules, end = (
            TransactionRules(),
            EndTxnInput(
                producer_id=self.count, producer_epoch=0, is_commit=True, transaction_version=1
            ),
        )
        entry.take(_facts(rules.decide_init(entry, None, 60_000, 0)))
        entry.take(
            _facts(rules.decide_add(entry, (self.count, 0), [(topic, 0) for topic in topics], 1, 0))
        )
        entry.take(_facts(rules.decide_end(entry, end, 0)))
        self.ended[name] = PreparedTransaction(entry, rules.completed(entry, 0), 0, self.count)
        return self.queue.add(self.ended[name])

    def do_answer(self, broker_id: str, *said: str) -> list[MarkerEffect]:
        """All requested markers are written, except those named with an error."""
        errors = {
            (topic, 0): ErrorCode[error]
            for topic, _, error in (each.partition("=") for each in said)
        }
        every = {(topic, 0): ErrorCode.NONE for topic in self.leaders}
        return self.queue.on_answer(
            int(broker_id), dict.fromkeys(range(self.count + 1), every | errors)
        )

    def do_lose(self, broker_id: str) -> list[MarkerEffect]:
        return self.queue.on_lost(int(broker_id))

    def do_retry(self) -> list[MarkerEffect]:
        return self.queue.retry()

    def do_not_completed(self, name: str) -> list[MarkerEffect]:
        return self.queue.on_not_completed(self.ended[name])

    def do_hand_over(self) -> None:
        """The partition of `__transaction_state` moves to another broker."""
        self.queue.forget_shard(0)

    def _line(self, effect: MarkerEffect) -> str:
        match effect:
            case SendMarkers(broker_id, markers):
                rows = (
                    (
                        f"{each.ended.transactional_id} in "
                        f"{' '.join(topic for topic, _ in each.partitions)}"
                    )
                    for each in markers
                )
                return f"to {broker_id}: {', '.join(rows)}"
            case Complete(ended):
                return f"{ended.transactional_id} is complete"
            case RetryLater():
                return "retry later"


class VerificationDriver:
    """Leaders that verify whether partitions are in a transaction: "ask 1 x 7/3 t-0", "answer 1 x
    t-0=INVALID_TXN_STATE".
    """

    def __init__(self) -> None:
        self.queue = VerificationQueue()
        self.waiters = 0

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        effects: list[Ask | VerificationResult] = getattr(self, f"do_{verb}")(*words)
        return "\n".join(map(self._line, effects))

    def do_ask(
        self, coordinator_id: str, name: str, identity: str, *partitions: str
    ) -> list[Ask | VerificationResult]:
        self.waiters += 1
        producer_id, producer_epoch = _identity(identity)
        question = Question(
            waiter=self.waiters,
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=_partitions(partitions),
            adds=False,
        )
        return self.queue.add(int(coordinator_id), question)

    def do_answer(self, coordinator_id: str, *said: str) -> list[Ask | VerificationResult]:
        """Every partition is in its transaction, except those named after their transactional
        id.
        """
        answers: dict[str, dict[tuple[str, int], ErrorCode]] = {}
        for name, where, error in (
            (each.split(":")[0], *each.split(":")[1].split("=")) for each in said
        ):
            answers.setdefault(name, {})[_partitions([where])[0]] = ErrorCode[error]
        return self.queue.on_answer(int(coordinator_id), answers)

    def do_error(self, coordinator_id: str, error: str) -> list[Ask | VerificationResult]:
        return self.queue.on_error(int(coordinator_id), ErrorCode[error])

    def _line(self, effect: Ask | VerificationResult) -> str:
        match effect:
            case Ask(coordinator_id, questions):
                rows = (
                    (
                        f"{each.transactional_id} {each.producer_id}/{each.producer_epoch} in "
                        f"{_names(each.partitions)}"
                    )
                    for each in questions
                )
                return f"to {coordinator_id}: {', '.join(rows)}"
            case VerificationResult(question, errors):
                named = [f"{_names([where])} {error.name}" for where, error in errors.items()]
                return f"waiter {question.waiter}: {', '.join(named)}"


def _facts(outcome: Outcome) -> TransactionFacts:
    assert isinstance(outcome, TransactionFacts), outcome
    return outcome


def _where(partition: str) -> TopicPartition:
    return TopicPartition("t", int(partition))


def _identity(text: str) -> tuple[int, int]:
    producer_id, _, producer_epoch = text.partition("/")
    return int(producer_id), int(producer_epoch)


def _partitions(texts: Sequence[str]) -> tuple[tuple[str, int], ...]:
    return tuple(
        (topic, int(number)) for topic, _, number in (each.rpartition("-") for each in texts)
    )


def _names(partitions: Sequence[tuple[str, int]]) -> str:
    return " ".join(f"{topic}-{number}" for topic, number in partitions)


@pytest.mark.parametrize(
    ("script", "driver"),
    [
        ("transaction_before_890", ProducerDriver),
        ("transaction_since_890", ProducerDriver),
        ("transaction_errors", ProducerDriver),
        ("transaction_fenced", ProducerDriver),
        ("transaction_states", CoordinatorDriver),
        ("transaction_markers", MarkerDriver),
        ("transaction_verification", VerificationDriver),
    ],
)
def test_transaction_scripts(
    script: str,
    driver: type[ProducerDriver | CoordinatorDriver | MarkerDriver | VerificationDriver],
    run_script: Callable[[str, Callable[[str], str]], None],
) -> None:
    """The comments of each script name the rule that it covers."""
    run_script(script, driver().answer)

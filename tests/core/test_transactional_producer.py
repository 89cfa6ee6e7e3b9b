"""The rules of kraftsim's transactional producer: states, requests, errors, epochs."""

import pytest

from kraftsim.clients.rules_producer_steps import (
    IdentityTaken,
    MetadataArrived,
    OutgoingRecord,
    PartitionAnswer,
    ProduceAnswered,
    ProducerIdentity,
    ProducerSettings,
    RecordGiven,
    RecordGivenUp,
    SendProduce,
    TimePassed,
    TopicPartition,
)
from kraftsim.clients.rules_transaction_steps import (
    AbortAsked,
    AddOffsets,
    AddPartitions,
    Answered,
    BeginAsked,
    CommitAsked,
    CommitOffsets,
    CoordinatorFound,
    CoordinatorKind,
    EndTransaction,
    FindCoordinator,
    GroupIdentity,
    InitAsked,
    InitProducerId,
    OffsetsGiven,
    ProducerState,
    Question,
    QuestionLost,
    SendQuestion,
    TransactionalEffect,
    TransactionalInput,
    TransactionalSettings,
    TransactionOutcome,
    TransactionSettled,
)
from kraftsim.clients.rules_transactional_producer import TransactionalProducer
from protocol.errors import ErrorCode
from tools.claims.recording import Figures

HERE = TopicPartition("t", 0)
BROKER, COORDINATOR, GROUPS = 1, 2, 3
FIRST = ProducerIdentity(4000, 0)
GROUP = GroupIdentity("g", 3, "m")


class Script:
    """A producer under test, and all its effects so far."""

    def __init__(self, transaction_version: int = 0) -> None:
        self.now_ms = 1000
        self.version = transaction_version
        producer = ProducerSettings(linger_ms=0, delivery_timeout_ms=5000)
        self.rules = TransactionalProducer(
            TransactionalSettings(transactional_id="id", producer=producer)
        )
        self.asked: list[Question] = []
        self.sent: list[SendProduce] = []
        self.settled: list[TransactionSettled] = []
        self.given_up: list[RecordGivenUp] = []
        self.identities: list[ProducerIdentity] = []
        self.finds: list[CoordinatorKind] = []

    def step(self, happened: TransactionalInput) -> list[TransactionalEffect]:
        effects = self.rules.step(happened, self.now_ms)
        for effect in effects:
            match effect:
                case SendQuestion(question=question):
                    self.asked.append(question)
                case SendProduce():
                    self.sent.append(effect)
                case TransactionSettled():
                    self.settled.append(effect)
                case RecordGivenUp():
                    self.given_up.append(effect)
                case IdentityTaken(identity):
                    self.identities.append(identity)
                case FindCoordinator(kind=kind):
                    self.finds.append(kind)
                    broker_id = COORDINATOR if kind is CoordinatorKind.TRANSACTION else GROUPS
                    self.step(
                        CoordinatorFound(
                            kind=kind, broker_id=broker_id, transaction_version=self.version
                        )
                    )
        return effects

    def ready(self) -> "Script":
        self.step(InitAsked())
        self.step(Answered(error_code=ErrorCode.NONE, identity=FIRST))
        return self

    def begun(self) -> "Script":
        """In a transaction, with one record in its partition's log."""
        self.ready().step(BeginAsked())
        self.give("a")
        if not self.version:
            self.say()
        self.step(MetadataArrived({HERE: BROKER}))
        self.produced()
        return self

    def give(self, key: str) -> None:
        self.step(RecordGiven(OutgoingRecord(where=HERE, key=key, value=b"v", timestamp_ms=0)))

    def say(
        self, error: ErrorCode = ErrorCode.NONE, identity: ProducerIdentity | None = None
    ) -> None:
        """Answer the request in flight; every partition gets the same result."""
        question = self.asked[-1]
        if isinstance(question, AddPartitions):
            self.step(
                Answered(
                    error_code=ErrorCode.NONE, errors=dict.fromkeys(question.partitions, error)
                )
            )
        elif isinstance(question, CommitOffsets):
            self.step(
                Answered(
                    error_code=ErrorCode.NONE,
                    errors=dict.fromkeys((where for where, _ in question.offsets), error),
                )
            )
        else:
            self.step(Answered(error_code=error, identity=identity))

    def produced(self, error: ErrorCode = ErrorCode.NONE) -> None:
        request = self.sent[-1]
        answers = tuple(
            PartitionAnswer(where=batch.where, error_code=error, base_offset=7)
            for batch in request.batches
        )
        self.step(ProduceAnswered(request.request_id, answers))

    def later(self, ms: int = 200) -> None:
        self.now_ms += ms
        self.step(TimePassed())

    @property
    def kinds(self) -> list[str]:
        return [type(question).__name__ for question in self.asked]


def test_each_partition_is_added_once_before_its_first_record_is_sent(figures: Figures) -> None:
    """447-24: transaction.version 0 and 1 (KIP-98)."""
    places = (HERE, TopicPartition("t", 1))
    script = Script().ready()
    script.step(BeginAsked())
    leaders = MetadataArrived(dict.fromkeys(places, BROKER))
    script.step(leaders)
    early, writes = 0, 0
    for where in (*places, *places, *places):
        asked = script.kinds.count("AddPartitions")
        script.step(
            RecordGiven(OutgoingRecord(where=where, key=str(writes), value=b"v", timestamp_ms=0))
        )
        writes += 1
        if script.kinds.count("AddPartitions") > asked:
            early += sum(batch.where == where for sent in script.sent for batch in sent.batches)
            script.say()
        script.step(leaders)
        script.produced()
    added = [
        where
        for question in script.asked
        if isinstance(question, AddPartitions)
        for where in question.partitions
    ]
    assert added == list(places) and not early
    assert sum(len(batch.records) for sent in script.sent for batch in sent.batches) == writes
    figures(
        writes=writes,
        partitions=len(places),
        added=script.kinds.count("AddPartitions"),
        sent_before_an_answer=early,
    )


def test_partition_is_added_before_it_is_written() -> None:
    """transaction.version 0 and 1 (KIP-98)."""
    script = Script().ready()
    script.step(BeginAsked())
    script.step(MetadataArrived({HERE: BROKER}))
    script.give("a")
    assert script.kinds == ["InitProducerId", "AddPartitions"] and not script.sent
    script.say()
    script.step(MetadataArrived({HERE: BROKER}))
    assert [batch.identity for batch in script.sent[0].batches] == [FIRST]


def test_with_version_2_nothing_is_added_and_each_end_bumps_the_epoch() -> None:
    """KIP-890 part 2: EndTxn's response contains the next epoch, under which sequences begin at
    0.
    """
    script = Script(transaction_version=2).begun()
    assert script.kinds == ["InitProducerId"]
    script.step(CommitAsked())
    script.say(identity=ProducerIdentity(4000, 1))
    assert script.rules.state is ProducerState.READY
    script.step(BeginAsked())
    script.give("b")
    assert [(batch.identity, batch.base_sequence) for batch in script.sent[-1].batches] == [
        (ProducerIdentity(4000, 1), 0)
    ]


def test_the_epoch_is_bumped_before_the_first_transaction_with_version_2() -> None:
    """The markers of the one before may still be on their way: Apache Kafka committed the records
    of the next transaction of the same epoch with them, and answered EndTxn INVALID_TXN_STATE.

    Source: KIP-890, TransactionManager.maybeUpdateTransactionV2Enabled.
    """
    script = Script().begun()
    script.step(
        CoordinatorFound(
            kind=CoordinatorKind.TRANSACTION, broker_id=COORDINATOR, transaction_version=2
        )
    )
    script.step(CommitAsked())
    assert not script.rules.is_implicit, "a transaction keeps the version that it began with"
    script.say()
    assert script.settled[-1].outcome is TransactionOutcome.COMMITTED
    asked = script.asked[-1]
    assert isinstance(asked, InitProducerId) and asked.identity == FIRST
    script.say(identity=ProducerIdentity(4000, 1))
    assert script.rules.state is ProducerState.READY
    script.step(BeginAsked())
    script.give("b")
    assert script.rules.is_implicit
    assert script.sent[-1].batches[0].identity == ProducerIdentity(4000, 1)


def test_a_version_that_is_learned_between_transactions_waits_for_the_next_one() -> None:
    """Only the end of a transaction, or a fresh epoch, changes how the next one begins."""
    script = Script().begun()
    script.step(CommitAsked())
    script.say()
    script.step(
        CoordinatorFound(
            kind=CoordinatorKind.TRANSACTION, broker_id=COORDINATOR, transaction_version=2
        )
    )
    script.step(BeginAsked())
    script.give("b")
    assert not script.rules.is_implicit and script.kinds[-1] == "AddPartitions"


def test_commit_waits_for_its_records_and_sequences_continue() -> None:
    script = Script().begun()
    script.give("b")
    script.step(CommitAsked())
    assert script.kinds[-1] == "AddPartitions"
    script.produced()
    assert script.asked[-1] == EndTransaction(transactional_id="id", identity=FIRST, is_commit=True)
    script.say()
    assert [each.outcome for each in script.settled] == [TransactionOutcome.COMMITTED]
    script.step(BeginAsked())
    script.give("c")
    script.say()
    assert script.sent[-1].batches[0].base_sequence == 2


def test_offsets_are_added_once_and_committed_at_the_group_coordinator(figures: Figures) -> None:
    """AddOffsetsToTxn once per group and transaction, then TxnOffsetCommit (KIP-447 names the
    member).
    """
    script = Script().begun()
    offsets = (5, 6)
    for offset in offsets:
        script.step(OffsetsGiven(group=GROUP, offsets={HERE: offset}))
        while script.rules.has_offsets_to_send:
            script.say()
    assert script.kinds[2:] == ["AddOffsets", "CommitOffsets", "CommitOffsets"]
    assert isinstance(script.asked[2], AddOffsets) and script.finds == [
        CoordinatorKind.TRANSACTION,
        CoordinatorKind.GROUP,
    ]
    figures(
        sent_offsets=len(offsets),
        added=script.kinds.count("AddOffsets"),
        committed=script.kinds.count("CommitOffsets"),
    )


def test_transaction_without_requests_ends_without_end_txn() -> None:
    script = Script().ready()
    script.step(BeginAsked())
    script.step(CommitAsked())
    assert [each.outcome for each in script.settled] == [TransactionOutcome.COMMITTED]
    assert script.kinds == ["InitProducerId"]


@pytest.mark.parametrize(
    "error, state",
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, ProducerState.COMMITTING),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ProducerState.COMMITTING),
        (ErrorCode.NOT_COORDINATOR, ProducerState.COMMITTING),
        (ErrorCode.PRODUCER_FENCED, ProducerState.FATAL_ERROR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerState.FATAL_ERROR),
        (ErrorCode.INVALID_TXN_STATE, ProducerState.FATAL_ERROR),
        (ErrorCode.TRANSACTION_ABORTABLE, ProducerState.ABORTABLE_ERROR),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ProducerState.ABORTABLE_ERROR),
    ],
)
def test_end_txn_response_decides_the_state(error: ErrorCode, state: ProducerState) -> None:
    """TransactionManager.EndTxnHandler."""
    script = Script().begun()
    script.step(CommitAsked())
    script.say(error)
    assert script.rules.state is state
    script.later()
    assert (script.kinds.count("EndTransaction") == 2) is (state is ProducerState.COMMITTING)


def state_of(script: Script) -> ProducerState:
    return script.rules.state


@pytest.mark.parametrize(
    "error",
    [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID],
)
def test_fenced_member_aborts_and_continues(error: ErrorCode, figures: Figures) -> None:
    """CommitFailedException: what KIP-447 calls fenced does not end the producer."""
    script = Script().begun()
    script.step(OffsetsGiven(group=GROUP, offsets={HERE: 5}))
    script.say()
    script.say(error)
    assert script.rules.state is ProducerState.ABORTABLE_ERROR
    script.step(AbortAsked())
    script.say()
    assert state_of(script) is ProducerState.READY
    assert [each.outcome for each in script.settled] == [TransactionOutcome.ABORTED]
    figures(state_after_abort=script.rules.state.name)


def test_lost_sequence_aborts_the_transaction_and_bumps_the_epoch() -> None:
    """KIP-360: a batch with unknown result is dropped; after the abort InitProducerId names the
    current epoch.
    """
    script = Script().begun()
    script.give("b")
    script.step(MetadataArrived({HERE: BROKER}))
    script.produced(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    script.now_ms += 6000
    script.step(TimePassed())
    assert script.rules.state is ProducerState.ABORTABLE_ERROR and [
        each.record.key for each in script.given_up
    ] == ["b"]
    script.step(AbortAsked())
    script.say()
    assert script.asked[-1] == InitProducerId(
        transactional_id="id", transaction_timeout_ms=60_000, identity=FIRST
    )
    script.say(identity=ProducerIdentity(4000, 1))
    assert state_of(script) is ProducerState.READY and script.identities == [
        FIRST,
        ProducerIdentity(4000, 1),
    ]


def test_invalid_producer_epoch_is_resolved_at_the_coordinator() -> None:
    """KIP-588: INVALID_PRODUCER_EPOCH from Produce aborts the transaction; the coordinator decides
    whether the producer is fenced.
    """
    script = Script().begun()
    script.give("b")
    script.produced(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert script.rules.state is ProducerState.ABORTABLE_ERROR
    script.step(AbortAsked())
    script.say(ErrorCode.PRODUCER_FENCED)
    assert state_of(script) is ProducerState.FATAL_ERROR
    assert [each.outcome for each in script.settled] == [TransactionOutcome.UNKNOWN]


def test_lost_request_is_retried_at_the_current_coordinator() -> None:
    script = Script().begun()
    script.step(CommitAsked())
    script.step(QuestionLost())
    assert script.rules.wake_at_ms is not None
    script.later()
    assert script.finds == [CoordinatorKind.TRANSACTION, CoordinatorKind.TRANSACTION]
    assert script.kinds[-2:] == ["EndTransaction", "EndTransaction"]

"""Producers that take the next epoch when sequence numbers are exhausted: KIP-758's rejected
alternative, with its three concerns.

The shipped producer state validates and stores their batches. The sequence limit is lowered, so
that many epochs pass.
Source: KIP-758.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from kraftsim.clients.rules_idempotent_producer import IdempotentProducer
from kraftsim.clients.rules_producer_steps import (
    FlushAsked,
    IdentityTaken,
    MetadataArrived,
    OutgoingBatch,
    OutgoingRecord,
    PartitionAnswer,
    ProduceAnswered,
    ProducerEffect,
    ProducerIdArrived,
    ProducerIdentity,
    ProducerSettings,
    RecordGiven,
    SendProduce,
    Started,
    TopicPartition,
)
from kraftsim.clients.rules_producer_variants import (
    EndingProducer,
    EndingQueue,
    EndingTransactionalProducer,
)
from kraftsim.clients.rules_transaction_steps import (
    AbortAsked,
    Answered,
    BeginAsked,
    CommitAsked,
    CoordinatorFound,
    FindCoordinator,
    InitAsked,
    InitProducerId,
    ProducerState,
    SendQuestion,
    TransactionalEffect,
    TransactionalInput,
    TransactionalSettings,
    TransactionOutcome,
    TransactionSettled,
)
from kraftsim.producer_state.rules_entries import (
    APPEND,
    LAST_SEQUENCE,
    CheckResult,
    ProducerAppend,
    ProducerStatePolicy,
    UnknownProducer,
)
from kraftsim.producer_state.rules_manager import ProducerStateManager
from kraftsim.releases.release import releases
from kraftsim.releases.traits import ACCEPTS_UNKNOWN_PRODUCERS
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record
from tests.core.batches import make_batch
from tools.claims.recording import Figures

BILLION = 10**9


class Leader:
    """The leader of all partitions: appends new batches, and reports it."""

    def __init__(self, policy: ProducerStatePolicy | None = None) -> None:
        self.policy = policy or ProducerStatePolicy(verifies_transactions=False)
        self.states: dict[TopicPartition, ProducerStateManager] = {}
        self.taken: list[str] = []
        self.errors: Counter[ErrorCode] = Counter()
        self.batches: list[RecordBatch] = []

    def answer(self, request: SendProduce) -> ProduceAnswered:
        return ProduceAnswered(
            request.request_id, tuple(self._append(each) for each in request.batches)
        )

    def _append(self, sent: OutgoingBatch) -> PartitionAnswer:
        assert sent.identity is not None
        state = self.states.setdefault(sent.where, ProducerStateManager(self.policy))
        batch = RecordBatch(
            build_batch(
                [Record(value=record.value) for record in sent.records],
                producer_id=sent.identity.producer_id,
                producer_epoch=sent.identity.producer_epoch,
                base_sequence=sent.base_sequence,
            )
        )
        verdict = state.check(batch)
        self.batches.append(batch)
        if not isinstance(verdict, ProducerAppend):
            self.errors[verdict.error] += 1
            return PartitionAnswer(where=sent.where, error_code=verdict.error, base_offset=-1)
        state.apply(batch, len(self.taken))
        self.taken += [record.key for record in sent.records]
        return PartitionAnswer(
            where=sent.where, error_code=ErrorCode.NONE, base_offset=len(self.taken)
        )


class ProducerHarness:
    """A producer of some partitions, and their leader."""

    def __init__(
        self,
        rules: Callable[[ProducerSettings], IdempotentProducer],
        partitions: int = 1,
        first_sequence: int = 0,
    ) -> None:
        self.leader = Leader()
        self.identities: list[ProducerIdentity] = []
        self.places = [TopicPartition("t", number) for number in range(partitions)]
        self.producer = rules(
            replace(
                ProducerSettings(linger_ms=0, retry_backoff_ms=0), first_sequence=first_sequence
            )
        )
        for happened in (Started(), ProducerIdArrived(7, 0)):
            self.take(self.producer.step(happened, 0))

    def take(self, effects: list[ProducerEffect]) -> None:
        for effect in effects:
            if isinstance(effect, IdentityTaken):
                self.identities.append(effect.identity)
            elif isinstance(effect, SendProduce):
                self.take(self.producer.step(self.leader.answer(effect), 0))

    def write(self, *partitions: int) -> None:
        for number in partitions:
            record = OutgoingRecord(
                where=self.places[number],
                key=str(len(self.leader.taken)),
                value=b"",
                timestamp_ms=0,
            )
            self.take(self.producer.step(RecordGiven(record), 0))
            self.take(self.producer.step(MetadataArrived(dict.fromkeys(self.places, 1)), 0))


def near(sequence_max: int) -> type[EndingProducer]:
    """Lower the sequence limit."""
    queue = type("NearQueue", (EndingQueue,), {"sequence_max": sequence_max})
    return type("NearProducer", (EndingProducer,), {"queue_class": queue})


def test_sequence_exhaustion_bumps_the_epoch_where_the_shipped_producer_wraps() -> None:
    talks = {
        rules: ProducerHarness(rules, first_sequence=LAST_SEQUENCE - 1)
        for rules in (EndingProducer, IdempotentProducer)
    }
    for driver in talks.values():
        driver.write(0, 0, 0, 0)
        assert len(driver.leader.taken) == 4 and not driver.leader.errors
    sequences = {
        rules: [(each.producer_epoch, each.base_sequence) for each in driver.leader.batches]
        for rules, driver in talks.items()
    }
    assert sequences[EndingProducer] == [(0, LAST_SEQUENCE - 1), (0, LAST_SEQUENCE), (1, 0), (1, 1)]
    assert sequences[IdempotentProducer] == [
        (0, LAST_SEQUENCE - 1),
        (0, LAST_SEQUENCE),
        (0, 0),
        (0, 1),
    ]


def test_without_sequence_wraparound_no_window_is_needed(figures: Figures) -> None:
    """Every sequence below the latest of its epoch was appended before: no bound such as 2^30 is
    required.
    """
    driver = ProducerHarness(near(99))
    driver.write(*[0] * 1000)
    assert len(driver.leader.taken) == 1000 and not driver.leader.errors
    for epoch in range(10):
        sequences = [
            each.base_sequence for each in driver.leader.batches if each.producer_epoch == epoch
        ]
        assert sequences == list(range(100)), "they only increase within an epoch"
    figures(
        records=len(driver.leader.taken),
        numbers=len({each.base_sequence for each in driver.leader.batches}),
        epochs=len({each.producer_epoch for each in driver.leader.batches}),
    )


@pytest.mark.parametrize(
    ("partitions", "hot_share", "bumps"),
    [(1, 1.0, 19), (10, 0.1, 2), (100, 0.01, 0), (10, 0.9, 18), (100, 0.9, 17)],
)
def test_bumps_decrease_with_many_partitions(
    partitions: int, hot_share: float, bumps: int, figures: Figures
) -> None:
    """Concern 2. The next epoch resets every partition to sequence 0: with 2^31 sequences there are
    at most 0.47 bumps per billion records, for any number of partitions.

    2,000 records, 100 sequences; the first partition gets `hot_share` of the records, the others
    the rest.
    """
    driver, draw = ProducerHarness(near(99), partitions), Random(1)
    for _ in range(2000):
        driver.write(
            0 if partitions == 1 or draw.random() < hot_share else draw.randrange(1, partitions)
        )
    assert len(driver.leader.taken) == 2000 and not driver.leader.errors
    assert len(driver.identities) - 1 == bumps
    assert round(BILLION / 2**31, 2) == 0.47
    figures(
        **{f"bumps_{partitions}_{round(hot_share * 100)}": len(driver.identities) - 1},
        bumps_in_a_billion=round(BILLION / 2**31, 2),
    )


class Transactions:
    """A transactional producer whose coordinator accepts everything."""

    def __init__(self, first_sequence: int) -> None:
        producer = ProducerSettings(linger_ms=0, retry_backoff_ms=0, first_sequence=first_sequence)
        self.rules = EndingTransactionalProducer(
            TransactionalSettings(transactional_id="x", producer=producer)
        )
        self.leader = Leader()
        self.identity = ProducerIdentity(4000, -1)
        self.outcomes: list[TransactionOutcome] = []
        self.step(InitAsked())

    def step(self, happened: TransactionalInput) -> None:
        for effect in self.rules.step(happened, 0):
            self.carry_out(effect)

    def carry_out(self, effect: TransactionalEffect) -> None:
        match effect:
            case FindCoordinator(kind=kind):
                self.step(CoordinatorFound(kind=kind, broker_id=1))
            case SendQuestion(question=InitProducerId()):
                self.identity = ProducerIdentity(
                    self.identity.producer_id, self.identity.producer_epoch + 1
                )
                self.step(Answered(error_code=ErrorCode.NONE, identity=self.identity))
            case SendQuestion():
                self.step(Answered(error_code=ErrorCode.NONE))
            case SendProduce():
                self.step(self.leader.answer(effect))
            case TransactionSettled(outcome=outcome):
                self.outcomes.append(outcome)

    def copy(self, records: int) -> None:
        self.step(BeginAsked())
        where = TopicPartition("t", 0)
        for number in range(records):
            if self.rules.state is ProducerState.IN_TRANSACTION:
                self.step(
                    RecordGiven(
                        OutgoingRecord(where=where, key=str(number), value=b"", timestamp_ms=0)
                    )
                )
                self.step(MetadataArrived({where: 1}))
                self.step(FlushAsked())
        self.step(
            CommitAsked() if self.rules.state is ProducerState.IN_TRANSACTION else AbortAsked()
        )


def test_only_the_transaction_that_crosses_the_end_is_aborted(figures: Figures) -> None:
    """Concern 1: one of six; the other five are in increasing epochs."""
    work = Transactions(first_sequence=LAST_SEQUENCE - 9)
    for _ in range(6):
        work.copy(4)
    assert (
        work.outcomes
        == [TransactionOutcome.COMMITTED] * 2
        + [TransactionOutcome.ABORTED]
        + [TransactionOutcome.COMMITTED] * 3
    )
    assert not work.leader.errors
    assert [(each.producer_epoch, each.base_sequence) for each in work.leader.batches][8:12] == [
        (0, LAST_SEQUENCE - 1),
        (0, LAST_SEQUENCE),
        (1, 0),
        (1, 1),
    ]
    figures(
        transactions=len(work.outcomes), aborted=work.outcomes.count(TransactionOutcome.ABORTED)
    )


def test_producer_without_the_next_epoch_wraps_and_all_leaders_accept_it(figures: Figures) -> None:
    """Concern 3, the leaders' part; tests/node/test_sequence_exhaustion.py shows which brokers give
    a producer its next epoch.
    """
    refusals: dict[tuple[str, str], CheckResult] = {}
    for release in releases():
        unknown = (
            UnknownProducer.ACCEPTED
            if release.has(ACCEPTS_UNKNOWN_PRODUCERS)
            else UnknownProducer.UNKNOWN_PRODUCER_ID
        )
        state = ProducerStateManager(
            ProducerStatePolicy(unknown_producer=unknown, verifies_transactions=False)
        )
        state.apply(make_batch(LAST_SEQUENCE), 0)
        verdicts = {
            "0 in its epoch": state.check(make_batch(0)),
            "0 in the next epoch": state.check(make_batch(0, epoch=1)),
        }
        refusals |= {
            (release.name, sent): verdict
            for sent, verdict in verdicts.items()
            if verdict is not APPEND
        }
    assert not refusals
    figures(releases_that_accept=len(releases()) - len({name for name, _ in refusals}))

"""The rules of kraftsim's producer: producer ids, sequences, order, retries."""

from collections.abc import Iterable

import pytest

from kraftsim.clients.rules_idempotent_producer import IdempotentProducer
from kraftsim.clients.rules_producer_steps import (
    FlushAsked,
    IdentityTaken,
    MetadataArrived,
    MetadataLost,
    OutgoingRecord,
    PartitionAnswer,
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
)
from protocol.errors import ErrorCode

HERE = TopicPartition("t", 0)
BROKER = 1
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class Script:
    """A producer under test, and all its effects so far. Each record is a batch of its own."""

    def __init__(self, **settings: int) -> None:
        self.now_ms = 1000
        self.producer = IdempotentProducer(ProducerSettings(**{"linger_ms": 0, **settings}))
        self.sent: list[SendProduce] = []
        self.delivered: list[tuple[str, int]] = []
        self.given_up: list[tuple[str, ErrorCode]] = []
        self.identities: list[ProducerIdentity] = []
        self.log: list[ProducerEffect] = []

    def step(self, happened: ProducerInput) -> list[ProducerEffect]:
        effects = self.producer.step(happened, self.now_ms)
        self.log.extend(effects)
        self.sent.extend(effect for effect in effects if isinstance(effect, SendProduce))
        self.delivered.extend(
            (effect.record.key, effect.offset)
            for effect in effects
            if isinstance(effect, RecordDelivered)
        )
        self.given_up.extend(
            (effect.record.key, effect.error_code)
            for effect in effects
            if isinstance(effect, RecordGivenUp)
        )
        self.identities.extend(
            effect.identity for effect in effects if isinstance(effect, IdentityTaken)
        )
        return effects

    def ready(self, where: Iterable[TopicPartition] = (HERE,)) -> "Script":
        self.step(Started())
        self.step(ProducerIdArrived(4000, 0))
        self.step(MetadataArrived(dict.fromkeys(where, BROKER)))
        return self

    def give(self, *keys: str, where: TopicPartition = HERE) -> None:
        for key in keys:
            self.step(RecordGiven(OutgoingRecord(where=where, key=key, value=b"v", timestamp_ms=0)))

    def answer(
        self, index: int, error_code: ErrorCode = ErrorCode.NONE, base_offset: int = -1
    ) -> None:
        request = self.sent[index]
        answers = tuple(
            PartitionAnswer(where=batch.where, error_code=error_code, base_offset=base_offset)
            for batch in request.batches
        )
        self.step(ProduceAnswered(request.request_id, answers))

    def lose(self, index: int) -> None:
        self.step(ProduceLost(self.sent[index].request_id))

    def later(self, ms: int = 1000) -> None:
        self.now_ms += ms
        self.step(TimePassed())

    def sequences(self, since: int = 0) -> list[tuple[str, int, int]]:
        """(first key, epoch, base sequence) of each current batch, by its request."""
        return [
            (
                batch.records[0].key,
                batch.identity.producer_epoch if batch.identity else -1,
                batch.base_sequence,
            )
            for request in self.sent[since:]
            for batch in request.batches
        ]


def test_nothing_is_sent_without_a_producer_id_and_a_leader() -> None:
    """InitProducerId comes first (KIP-98); records wait for both."""
    script = Script()
    assert script.step(Started()) == [SendInitProducerId()]
    script.give("a")
    assert script.log[1:] == [SendMetadataRequest(("t",))]
    script.step(MetadataArrived({HERE: BROKER}))
    assert script.sent == []
    script.step(ProducerIdArrived(4000, 0))
    assert script.sequences() == [("a", 0, 0)]


def test_pending_batch_is_overtaken_by_no_more_than_the_next_leader_remembers() -> None:
    """The result of the first batch is unknown for long while others are acknowledged: when retried
    it must not be out of sequence.
    """
    script = Script().ready()
    script.give("a")
    script.step(MetadataArrived({HERE: 2}))
    for number, key in enumerate("bcde", start=1):
        script.give(key)
        script.answer(number, base_offset=number)
    script.give("f", "g")
    assert script.sequences() == [("a", 0, 0), ("b", 0, 1), ("c", 0, 2), ("d", 0, 3), ("e", 0, 4)]
    script.lose(0)
    script.later(100)
    assert (script.sequences(5), script.sent[5].broker_id) == ([("a", 0, 0)], 2)
    script.answer(5, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert script.sequences(6) == [("f", 0, 5), ("g", 0, 6)]
    assert [key for key, _ in script.delivered] == ["b", "c", "d", "e", "a"]


@pytest.mark.parametrize(
    "error", [None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_CONTROLLER]
)
def test_init_producer_id_is_retried_after_a_retriable_error(error: ErrorCode | None) -> None:
    """COORDINATOR_LOAD_IN_PROGRESS means that the next block is being fetched: retry after
    retry.backoff.ms.
    """
    script = Script()
    script.step(Started())
    assert script.step(ProducerIdLost(error)) == []
    assert script.producer.wake_at_ms == script.now_ms + 100
    script.later(100)
    assert script.log[-1] == SendInitProducerId()


def test_fatal_init_producer_id_error_fails_every_record() -> None:
    """A non-retriable error is final."""
    script = Script()
    script.step(Started())
    script.give("a")
    script.step(ProducerIdLost(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    script.give("b")
    assert script.given_up == [
        ("a", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ("b", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ]
    assert script.producer.record_count == 0


def test_at_most_five_requests_are_in_flight() -> None:
    """max.in.flight.requests.per.connection: a broker remembers five batches."""
    script = Script().ready()
    script.give(*"abcdefg")
    assert script.sequences() == [(key, 0, sequence) for sequence, key in enumerate("abcde")]
    script.answer(0, base_offset=10)
    assert script.sequences(5) == [("f", 0, 5)]
    assert script.delivered == [("a", 10)]


def test_records_accumulate_until_the_linger_expires() -> None:
    """linger.ms and batch.size: one batch, one sequence range."""
    script = Script(linger_ms=5).ready()
    script.give("a", "b", "c")
    assert script.sent == []
    assert script.producer.wake_at_ms == script.now_ms + 5
    script.later(5)
    assert [len(batch.records) for batch in script.sent[0].batches] == [3]
    script.give("d")
    script.step(FlushAsked())
    assert script.sequences(1) == [("d", 0, 3)]
    script.answer(0, base_offset=7)
    assert script.delivered == [("a", 7), ("b", 8), ("c", 9)]


def test_batch_with_unknown_result_is_retried_with_its_sequence() -> None:
    """After a lost connection it is unknown what was appended: same sequences, in order, one after
    the other.
    """
    script = Script().ready()
    script.give("a", "b")
    script.lose(0)
    script.lose(1)
    assert script.sent[2:] == []
    script.later(100)
    assert script.sequences(2) == [("a", 0, 0)]
    script.answer(2, base_offset=5)
    assert script.sequences(3) == [("b", 0, 1)]
    script.answer(3, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert script.delivered == [("a", 5), ("b", -1)]


def test_new_batches_wait_for_an_older_retry() -> None:
    """Otherwise the broker would see a gap and might, without state of the producer, accept it."""
    script = Script().ready()
    script.now_ms += 200
    script.give("a")
    script.answer(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    script.give("b")
    assert script.sent[1:] == []
    assert SendMetadataRequest(("t",)) in script.log
    script.step(MetadataArrived({HERE: 2}))
    script.later(100)
    assert [request.broker_id for request in script.sent] == [1, 2, 2]
    assert script.sequences(1) == [("a", 0, 0), ("b", 0, 1)]


def test_out_of_order_after_a_pending_batch_is_only_retried() -> None:
    """The first batch failed for another reason, so those after it are out of order; the retry
    resolves that.
    """
    script = Script().ready()
    script.give("a", "b")
    script.answer(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    script.answer(1, OUT_OF_ORDER)
    script.later(100)
    script.answer(2, base_offset=0)
    assert script.sequences(2) == [("a", 0, 0), ("b", 0, 1)]
    assert script.identities == [ProducerIdentity(4000, 0)]


def test_lost_sequence_bumps_the_epoch_and_restarts_at_zero() -> None:
    """The broker's log lost the preceding batches: bump the epoch, number again from 0
    (KIP-360).
    """
    script = Script().ready()
    script.give("a", "b", "c")
    script.answer(0, base_offset=0)
    script.answer(1, OUT_OF_ORDER)
    script.answer(2, OUT_OF_ORDER)
    assert script.identities[-1] == ProducerIdentity(4000, 1)
    assert script.sequences(3) == [("b", 1, 0), ("c", 1, 1)]


def test_batch_is_not_renumbered_while_it_may_be_in_the_log() -> None:
    """`c` was lost in transit: only its own rejection proves that it is not in the log, so it is
    retried under its old sequence first.
    """
    script = Script().ready()
    script.give("a", "b", "c")
    script.answer(0, base_offset=0)
    script.answer(1, OUT_OF_ORDER)
    script.lose(2)
    script.later(100)
    assert script.identities == [ProducerIdentity(4000, 0)]
    assert script.sequences(3) == [("c", 0, 2)]
    script.answer(3, base_offset=1)
    assert script.sequences(4) == [("b", 1, 0)]
    assert script.delivered == [("a", 0), ("c", 1)]


def test_unaffected_partition_completes_batches_under_the_old_epoch() -> None:
    """An epoch bump concerns the whole producer, but a batch with unknown result keeps its epoch
    and sequence.
    """
    there = TopicPartition("t", 1)
    script = Script().ready([HERE, there])
    script.give("a")
    script.give("x", where=there)
    script.answer(0, OUT_OF_ORDER)
    assert script.sequences(2) == [("a", 1, 0)]
    script.give("y", where=there)
    assert len(script.sent) == 3
    script.answer(1, base_offset=0)
    assert script.sequences(3) == [("y", 1, 0)]


def test_new_producer_id_follows_the_last_epoch() -> None:
    """Epochs are int16."""
    script = Script()
    script.step(Started())
    script.step(ProducerIdArrived(4000, 32767))
    script.step(MetadataArrived({HERE: BROKER}))
    script.give("a")
    script.answer(0, OUT_OF_ORDER)
    assert script.log[-1] == SendInitProducerId()
    script.step(ProducerIdArrived(5000, 0))
    assert script.sequences(1) == [("a", 0, 0)]


@pytest.mark.parametrize(
    "error",
    [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR],
)
def test_permanently_rejected_batch_fails_without_a_sequence_gap(error: ErrorCode) -> None:
    """Later batches continue under a new epoch, because the sequence of the failed batch will never
    arrive.
    """
    script = Script().ready()
    script.give("a")
    script.answer(0, error)
    script.give("b")
    assert script.given_up == [("a", error)]
    assert script.sequences(1) == [("b", 1, 0)]


def test_record_fails_after_the_delivery_timeout() -> None:
    """delivery.timeout.ms; its result remains unknown."""
    script = Script(delivery_timeout_ms=500)
    script.ready()
    script.give("a")
    script.lose(0)
    script.later(501)
    assert script.given_up == [("a", ErrorCode.REQUEST_TIMED_OUT)]
    assert script.producer.record_count == 0
    script.give("b")
    assert script.sequences(1) == [("b", 1, 0)]


def test_metadata_is_requested_again_only_after_the_backoff() -> None:
    """A topic that does not exist yet must not cause a busy loop."""
    script = Script().ready(where=())
    script.give("a")
    script.step(MetadataArrived({}))
    asked = script.log.count(SendMetadataRequest(("t",)))
    script.step(FlushAsked())
    assert script.log.count(SendMetadataRequest(("t",))) == asked
    assert script.producer.wake_at_ms == script.now_ms + 100
    script.later(100)
    script.step(MetadataLost())
    script.later(100)
    assert script.log.count(SendMetadataRequest(("t",))) == asked + 2


def test_idle_producer_never_wakes() -> None:
    """An idle producer has no timer."""
    script = Script().ready()
    script.give("a")
    script.answer(0, base_offset=0)
    assert script.producer.wake_at_ms is None
    assert script.producer.record_count == 0

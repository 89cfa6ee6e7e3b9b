"""The producer of KIP-758's second phase: limited by sequences if the leader announces a window, by
five requests otherwise.
"""

import pytest

from kraftsim.clients.rules_producer_steps import (
    FlushAsked,
    MetadataArrived,
    OutgoingBatch,
    OutgoingRecord,
    PartitionAnswer,
    ProduceAnswered,
    ProduceLost,
    ProducerEffect,
    ProducerIdArrived,
    ProducerSettings,
    RecordDelivered,
    RecordGiven,
    SendProduce,
    Started,
    TimePassed,
    TopicPartition,
    WindowAnnounced,
)
from kraftsim.clients.rules_producer_variants import (
    LiteralProducer,
    UncheckedProducer,
    WindowedProducer,
)
from kraftsim.producer_state.rules_entries import APPEND, ProducerStatePolicy
from kraftsim.producer_state.rules_manager import LatestBatchStateManager, ProducerStateManager
from protocol.announced_window import announced_window, window_tag
from protocol.codec.message_codec import compiled
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import ProduceResponse
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record
from protocol.schema import Message
from tools.claims.recording import Figures

WHERE = TopicPartition("t", 0)


class ProducerHarness:
    """A producer of one partition led by broker 1; each record is a batch of its own."""

    def __init__(
        self, rules: type[WindowedProducer] = WindowedProducer, linger_ms: int = 0
    ) -> None:
        self.producer = rules(ProducerSettings(linger_ms=linger_ms, retry_backoff_ms=0))
        self.sent: list[SendProduce] = []
        self.delivered: list[int] = []
        for happened in (Started(), ProducerIdArrived(7, 0), MetadataArrived({WHERE: 1})):
            self.take(self.producer.step(happened, 0))

    def take(self, effects: list[ProducerEffect]) -> None:
        self.sent += [each for each in effects if isinstance(each, SendProduce)]
        self.delivered += [each.offset for each in effects if isinstance(each, RecordDelivered)]

    def send(self, count: int) -> int:
        for number in range(count):
            record = OutgoingRecord(where=WHERE, key=str(number), value=b"", timestamp_ms=0)
            self.take(self.producer.step(RecordGiven(record), 0))
        self.take(self.producer.step(MetadataArrived({WHERE: 1}), 0))
        return len(self.sent)

    def receive(self, broker_id: int, window: int | None) -> int:
        self.take(self.producer.step(WindowAnnounced(broker_id, window), 0))
        return len(self.sent)

    def answer(
        self, request: SendProduce, error: ErrorCode = ErrorCode.NONE, offset: int = 0
    ) -> None:
        said = PartitionAnswer(where=WHERE, error_code=error, base_offset=offset)
        self.take(self.producer.step(ProduceAnswered(request.request_id, (said,)), 0))


def test_five_requests_are_sent_until_a_window_is_announced(figures: Figures) -> None:
    driver = ProducerHarness()
    before = driver.send(60)
    assert before == 5
    windows = [20, 50, 10]
    under_way = [driver.receive(1, window) for window in windows]
    assert under_way == [20, 50, 50], (
        "a window may grow and shrink while producers run: batches in flight remain so"
    )
    for request in list(driver.sent):
        driver.answer(request)
    assert len(driver.sent) == 60
    figures(sent_before_a_window=before, windows=windows, under_way_by_window=under_way)


def test_next_leader_is_sent_five_until_it_announces_a_window(figures: Figures) -> None:
    driver = ProducerHarness()
    driver.send(8)
    driver.receive(1, 1000)
    assert len(driver.sent) == 8
    for request in list(driver.sent):
        driver.answer(request)
    driver.take(driver.producer.step(MetadataArrived({WHERE: 2}), 0))
    for number in range(20):
        driver.take(
            driver.producer.step(
                RecordGiven(
                    OutgoingRecord(where=WHERE, key=str(number), value=b"", timestamp_ms=0)
                ),
                0,
            )
        )
    assert len(driver.sent) == 8 + 5
    assert driver.receive(2, 1000) == 8 + 20
    figures(sent_in_the_end=len(driver.sent))


@pytest.mark.parametrize(("rules", "sent"), [(WindowedProducer, 5), (LiteralProducer, 1)])
def test_five_are_five_requests_or_literally_five_sequences(
    rules: type[WindowedProducer], sent: int, figures: Figures
) -> None:
    """Eight batches of three records at a leader that announces nothing."""
    driver = ProducerHarness(rules, linger_ms=1000)
    for _ in range(8):
        for number in range(3):
            record = OutgoingRecord(where=WHERE, key=str(number), value=b"", timestamp_ms=0)
            driver.take(driver.producer.step(RecordGiven(record), 0))
        driver.take(driver.producer.step(FlushAsked(), 0))
    driver.take(driver.producer.step(MetadataArrived({WHERE: 1}), 0))
    assert len(driver.sent) == sent
    figures(**{f"sent_{rules.__name__}": len(driver.sent)})


@pytest.mark.parametrize(("rules", "sent"), [(WindowedProducer, 5), (UncheckedProducer, 20)])
def test_without_fallback_the_next_leader_is_sent_the_former_leaders_window(
    rules: type[WindowedProducer], sent: int
) -> None:
    driver = ProducerHarness(rules)
    driver.send(1)
    driver.receive(1, 1000)
    driver.answer(driver.sent[0])
    driver.take(driver.producer.step(MetadataArrived({WHERE: 2}), 0))
    for number in range(20):
        driver.take(
            driver.producer.step(
                RecordGiven(
                    OutgoingRecord(where=WHERE, key=str(number), value=b"", timestamp_ms=0)
                ),
                0,
            )
        )
    assert len(driver.sent) - 1 == sent


def test_broker_that_stops_announcing_is_sent_five_again() -> None:
    driver = ProducerHarness()
    driver.send(30)
    assert driver.receive(1, 12) == 12
    driver.receive(1, None)
    for request in driver.sent[:7]:
        driver.answer(request)
    assert len(driver.sent) == 12, "five are still in flight"
    driver.answer(driver.sent[7])
    assert len(driver.sent) == 13


def test_duplicate_completes_and_out_of_order_is_retried(figures: Figures) -> None:
    driver = ProducerHarness()
    driver.send(8)
    driver.receive(1, 100)
    driver.answer(driver.sent[1], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    driver.answer(driver.sent[0], ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
    assert driver.delivered == [-1]
    driver.take(driver.producer.step(TimePassed(), 1))
    assert driver.sent[8].batches[0].base_sequence == 1 and driver.sent[8].batches[0].attempts == 2
    figures(offset_delivered=driver.delivered[0], attempts=driver.sent[8].batches[0].attempts)


@pytest.mark.parametrize("window", [1, 500, 2**30])
def test_produce_response_carries_the_window(window: int) -> None:
    answer: Message = ProduceResponse()
    answer._tags = window_tag(window)
    decoded: Message
    decoded, _ = compiled(ProduceResponse, 9).decode(compiled(ProduceResponse, 9).encode(answer), 0)
    assert announced_window(decoded._tags) == window
    assert announced_window(None) is None and announced_window({758: b"1"}) is None


@pytest.mark.parametrize(
    ("state", "doubled"), [(ProducerStateManager, 7), (LatestBatchStateManager, 0)]
)
@pytest.mark.parametrize("rules", [WindowedProducer, LiteralProducer, UncheckedProducer])
def test_old_leader_duplicates_batches_in_flight_beyond_five(
    rules: type[WindowedProducer], state: type[ProducerStateManager], doubled: int, figures: Figures
) -> None:
    """20 batches are sent under a window, 12 of them are in the log when the leader dies: a leader
    that remembers five rejects 0 to 6 as out of order.
    """
    driver, leader = ProducerHarness(rules), state(ProducerStatePolicy())
    driver.receive(1, 1000)
    driver.send(20)
    log = [request.batches[0] for request in driver.sent[:12]]
    assert len(driver.sent) == 20
    for offset, batch in enumerate(log):
        leader.apply(as_batch(batch), offset)
    keys = [batch.records[0].key for batch in log]
    for request in list(driver.sent):
        driver.take(driver.producer.step(ProduceLost(request.request_id), 0))
    place = 20
    driver.take(driver.producer.step(MetadataArrived({WHERE: 2}), 0))
    while place < len(driver.sent):
        request = driver.sent[place]
        place += 1
        verdict = leader.check(as_batch(request.batches[0]))
        if verdict is APPEND:
            leader.apply(as_batch(request.batches[0]), len(keys))
            keys.append(request.batches[0].records[0].key)
        driver.answer(request, getattr(verdict, "error", ErrorCode.NONE), -1)
        driver.take(driver.producer.step(TimePassed(), 1000))
    assert set(keys) == {str(number) for number in range(20)}
    assert len(keys) - 20 == doubled
    figures(under_way=len(log), **{f"doubled_by_{state.__name__}": len(keys) - 20})


def as_batch(sent: OutgoingBatch) -> RecordBatch:
    """Return the bytes of a batch of one record."""
    assert sent.identity is not None
    return RecordBatch(
        build_batch(
            [Record(key=sent.records[0].key.encode())],
            producer_id=sent.identity.producer_id,
            producer_epoch=sent.identity.producer_epoch,
            base_sequence=sent.base_sequence,
        )
    )

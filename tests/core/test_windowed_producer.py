"""The producer of KIP-758's second phase: throttled by sequence numbers where the leader announces a window, by five requests where it does not."""

import pytest

from kraftsim.core.clients.producer_steps import (
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
from kraftsim.core.clients.windowed_producer import LiteralProducer, UncheckedProducer, WindowedProducer
from kraftsim.core.producer_state.latest_batch import LatestBatchStateManager
from kraftsim.core.producer_state.manager import ProducerStateManager
from kraftsim.core.producer_state.policy import ProducerStatePolicy
from kraftsim.core.producer_state.verdict import APPEND
from protocol.announced_window import announced_window, window_tag
from protocol.batches import RecordBatch, build_batch
from protocol.errors import ErrorCode
from protocol.message_codec import compiled
from protocol.messages.k00_produce import ProduceResponse
from protocol.records import Record
from protocol.schema import Message

WHERE = TopicPartition("t", 0)


class Talk:
    """A producer of one partition that broker 1 leads; each record is a batch of its own."""

    def __init__(self, rules: type[WindowedProducer] = WindowedProducer, linger_ms: int = 0) -> None:
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

    def hear(self, broker_id: int, window: int | None) -> int:
        self.take(self.producer.step(WindowAnnounced(broker_id, window), 0))
        return len(self.sent)

    def answer(self, request: SendProduce, error: ErrorCode = ErrorCode.NONE, offset: int = 0) -> None:
        said = PartitionAnswer(where=WHERE, error_code=error, base_offset=offset)
        self.take(self.producer.step(ProduceAnswered(request.request_id, (said,)), 0))


def test_five_requests_leave_until_a_window_is_announced_and_then_as_many_sequences_as_fit(figures):
    talk = Talk()
    before = talk.send(60)
    assert before == 5
    windows = [20, 50, 10]
    under_way = [talk.hear(1, window) for window in windows]
    assert under_way == [20, 50, 50], "a window may grow while producers run, and shrink: what is under way stays so"
    for request in list(talk.sent):
        talk.answer(request)
    assert len(talk.sent) == 60
    figures(sent_before_a_window=before, windows=windows, under_way_by_window=under_way)


def test_the_next_leader_is_sent_five_until_it_has_announced_a_window(figures):
    talk = Talk()
    talk.send(8)
    talk.hear(1, 1000)
    assert len(talk.sent) == 8
    for request in list(talk.sent):
        talk.answer(request)
    talk.take(talk.producer.step(MetadataArrived({WHERE: 2}), 0))
    for number in range(20):
        talk.take(talk.producer.step(RecordGiven(OutgoingRecord(where=WHERE, key=str(number), value=b"", timestamp_ms=0)), 0))
    assert len(talk.sent) == 8 + 5
    assert talk.hear(2, 1000) == 8 + 20
    figures(sent_in_the_end=len(talk.sent))


@pytest.mark.parametrize(("rules", "sent"), [(WindowedProducer, 5), (LiteralProducer, 1)])
def test_five_are_five_requests_and_to_the_letter_five_sequence_numbers(rules: type[WindowedProducer], sent: int, figures):
    """Eight batches of three records at a leader that announces nothing."""
    talk = Talk(rules, linger_ms=1000)
    for _ in range(8):
        for number in range(3):
            record = OutgoingRecord(where=WHERE, key=str(number), value=b"", timestamp_ms=0)
            talk.take(talk.producer.step(RecordGiven(record), 0))
        talk.take(talk.producer.step(FlushAsked(), 0))
    talk.take(talk.producer.step(MetadataArrived({WHERE: 1}), 0))
    assert len(talk.sent) == sent
    figures(**{f"sent_{rules.__name__}": len(talk.sent)})


@pytest.mark.parametrize(("rules", "sent"), [(WindowedProducer, 5), (UncheckedProducer, 20)])
def test_who_does_not_fall_back_sends_the_next_leader_what_the_one_before_could_take(rules: type[WindowedProducer], sent: int):
    talk = Talk(rules)
    talk.send(1)
    talk.hear(1, 1000)
    talk.answer(talk.sent[0])
    talk.take(talk.producer.step(MetadataArrived({WHERE: 2}), 0))
    for number in range(20):
        talk.take(talk.producer.step(RecordGiven(OutgoingRecord(where=WHERE, key=str(number), value=b"", timestamp_ms=0)), 0))
    assert len(talk.sent) - 1 == sent


def test_a_broker_that_announces_nothing_any_more_is_sent_five_again():
    talk = Talk()
    talk.send(30)
    assert talk.hear(1, 12) == 12
    talk.hear(1, None)
    for request in talk.sent[:7]:
        talk.answer(request)
    assert len(talk.sent) == 12, "five are under way still"
    talk.answer(talk.sent[7])
    assert len(talk.sent) == 13


def test_a_duplicate_is_done_with_and_what_is_out_of_order_goes_out_again(figures):
    talk = Talk()
    talk.send(8)
    talk.hear(1, 100)
    talk.answer(talk.sent[1], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    talk.answer(talk.sent[0], ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
    assert talk.delivered == [-1]
    talk.take(talk.producer.step(TimePassed(), 1))
    assert talk.sent[8].batches[0].base_sequence == 1 and talk.sent[8].batches[0].attempts == 2
    figures(offset_delivered=talk.delivered[0], attempts=talk.sent[8].batches[0].attempts)


@pytest.mark.parametrize("window", [1, 500, 2**30])
def test_an_answer_of_produce_carries_the_window_beside_all_else(window):
    answer: Message = ProduceResponse()
    answer._tags = window_tag(window)
    told: Message
    told, _ = compiled(ProduceResponse, 9).decode(compiled(ProduceResponse, 9).encode(answer), 0)
    assert announced_window(told._tags) == window
    assert announced_window(None) is None and announced_window({758: b"1"}) is None


@pytest.mark.parametrize(("state", "doubled"), [(ProducerStateManager, 7), (LatestBatchStateManager, 0)])
@pytest.mark.parametrize("rules", [WindowedProducer, LiteralProducer, UncheckedProducer])
def test_what_was_under_way_beyond_five_is_doubled_by_an_old_leader_whoever_falls_back(rules, state, doubled: int, figures):
    """20 batches leave under a window, 12 of them are in the log when the leader dies: one that knows five takes 0 to 6 for out of order."""
    talk, leader = Talk(rules), state(ProducerStatePolicy())
    talk.hear(1, 1000)
    talk.send(20)
    log = [request.batches[0] for request in talk.sent[:12]]
    assert len(talk.sent) == 20
    for offset, batch in enumerate(log):
        leader.apply(as_batch(batch), offset)
    keys = [batch.records[0].key for batch in log]
    for request in list(talk.sent):
        talk.take(talk.producer.step(ProduceLost(request.request_id), 0))
    place = 20
    talk.take(talk.producer.step(MetadataArrived({WHERE: 2}), 0))
    while place < len(talk.sent):
        request = talk.sent[place]
        place += 1
        verdict = leader.check(as_batch(request.batches[0]))
        if verdict is APPEND:
            leader.apply(as_batch(request.batches[0]), len(keys))
            keys.append(request.batches[0].records[0].key)
        talk.answer(request, getattr(verdict, "error", ErrorCode.NONE), -1)
        talk.take(talk.producer.step(TimePassed(), 1000))
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

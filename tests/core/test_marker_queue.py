"""Which markers are asked of whom, what follows from the answers, and when a transaction is over.

Source: TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler; KAFKA-10080, KAFKA-16352.
"""

import pytest

from kraftsim.core.transactions.marker_queue import Complete, Effect, EndedTransaction, MarkerQueue, NoLeader, RetryLater, SendMarkers
from kraftsim.core.transactions.transaction_entry import TopicPartition, TransactionEntry, TransactionFacts
from kraftsim.core.transactions.transaction_rules import TransactionRules
from kraftsim.core.transactions.transaction_state import PREPARE_COMMIT
from protocol.errors import ErrorCode

A, B, C = ("a", 0), ("b", 0), ("c", 0)
NONE, FENCED = ErrorCode.NONE, ErrorCode.TRANSACTION_COORDINATOR_FENCED


class Leaders:
    """A queue of markers, and who leads what."""

    def __init__(self, leaders: dict[TopicPartition, int | NoLeader], queue: type[MarkerQueue] = MarkerQueue) -> None:
        self.leaders = leaders
        self.queue = queue(lambda partition: self.leaders.get(partition, NoLeader.GONE))

    def end(self, *partitions: TopicPartition, name: str = "x", producer_id: int = 1, coordinator_epoch: int = 0) -> EndedTransaction:
        """Decide a transaction."""
        facts = TransactionFacts(
            producer_id=producer_id, producer_epoch=3, timeout_ms=1, state=PREPARE_COMMIT, partitions=partitions, start_ms=1, last_update_ms=1
        )
        entry = TransactionEntry(name, facts)
        ended = EndedTransaction(entry, TransactionRules().completed(entry, 2), 0, coordinator_epoch)
        self.queue.add(ended)
        return ended

    def effects(self) -> list[str]:
        """What is to be done, in words."""
        return [_words(effect) for effect in self.queue.take_effects()]

    def answer(self, broker_id: int, errors: dict[TopicPartition, ErrorCode], producer_id: int = 1) -> list[str]:
        """Let a broker answer, and return what follows."""
        self.queue.on_answer(broker_id, {producer_id: errors})
        return self.effects()


def _words(effect: Effect) -> str:
    match effect:
        case SendMarkers():
            rows = (f"{marker.ended.transactional_id}:{''.join(topic for topic, _ in marker.partitions)}" for marker in effect.markers)
            return f"ask {effect.broker_id} {' '.join(rows)}"
        case Complete():
            return f"complete {effect.ended.transactional_id}"
        case RetryLater():
            return "retry later"


def test_each_leader_is_asked_once_for_all_that_it_leads():
    lab = Leaders({A: 1, B: 2, C: 1})
    ended = lab.end(A, B, C)
    assert lab.effects() == ["ask 1 x:ac", "ask 2 x:b"]
    assert lab.answer(1, {A: NONE, C: NONE}) == []
    assert ended.entry.facts.partitions == (B,), "what is written is not told any more"
    assert lab.answer(2, {B: NONE}) == ["complete x"]


def test_while_a_broker_is_asked_what_comes_next_gathers():
    lab = Leaders({A: 1, B: 1})
    lab.end(A, name="x", producer_id=1)
    assert lab.effects() == ["ask 1 x:a"]
    lab.end(A, name="y", producer_id=2)
    lab.end(B, name="z", producer_id=3)
    assert lab.effects() == []
    assert sorted(lab.answer(1, {A: NONE})) == ["ask 1 y:a z:b", "complete x"]
    lab.queue.on_answer(1, {2: {A: NONE}, 3: {B: NONE}})
    assert lab.effects() == ["complete y", "complete z"]


def test_a_transaction_without_partitions_is_over_at_once():
    lab = Leaders({})
    lab.end()
    assert lab.effects() == ["complete x"]


def test_a_partition_that_is_gone_needs_no_marker():
    lab = Leaders({A: 1})
    lab.end(A, B)
    assert lab.effects() == ["ask 1 x:a"]
    assert lab.answer(1, {A: NONE}) == ["complete x"]


def test_where_nobody_leads_it_waits():
    lab = Leaders({A: NoLeader.UNKNOWN})
    lab.end(A)
    assert lab.effects() == ["retry later"]
    lab.queue.retry()
    assert lab.effects() == ["retry later"]
    lab.leaders[A] = 2
    lab.queue.retry()
    assert lab.effects() == ["ask 2 x:a"]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_what_could_not_be_written_is_asked_of_whoever_leads_then(error):
    lab = Leaders({A: 1, B: 1})
    lab.end(A, B)
    lab.effects()
    assert lab.answer(1, {A: error, B: NONE}) == ["retry later"]
    lab.leaders[A] = 3
    lab.queue.retry()
    assert lab.effects() == ["ask 3 x:a"]
    assert lab.answer(3, {A: NONE}) == ["complete x"]


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, FENCED])
def test_whoever_is_overtaken_asks_nobody_any_more(error):
    lab = Leaders({A: 1, B: 2})
    lab.end(A, B)
    lab.effects()
    assert lab.answer(1, {A: error}) == []
    assert lab.answer(2, {B: NONE}) == [], "it is never completed here"
    lab.queue.retry()
    assert (lab.effects(), lab.queue.pending) == ([], {})


@pytest.mark.parametrize("error", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
def test_a_log_that_cannot_hold_markers_needs_none(error):
    lab = Leaders({A: 1})
    lab.end(A)
    lab.effects()
    assert lab.answer(1, {A: error}) == ["complete x"]


def test_a_lost_broker_is_asked_again_or_whoever_leads_instead():
    lab = Leaders({A: 1, B: 1})
    lab.end(A, B)
    lab.effects()
    lab.queue.on_lost(1)
    assert lab.effects() == ["retry later"]
    lab.leaders[B] = 2
    lab.queue.retry()
    assert lab.effects() == ["ask 1 x:a", "ask 2 x:b"]


def test_a_completion_that_cannot_be_written_now_is_written_later():
    lab = Leaders({})
    ended = lab.end()
    assert lab.effects() == ["complete x"]
    lab.queue.on_not_completed(ended)
    assert lab.effects() == ["retry later"]
    lab.queue.retry()
    assert lab.effects() == ["complete x"]


def test_what_another_coordinator_does_is_not_done_here():
    lab = Leaders({A: 1, B: NoLeader.UNKNOWN})
    lab.end(A, B)
    lab.effects()
    lab.queue.forget_shard(0)
    assert lab.answer(1, {A: NONE}) == []
    lab.queue.retry()
    assert (lab.effects(), lab.queue.pending) == ([], {})


def test_a_late_answer_does_not_touch_what_a_later_epoch_of_the_coordinator_asks():
    """KAFKA-16352: the clean-up of the former one must not take the entry of the new one away."""
    lab = Leaders({A: 1, B: 2})
    lab.end(A)
    lab.effects()
    lab.queue.forget_shard(0)
    again = lab.end(B, coordinator_epoch=2)
    assert lab.effects() == ["ask 2 x:b"]
    assert lab.answer(1, {A: FENCED}) == []
    assert lab.queue.is_current(again)
    assert lab.answer(2, {B: NONE}) == ["complete x"]


class ForgetsByName(MarkerQueue):
    """KAFKA-16352: whoever cleans up takes away what is there under the name."""

    def cancel(self, ended: EndedTransaction) -> None:
        self.pending.pop(ended.transactional_id, None)

    def is_current(self, ended: EndedTransaction) -> bool:
        return ended.transactional_id in self.pending


def test_the_bug_is_within_reach_of_its_part():
    lab = Leaders({A: 1, B: 2}, ForgetsByName)
    lab.end(A)
    lab.effects()
    lab.queue.pending.clear()
    lab.end(B, coordinator_epoch=2)
    lab.effects()
    lab.answer(1, {A: FENCED})
    assert lab.answer(2, {B: NONE}) == [], "the transaction is never completed"

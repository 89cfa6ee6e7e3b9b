"""Which markers are sent to which brokers, how responses are handled, and when a transaction is
complete.

Source: TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler; KAFKA-10080,
KAFKA-16352.
"""

import pytest

from kraftsim.transactions.rules_coordinator import TransactionRules
from kraftsim.transactions.rules_markers import (
    Complete,
    MarkerEffect,
    MarkerQueue,
    NoLeader,
    PreparedTransaction,
    RetryLater,
    SendMarkers,
)
from kraftsim.transactions.rules_state import (
    PREPARE_COMMIT,
    TopicPartition,
    TransactionEntry,
    TransactionFacts,
)
from protocol.errors import ErrorCode

A, B, C = ("a", 0), ("b", 0), ("c", 0)
NONE, FENCED = ErrorCode.NONE, ErrorCode.TRANSACTION_COORDINATOR_FENCED


class Leaders:
    """A queue of markers, and the leader of each partition."""

    def __init__(
        self, leaders: dict[TopicPartition, int | NoLeader], queue: type[MarkerQueue] = MarkerQueue
    ) -> None:
        self.leaders = leaders
        self.queue = queue(lambda partition: self.leaders.get(partition, NoLeader.GONE))
        self._due: list[MarkerEffect] = []

    def end(
        self,
        *partitions: TopicPartition,
        name: str = "x",
        producer_id: int = 1,
        coordinator_epoch: int = 0,
    ) -> PreparedTransaction:
        """Decide a transaction."""
        facts = TransactionFacts(
            producer_id=producer_id,
            producer_epoch=3,
            timeout_ms=1,
            state=PREPARE_COMMIT,
            partitions=partitions,
            start_ms=1,
            last_update_ms=1,
        )
        entry = TransactionEntry(name, facts)
        ended = PreparedTransaction(
            entry, TransactionRules().completed(entry, 2), 0, coordinator_epoch
        )
        self.run(self.queue.add(ended))
        return ended

    def run(self, effects: list[MarkerEffect]) -> None:
        """Keep the effects of an input."""
        self._due += effects

    def effects(self) -> list[str]:
        """The pending effects, as text."""
        effects, self._due = self._due, []
        return [_text(effect) for effect in effects]

    def answer(
        self, broker_id: int, errors: dict[TopicPartition, ErrorCode], producer_id: int = 1
    ) -> list[str]:
        """Deliver a broker's response, and return the effects."""
        self.run(self.queue.on_answer(broker_id, {producer_id: errors}))
        return self.effects()


def _text(effect: MarkerEffect) -> str:
    match effect:
        case SendMarkers():
            rows = (
                (
                    f"{marker.ended.transactional_id}:"
                    f"{''.join(topic for topic, _ in marker.partitions)}"
                )
                for marker in effect.markers
            )
            return f"ask {effect.broker_id} {' '.join(rows)}"
        case Complete():
            return f"complete {effect.ended.transactional_id}"
        case RetryLater():
            return "retry later"


def test_each_leader_receives_one_request_for_all_its_partitions() -> None:
    harness = Leaders({A: 1, B: 2, C: 1})
    ended = harness.end(A, B, C)
    assert harness.effects() == ["ask 1 x:ac", "ask 2 x:b"]
    assert harness.answer(1, {A: NONE, C: NONE}) == []
    assert ended.entry.facts.partitions == (B,), "a written marker is not sent again"
    assert harness.answer(2, {B: NONE}) == ["complete x"]


def test_markers_accumulate_while_a_request_is_in_flight() -> None:
    harness = Leaders({A: 1, B: 1})
    harness.end(A, name="x", producer_id=1)
    assert harness.effects() == ["ask 1 x:a"]
    harness.end(A, name="y", producer_id=2)
    harness.end(B, name="z", producer_id=3)
    assert harness.effects() == []
    assert sorted(harness.answer(1, {A: NONE})) == ["ask 1 y:a z:b", "complete x"]
    harness.run(harness.queue.on_answer(1, {2: {A: NONE}, 3: {B: NONE}}))
    assert harness.effects() == ["complete y", "complete z"]


def test_transaction_without_partitions_completes_immediately() -> None:
    harness = Leaders({})
    harness.end()
    assert harness.effects() == ["complete x"]


def test_deleted_partition_needs_no_marker() -> None:
    harness = Leaders({A: 1})
    harness.end(A, B)
    assert harness.effects() == ["ask 1 x:a"]
    assert harness.answer(1, {A: NONE}) == ["complete x"]


def test_marker_waits_while_there_is_no_leader() -> None:
    harness = Leaders({A: NoLeader.UNKNOWN})
    harness.end(A)
    assert harness.effects() == ["retry later"]
    harness.run(harness.queue.retry())
    assert harness.effects() == ["retry later"]
    harness.leaders[A] = 2
    harness.run(harness.queue.retry())
    assert harness.effects() == ["ask 2 x:a"]


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
def test_failed_marker_is_sent_to_the_current_leader(error: ErrorCode) -> None:
    harness = Leaders({A: 1, B: 1})
    harness.end(A, B)
    harness.effects()
    assert harness.answer(1, {A: error, B: NONE}) == ["retry later"]
    harness.leaders[A] = 3
    harness.run(harness.queue.retry())
    assert harness.effects() == ["ask 3 x:a"]
    assert harness.answer(3, {A: NONE}) == ["complete x"]


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, FENCED])
def test_fenced_coordinator_sends_no_more_markers(error: ErrorCode) -> None:
    harness = Leaders({A: 1, B: 2})
    harness.end(A, B)
    harness.effects()
    assert harness.answer(1, {A: error}) == []
    assert harness.answer(2, {B: NONE}) == [], "it is never completed here"
    harness.run(harness.queue.retry())
    assert (harness.effects(), harness.queue.pending) == ([], {})


@pytest.mark.parametrize(
    "error", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION]
)
def test_log_that_does_not_support_markers_needs_none(error: ErrorCode) -> None:
    harness = Leaders({A: 1})
    harness.end(A)
    harness.effects()
    assert harness.answer(1, {A: error}) == ["complete x"]


def test_marker_is_retried_at_the_lost_broker_or_the_new_leader() -> None:
    harness = Leaders({A: 1, B: 1})
    harness.end(A, B)
    harness.effects()
    harness.run(harness.queue.on_lost(1))
    assert harness.effects() == ["retry later"]
    harness.leaders[B] = 2
    harness.run(harness.queue.retry())
    assert harness.effects() == ["ask 1 x:a", "ask 2 x:b"]


def test_failed_completion_is_written_later() -> None:
    harness = Leaders({})
    ended = harness.end()
    assert harness.effects() == ["complete x"]
    harness.run(harness.queue.on_not_completed(ended))
    assert harness.effects() == ["retry later"]
    harness.run(harness.queue.retry())
    assert harness.effects() == ["complete x"]


def test_completion_by_another_coordinator_is_not_repeated() -> None:
    harness = Leaders({A: 1, B: NoLeader.UNKNOWN})
    harness.end(A, B)
    harness.effects()
    harness.queue.forget_shard(0)
    assert harness.answer(1, {A: NONE}) == []
    harness.run(harness.queue.retry())
    assert (harness.effects(), harness.queue.pending) == ([], {})


def test_late_response_does_not_affect_a_later_coordinator_epoch() -> None:
    """KAFKA-16352: the clean-up of the former epoch must not remove the entry of the new one."""
    harness = Leaders({A: 1, B: 2})
    harness.end(A)
    harness.effects()
    harness.queue.forget_shard(0)
    again = harness.end(B, coordinator_epoch=2)
    assert harness.effects() == ["ask 2 x:b"]
    assert harness.answer(1, {A: FENCED}) == []
    assert harness.queue.is_current(again)
    assert harness.answer(2, {B: NONE}) == ["complete x"]


class ForgetsByName(MarkerQueue):
    """KAFKA-16352: the clean-up removes the entry by its name."""

    def cancel(self, ended: PreparedTransaction) -> None:
        self.pending.pop(ended.transactional_id, None)

    def is_current(self, ended: PreparedTransaction) -> bool:
        return ended.transactional_id in self.pending


def test_injected_bug_is_detected_by_these_tests() -> None:
    harness = Leaders({A: 1, B: 2}, ForgetsByName)
    harness.end(A)
    harness.effects()
    harness.queue.pending.clear()
    harness.end(B, coordinator_epoch=2)
    harness.effects()
    harness.answer(1, {A: FENCED})
    assert harness.answer(2, {B: NONE}) == [], "the transaction is never completed"

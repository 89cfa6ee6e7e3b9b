"""The producer of KIP-758's second phase: not limited by in-flight requests, but by the leader's
window of sequence numbers.

A leader without an announced window is an existing broker: at most five requests are in flight to
it. The same holds after each leader change, until the first response of the new leader. A batch
with DUPLICATE_SEQUENCE_NUMBER is in the log and resolved; an out-of-order one is retried as usual.
Source: KIP-758 (never adopted).
"""

from kraftsim.core.clients.idempotent_producer import IdempotentProducer
from kraftsim.core.clients.partition_queue import REMEMBERED_BATCHES, PartitionQueue
from kraftsim.core.clients.producer_steps import (
    OutgoingBatch,
    ProducerSettings,
    TopicPartition,
    WindowAnnounced,
)

REQUESTS_MAX = 1000
"""Not a protocol limit: the maximum of in-flight requests per connection."""


class WindowedQueue(PartitionQueue):
    """Holds as many unresolved batches as fit in the window; five without a window."""

    def __init__(self, where: TopicPartition, first_sequence: int = 0) -> None:
        super().__init__(where, first_sequence)
        self.window: int | None = None

    def has_room_for(self, batch: OutgoingBatch) -> bool:
        """Return whether a batch may join the unresolved ones."""
        if self.window is None:
            return super().has_room_for(batch)
        under_way = self.sequences_under_way()
        return not under_way or under_way + len(batch.records) <= self.window


class LiteralQueue(WindowedQueue):
    """Falls back to five sequence numbers, as in the text: a batch of six records waits until it is
    alone.
    """

    def has_room_for(self, batch: OutgoingBatch) -> bool:
        """Return whether a batch may join the unresolved ones."""
        if self.window is not None:
            return super().has_room_for(batch)
        under_way = self.sequences_under_way()
        return not under_way or under_way + len(batch.records) <= REMEMBERED_BATCHES


class WindowedProducer(IdempotentProducer):
    """Sends to each leader within its window."""

    queue_class = WindowedQueue

    def __init__(self, settings: ProducerSettings) -> None:
        super().__init__(settings)
        self._windows: dict[int, int] = {}

    def _on_window(self, announced: WindowAnnounced) -> None:
        if announced.sequences is None:
            self._windows.pop(announced.broker_id, None)
        else:
            self._windows[announced.broker_id] = announced.sequences

    def _requests_max(self, broker_id: int) -> int:
        return (
            REQUESTS_MAX
            if broker_id in self._windows
            else min(super()._requests_max(broker_id), REMEMBERED_BATCHES)
        )

    def _may_send_to(self, where: TopicPartition) -> bool:
        queue = self._queues[where]
        assert isinstance(queue, WindowedQueue), "its queues are windowed"
        queue.window = self._windows.get(self._leaders.get(where, -1))
        return super()._may_send_to(where)


class LiteralProducer(WindowedProducer):
    """Follows the text literally for a leader without a window."""

    queue_class = LiteralQueue


class UncheckedProducer(WindowedProducer):
    """Does not fall back: a window announced by one leader is used for the next one."""

    def _may_send_to(self, where: TopicPartition) -> bool:
        announced = max(self._windows.values(), default=None)
        may = super()._may_send_to(where)
        queue = self._queues[where]
        assert isinstance(queue, WindowedQueue), "its queues are windowed"
        queue.window = queue.window or announced
        return may

    def _requests_max(self, broker_id: int) -> int:
        return REQUESTS_MAX if self._windows else super()._requests_max(broker_id)

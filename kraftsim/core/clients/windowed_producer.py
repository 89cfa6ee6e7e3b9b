"""The producer of KIP-758's second phase: how many requests are under way is no matter, how many sequence numbers are is told by the leader.

A leader that announces no window is a broker of the kind there is: it is sent five requests at most. So it is after each change of leader, until the
new one has answered once. What is called a duplicate is in the log and done with; what is out of order is sent again, as ever.
Source: KIP-758 (never adopted).
"""

from kraftsim.core.clients.idempotent_producer import IdempotentProducer
from kraftsim.core.clients.partition_queue import REMEMBERED_BATCHES, PartitionQueue
from kraftsim.core.clients.producer_steps import OutgoingBatch, ProducerSettings, TopicPartition, WindowAnnounced

REQUESTS_MAX = 1000
"""Not a limit of the protocol's: what one connection is asked to hold."""


class WindowedQueue(PartitionQueue):
    """Holds as many batches of open fate as fit in the window; five, where there is none."""

    def __init__(self, where: TopicPartition, first_sequence: int = 0) -> None:
        super().__init__(where, first_sequence)
        self.window: int | None = None

    def has_room_for(self, batch: OutgoingBatch) -> bool:
        """Tell whether a batch may join those whose fate is open."""
        if self.window is None:
            return super().has_room_for(batch)
        under_way = self.sequences_under_way()
        return not under_way or under_way + len(batch.records) <= self.window


class LiteralQueue(WindowedQueue):
    """Falls back to five as the text has it, to five sequence numbers: a batch of six records waits until it is alone."""

    def has_room_for(self, batch: OutgoingBatch) -> bool:
        """Tell whether a batch may join those whose fate is open."""
        if self.window is not None:
            return super().has_room_for(batch)
        under_way = self.sequences_under_way()
        return not under_way or under_way + len(batch.records) <= REMEMBERED_BATCHES


class WindowedProducer(IdempotentProducer):
    """Sends to each leader as it wants it."""

    queue_class = WindowedQueue

    def __init__(self, settings: ProducerSettings) -> None:
        super().__init__(settings)
        self._windows: dict[int, int] = {}

    def _hear_window(self, announced: WindowAnnounced) -> None:
        if announced.sequences is None:
            self._windows.pop(announced.broker_id, None)
        else:
            self._windows[announced.broker_id] = announced.sequences

    def _requests_max(self, broker_id: int) -> int:
        return REQUESTS_MAX if broker_id in self._windows else min(super()._requests_max(broker_id), REMEMBERED_BATCHES)

    def _may_send_to(self, where: TopicPartition) -> bool:
        queue = self._queues[where]
        assert isinstance(queue, WindowedQueue), "it was made here"
        queue.window = self._windows.get(self._leaders.get(where, -1))
        return super()._may_send_to(where)


class LiteralProducer(WindowedProducer):
    """Reads the text to the letter where a leader announces nothing."""

    queue_class = LiteralQueue


class UncheckedProducer(WindowedProducer):
    """Does not fall back: whatever one leader has announced holds for the next one."""

    def _may_send_to(self, where: TopicPartition) -> bool:
        announced = max(self._windows.values(), default=None)
        may = super()._may_send_to(where)
        queue = self._queues[where]
        assert isinstance(queue, WindowedQueue), "it was made here"
        queue.window = queue.window or announced
        return may

    def _requests_max(self, broker_id: int) -> int:
        return REQUESTS_MAX if self._windows else super()._requests_max(broker_id)

"""What a consumer with manual assignment reads: the committed batches of a response, and its
positions up to the end offsets.

Source: KIP-79, KIP-98, org.apache.kafka.clients.consumer.internals.{CompletedFetch,
SubscriptionState}.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kraftsim.clients.rules_producer_steps import TopicPartition
from protocol.records.batches import RecordBatch
from protocol.records.control_records import ControlType, control_type

# --------------------------------------------------------------------------------------------------
# read_committed: the client drops aborted batches
#
# A broker returns all batches up to the last stable offset, with the list of aborted transactions.


class Aborted(NamedTuple):
    """An aborted transaction of a producer, by its first offset."""

    producer_id: int
    first_offset: int


def committed_batches(
    batches: Iterable[RecordBatch], aborted: Sequence[Aborted]
) -> Iterator[RecordBatch]:
    """Yield the data batches of committed transactions, in order.

    The list may be unordered; a marker ends its producer's transaction.
    """
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    producers: set[int] = set()  # for membership only
    for batch in batches:
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            producers.add(waiting.pop().producer_id)
        if batch.is_control:
            if _is_abort(batch):
                producers.discard(batch.producer_id)
            continue
        if not (batch.is_transactional and batch.producer_id in producers):
            yield batch


def _is_abort(batch: RecordBatch) -> bool:
    return any(
        control_type(None if record.key is None else bytes(record.key)) is ControlType.ABORT
        for record in batch.records()
    )


# --------------------------------------------------------------------------------------------------
# Positions
#
# Each partition is read from its start to the end offset at the time of ListOffsets, then it is
# done.

UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class Position:
    """The next offset of a partition, and its end offset (exclusive); both unknown until
    ListOffsets is answered.
    """

    next_offset: int = UNKNOWN_OFFSET
    end_offset: int = UNKNOWN_OFFSET

    @property
    def is_known(self) -> bool:
        """Whether both offsets are known."""
        return self.next_offset != UNKNOWN_OFFSET and self.end_offset != UNKNOWN_OFFSET

    @property
    def is_done(self) -> bool:
        """Whether the end offset is reached."""
        return self.is_known and self.next_offset >= self.end_offset


class ReaderPositions:
    """The positions of one consumer in its partitions."""

    def __init__(self, assignment: Sequence[TopicPartition]) -> None:
        self._positions = {where: Position() for where in assignment}

    @property
    def is_done(self) -> bool:
        """Whether every partition is read to its end."""
        return all(position.is_done for position in self._positions.values())

    def next_offset(self, where: TopicPartition) -> int:
        """Return the next offset to fetch."""
        return self._positions[where].next_offset

    def without_first_offset(self) -> list[TopicPartition]:
        """Return the partitions whose start offset is unknown."""
        return [
            where
            for where, position in self._positions.items()
            if position.next_offset == UNKNOWN_OFFSET
        ]

    def without_end_offset(self) -> list[TopicPartition]:
        """Return the partitions whose end offset is unknown."""
        return [
            where
            for where, position in self._positions.items()
            if position.end_offset == UNKNOWN_OFFSET
        ]

    def unfinished(self, leaders: Mapping[TopicPartition, int]) -> dict[int, list[TopicPartition]]:
        """Return the unfinished partitions by leader; those without a leader are left out."""
        left: dict[int, list[TopicPartition]] = {}
        for where, position in self._positions.items():
            if position.is_known and not position.is_done and where in leaders:
                left.setdefault(leaders[where], []).append(where)
        return left

    def set_start(self, where: TopicPartition, first_offset: int) -> None:
        """Set the start offset."""
        self._positions[where].next_offset = first_offset

    def end_at(self, where: TopicPartition, end_offset: int) -> None:
        """Set the end offset (exclusive)."""
        self._positions[where].end_offset = end_offset

    def advance(self, where: TopicPartition, next_offset: int) -> None:
        """Everything below next_offset is read."""
        assert next_offset >= self._positions[where].next_offset, "positions do not decrease"
        self._positions[where].next_offset = next_offset

    def found_nothing(self, where: TopicPartition, high_watermark: int) -> None:
        """A fetch was empty: if the log now ends here, it was truncated and the partition is
        done.
        """
        position = self._positions[where]
        if high_watermark <= position.next_offset:
            position.end_offset = min(position.end_offset, position.next_offset)

    def start_over(self, where: TopicPartition) -> None:
        """The position is out of range: the log was truncated.

        Both offsets are unknown again; the records read stay read.
        """
        self._positions[where] = Position()

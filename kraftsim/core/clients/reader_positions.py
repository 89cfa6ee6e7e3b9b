"""How far a reader by assignment has come in each partition, and when it has seen everything.

A reader without a group: it reads from the start of each partition to the end that the partition had when it was asked, then it is done.
Source: org.apache.kafka.clients.consumer.internals.SubscriptionState (positions), KIP-79 (ListOffsets).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kraftsim.core.clients.producer_steps import TopicPartition

UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class Position:
    """Where to read next in a partition, and the offset (outside) at which it is finished; both unknown until the broker was asked."""

    next_offset: int = UNKNOWN_OFFSET
    end_offset: int = UNKNOWN_OFFSET

    @property
    def is_known(self) -> bool:
        """Whether both ends are known."""
        return self.next_offset != UNKNOWN_OFFSET and self.end_offset != UNKNOWN_OFFSET

    @property
    def is_done(self) -> bool:
        """Whether everything was read."""
        return self.is_known and self.next_offset >= self.end_offset


class ReaderPositions:
    """The positions of one reader in its partitions."""

    def __init__(self, assignment: Sequence[TopicPartition]) -> None:
        self._positions = {where: Position() for where in assignment}

    @property
    def is_done(self) -> bool:
        """Whether every partition was read to its end."""
        return all(position.is_done for position in self._positions.values())

    def next_offset(self, where: TopicPartition) -> int:
        """Return the offset to read next."""
        return self._positions[where].next_offset

    def without_first_offset(self) -> list[TopicPartition]:
        """Return the partitions whose start must be asked for."""
        return [where for where, position in self._positions.items() if position.next_offset == UNKNOWN_OFFSET]

    def without_end_offset(self) -> list[TopicPartition]:
        """Return the partitions whose end must be asked for."""
        return [where for where, position in self._positions.items() if position.end_offset == UNKNOWN_OFFSET]

    def unfinished(self, leaders: Mapping[TopicPartition, int]) -> dict[int, list[TopicPartition]]:
        """Return what is left to fetch, by the broker that leads it; partitions without a leader are left out."""
        left: dict[int, list[TopicPartition]] = {}
        for where, position in self._positions.items():
            if position.is_known and not position.is_done and where in leaders:
                left.setdefault(leaders[where], []).append(where)
        return left

    def begin_at(self, where: TopicPartition, first_offset: int) -> None:
        """The partition starts here."""
        self._positions[where].next_offset = first_offset

    def end_at(self, where: TopicPartition, end_offset: int) -> None:
        """The partition ends here (outside)."""
        self._positions[where].end_offset = end_offset

    def advance(self, where: TopicPartition, next_offset: int) -> None:
        """Everything below next_offset was read."""
        assert next_offset >= self._positions[where].next_offset, "a reader never goes back"
        self._positions[where].next_offset = next_offset

    def found_nothing(self, where: TopicPartition, high_watermark: int) -> None:
        """A fetch came back empty: if the partition ends here by now, it lost its tail and the reader is done with it."""
        position = self._positions[where]
        if high_watermark <= position.next_offset:
            position.end_offset = min(position.end_offset, position.next_offset)

    def start_over(self, where: TopicPartition) -> None:
        """The position is out of range: the log was cut. Both ends must be asked for again; what was read stays read."""
        self._positions[where] = Position()

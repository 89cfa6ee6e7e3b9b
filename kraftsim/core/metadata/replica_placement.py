"""On which brokers new partitions go: in stripes over the racks, and over the brokers of each rack.

Every partition begins one rack further, and in each rack one broker further, so that leaders and followers spread evenly; where both rounds begin is
drawn. Brokers out of service come last and never first. After as many partitions as there are brokers in service all is shuffled, so that the same
brokers do not always stand behind the same leader.   Source: KIP-36, org.apache.kafka.metadata.placement.StripedReplicaPlacer.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.broker_registration import BrokerRegistration
from protocol.errors import ErrorCode

T = TypeVar("T")

Placement = Sequence[tuple[int, ...]]
"""The replicas of each partition, by partition number."""


class Chance(Protocol):
    """Drawn numbers, as `random.Random` gives them."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to stop, which is outside."""
        ...

    def randbytes(self, size_bytes: int, /) -> bytes:
        """Return so many bytes."""
        ...


def place_replicas(partition_count: int, replication_factor: int, brokers: Iterable[BrokerRegistration], chance: Chance) -> Placement | Refusal:
    """Return the replicas of so many new partitions, on any of these brokers.

    Refuses with INVALID_REPLICATION_FACTOR where there are too few brokers, or none in service.
    """
    racks = _Racks(list(brokers), chance)
    why = None
    if replication_factor <= 0:
        why = f"Invalid replication factor {replication_factor}: the replication factor must be positive."
    elif not racks.unfenced_count:
        why = "All brokers are currently fenced."
    elif replication_factor > racks.broker_count:
        why = f"The target replication factor of {replication_factor} cannot be reached because only {racks.broker_count} broker(s) are registered."
    if why is not None:
        return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, why)
    return [racks.place(replication_factor) for _ in range(partition_count)]


class _Round:
    """Brokers that are handed out one after the other; each turn begins one further than the last."""

    def __init__(self) -> None:
        self.broker_ids: list[int] = []
        self._taken = 0
        self._offset = 0
        self._turn = 0

    def begin_anywhere(self, chance: Chance) -> None:
        """Draw where the first turn begins."""
        self.broker_ids.sort()
        if self.broker_ids:
            self._offset = chance.randrange(len(self.broker_ids))

    def next(self, turn: int) -> int | None:
        """Return the next broker of a turn, or None if all were handed out."""
        if not self.broker_ids:
            return None
        if turn != self._turn:
            self._turn, self._taken = turn, 0
            self._offset = (self._offset + 1) % len(self.broker_ids)
        if self._taken >= len(self.broker_ids):
            return None
        self._taken += 1
        return self.broker_ids[(self._taken - 1 + self._offset) % len(self.broker_ids)]


class _Rack:
    """The brokers of a rack, those in service apart from the others."""

    def __init__(self) -> None:
        self.unfenced, self.fenced = _Round(), _Round()

    def next(self, turn: int) -> int | None:
        """Return the next broker of a turn, those in service first, or None."""
        broker_id = self.unfenced.next(turn)
        return self.fenced.next(turn) if broker_id is None else broker_id


class _Racks:
    """All racks. Brokers without one are in a rack of their own, which comes first."""

    def __init__(self, brokers: Sequence[BrokerRegistration], chance: Chance) -> None:
        self._chance = chance
        by_name: dict[str | None, _Rack] = {}
        for broker in brokers:
            rack = by_name.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).broker_ids.append(broker.broker_id)
        self._racks = [by_name[name] for name in sorted(by_name, key=lambda name: (name is not None, name or ""))]
        self._all = tuple(self._racks)
        for rack in self._all:
            rack.fenced.begin_anywhere(chance)
            rack.unfenced.begin_anywhere(chance)
        self.broker_count = len(brokers)
        self.unfenced_count = sum(not broker.fenced for broker in brokers)
        self._turn = 0
        self._offset = chance.randrange(len(self._racks)) if self._racks else 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Return the replicas of the next partition: the first from a broker in service, the others from the racks in turn."""
        if self._turn == self.unfenced_count > 1:
            self._shuffle()
            self._turn = 0  # a rack that was last asked in an earlier turn 0 goes on where it was then, as in Kafka
        self._offset %= len(self._racks)
        first_rack, first_broker = self._first()
        replicas = [first_broker]
        rack_index, skipped_rack = self._offset, first_rack
        while len(replicas) < replication_factor:
            if rack_index == skipped_rack:
                skipped_rack = -1  # it gave the first replica: it is passed over once
            elif (broker_id := self._racks[rack_index].next(self._turn)) is not None:
                replicas.append(broker_id)
            rack_index = (rack_index + 1) % len(self._racks)
        self._turn += 1
        self._offset += 1
        return tuple(replicas)

    def _first(self) -> tuple[int, int]:
        """Return (rack, broker) of the first replica: from the first rack, from the offset on, that has a broker in service left."""
        rack_index = self._offset
        while (broker_id := self._racks[rack_index].unfenced.next(self._turn)) is None:
            rack_index = (rack_index + 1) % len(self._racks)
        return rack_index, broker_id

    def _shuffle(self) -> None:
        _shuffle(self._racks, self._chance)
        for rack in self._all:
            _shuffle(rack.fenced.broker_ids, self._chance)
            _shuffle(rack.unfenced.broker_ids, self._chance)


def _shuffle(entries: list[T], chance: Chance) -> None:
    for index in range(len(entries) - 1, 0, -1):
        other = chance.randrange(index + 1)
        entries[index], entries[other] = entries[other], entries[index]

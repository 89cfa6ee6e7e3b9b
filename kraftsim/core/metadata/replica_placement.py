"""Replica placement: striped across racks, and across the brokers of each rack.

Every partition starts one rack further, and in each rack one broker further, which spreads leaders
and followers evenly; the starting offsets are random. Fenced brokers come last and never lead.
After as many partitions as there are unfenced brokers all is shuffled, so that the same followers
do not always share a leader.
Source: KIP-36, org.apache.kafka.metadata.placement.StripedReplicaPlacer.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.broker_registration import BrokerRegistration
from protocol.errors import ErrorCode

T = TypeVar("T")

Placement = Sequence[tuple[int, ...]]
"""The replicas of each partition, by partition number."""


class RandomSource(Protocol):
    """Random numbers, as from `random.Random`."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to stop, exclusive."""
        ...

    def randbytes(self, size_bytes: int, /) -> bytes:
        """Return so many bytes."""
        ...


def place_replicas(
    partition_count: int,
    replication_factor: int,
    brokers: Iterable[BrokerRegistration],
    rng: RandomSource,
) -> Placement | Refusal:
    """Return the replicas of new partitions on these brokers.

    Fails with INVALID_REPLICATION_FACTOR if there are too few brokers, or no unfenced one.
    """
    racks = _Racks(list(brokers), rng)
    why = None
    if replication_factor <= 0:
        why = (
            f"Invalid replication factor {replication_factor}: the replication factor must be "
            "positive."
        )
    elif not racks.unfenced_count:
        why = "All brokers are currently fenced."
    elif replication_factor > racks.broker_count:
        why = (
            f"The target replication factor of {replication_factor} cannot be reached because "
            f"only {racks.broker_count} broker(s) are registered."
        )
    if why is not None:
        return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, why)
    return [racks.place(replication_factor) for _ in range(partition_count)]


class _Round:
    """A round-robin list of brokers; each epoch starts one further than the last."""

    def __init__(self) -> None:
        self.broker_ids: list[int] = []
        self._taken = 0
        self._offset = 0
        self._turn = 0

    def begin_anywhere(self, rng: RandomSource) -> None:
        """Choose a random starting offset."""
        self.broker_ids.sort()
        if self.broker_ids:
            self._offset = rng.randrange(len(self.broker_ids))

    def next(self, turn: int) -> int | None:
        """Return the next broker of an epoch, or None if all were returned."""
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
    """The brokers of a rack, unfenced and fenced separately."""

    def __init__(self) -> None:
        self.unfenced, self.fenced = _Round(), _Round()

    def next(self, turn: int) -> int | None:
        """Return the next broker of an epoch, unfenced ones first, or None."""
        broker_id = self.unfenced.next(turn)
        return self.fenced.next(turn) if broker_id is None else broker_id


class _Racks:
    """All racks. Brokers without a rack form one, which is first."""

    def __init__(self, brokers: Sequence[BrokerRegistration], rng: RandomSource) -> None:
        self._rng = rng
        by_name: dict[str | None, _Rack] = {}
        for broker in brokers:
            rack = by_name.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).broker_ids.append(broker.broker_id)
        self._racks = [
            by_name[name]
            for name in sorted(by_name, key=lambda name: (name is not None, name or ""))
        ]
        self._all = tuple(self._racks)
        for rack in self._all:
            rack.fenced.begin_anywhere(rng)
            rack.unfenced.begin_anywhere(rng)
        self.broker_count = len(brokers)
        self.unfenced_count = sum(not broker.fenced for broker in brokers)
        self._turn = 0
        self._offset = rng.randrange(len(self._racks)) if self._racks else 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Return the replicas of the next partition: the first is unfenced, the others are from the
        racks in rotation.
        """
        if self._turn == self.unfenced_count > 1:
            self._shuffle()
            self._turn = (
                0  # a rack last used in an earlier epoch 0 continues from there, as in Kafka
            )
        self._offset %= len(self._racks)
        first_rack, first_broker = self._first()
        replicas = [first_broker]
        rack_index, skipped_rack = self._offset, first_rack
        while len(replicas) < replication_factor:
            if rack_index == skipped_rack:
                skipped_rack = -1  # it has the first replica: skipped once
            elif (broker_id := self._racks[rack_index].next(self._turn)) is not None:
                replicas.append(broker_id)
            rack_index = (rack_index + 1) % len(self._racks)
        self._turn += 1
        self._offset += 1
        return tuple(replicas)

    def _first(self) -> tuple[int, int]:
        """Return (rack, broker) of the first replica: the first rack, from the offset on, with an
        unfenced broker left.
        """
        rack_index = self._offset
        while (broker_id := self._racks[rack_index].unfenced.next(self._turn)) is None:
            rack_index = (rack_index + 1) % len(self._racks)
        return rack_index, broker_id

    def _shuffle(self) -> None:
        _shuffle(self._racks, self._rng)
        for rack in self._all:
            _shuffle(rack.fenced.broker_ids, self._rng)
            _shuffle(rack.unfenced.broker_ids, self._rng)


def _shuffle(entries: list[T], rng: RandomSource) -> None:
    for index in range(len(entries) - 1, 0, -1):
        other = rng.randrange(index + 1)
        entries[index], entries[other] = entries[other], entries[index]

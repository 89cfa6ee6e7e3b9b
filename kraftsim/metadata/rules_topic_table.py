"""The topics and partitions of a controller with their indexes, and the placement of new replicas.

Source: ReplicationControlManager, org.apache.kafka.controller.BrokersToIsrs,
org.apache.kafka.metadata.placement.StripedReplicaPlacer.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kraftsim.core.decision import Refusal
from kraftsim.core.timeline import Journal
from kraftsim.metadata.rules_registrations import BrokerRegistration, PartitionRegistration
from kraftsim.metadata.rules_topic_names import unified_name
from protocol.errors import ErrorCode

Name = TypeVar("Name")
Member = TypeVar("Member")

PartitionKey = tuple[bytes, int]
"""Topic id and partition number."""
KeySet = dict[PartitionKey, None]


# --------------------------------------------------------------------------------------------------
# The table, with indexes by name, id, ISR member, leader, and leaderless partitions
#
# All of it is revertible. With the indexes a broker state change does not visit all partitions;
# they are iterated in the order of topic id and partition, independent of insertion.


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions by number; the mapping is live and read-only."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionRegistration]


class TopicTable:
    """All topics, committed or not. Changed by replay only."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._topics: dict[bytes, Topic] = {}
        self._partitions: dict[bytes, dict[int, PartitionRegistration]] = {}
        self._ids: dict[str, bytes] = {}
        self._unified: dict[str, dict[str, None]] = {}
        """Metric name of names with '.' or '_' -> the names."""
        self._in_isr: dict[int, KeySet] = {}
        self._eligible: dict[int, KeySet] = {}
        self._lead_counts: dict[int, int] = {}
        self._leaderless: KeySet = {}
        self._imbalanced: KeySet = {}
        self._reassigning: KeySet = {}
        self.partition_count = 0
        """The number of partitions of all topics."""

    # Queries
    # ----------------------------------------------------------------------------------------------

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of a topic, or None."""
        return self._ids.get(name)

    def topic(self, topic_id: bytes) -> Topic | None:
        """Return a topic by its id, or None."""
        return self._topics.get(topic_id)

    def topic_named(self, name: str) -> Topic | None:
        """Return a topic by its name, or None."""
        topic_id = self._ids.get(name)
        return None if topic_id is None else self._topics[topic_id]

    def topics(self) -> Iterator[Topic]:
        """Yield every topic, by name."""
        return (self._topics[self._ids[name]] for name in sorted(self._ids))

    def colliding_name(self, name: str) -> str | None:
        """Return another topic with the same name in metrics, or None."""
        unified = unified_name(name)
        alike = self._unified.get(unified, {}) if unified is not None else {}
        return next((other for other in sorted(alike) if other != name), None)

    def partition(self, key: PartitionKey) -> PartitionRegistration | None:
        """Return a partition, or None."""
        partitions = self._partitions.get(key[0])
        return None if partitions is None else partitions.get(key[1])

    def partitions(self) -> Iterator[tuple[PartitionKey, PartitionRegistration]]:
        """Yield every partition, by topic id and number."""
        return (
            ((topic_id, number), partitions[number])
            for topic_id, partitions in sorted(self._partitions.items(), key=lambda item: item[0])
            for number in sorted(partitions)
        )

    def leads_any(self, broker_id: int) -> bool:
        """Return whether a broker leads any partition."""
        return self._lead_counts.get(broker_id, 0) > 0

    def with_isr_member(self, broker_id: int) -> list[PartitionKey]:
        """Return the partitions with a broker in the ISR, in order."""
        return sorted(self._in_isr.get(broker_id, ()))

    def with_eligible_leader(self, broker_id: int) -> list[PartitionKey]:
        """Return the partitions with a broker in the ELR, in order."""
        return sorted(self._eligible.get(broker_id, ()))

    def leaderless(self) -> list[PartitionKey]:
        """Return the leaderless partitions, in order."""
        return sorted(self._leaderless)

    def imbalanced(self) -> list[PartitionKey]:
        """Return the partitions whose leader is not the preferred replica, in order."""
        return sorted(self._imbalanced)

    def reassigning(self) -> list[PartitionKey]:
        """Return the partitions that are being reassigned, in order."""
        return sorted(self._reassigning)

    @property
    def has_leaderless(self) -> bool:
        """Whether any partition has no leader."""
        return bool(self._leaderless)

    @property
    def has_imbalanced(self) -> bool:
        """Whether the leader of any partition is not the preferred replica."""
        return bool(self._imbalanced)

    # Changes
    # ----------------------------------------------------------------------------------------------

    def add_topic(self, name: str, topic_id: bytes) -> None:
        """Add a topic without partitions."""
        assert name not in self._ids, f"topic {name} already exists"
        assert topic_id not in self._topics, f"the id of {name} is already used"
        self._journal.remember(lambda: self._unlink(topic_id))
        self._link(name, topic_id, {})

    def remove_topic(self, topic_id: bytes) -> str:
        """Remove a topic with all its partitions and return its name."""
        topic, partitions = self._topics[topic_id], self._partitions[topic_id]

        def undo() -> None:
            self._link(topic.name, topic_id, partitions)
            for number, partition in partitions.items():
                self._enter((topic_id, number), partition)

        self._journal.remember(undo)
        for number, partition in partitions.items():
            self._leave((topic_id, number), partition)
        self._unlink(topic_id)
        return topic.name

    def put_partition(self, key: PartitionKey, partition: PartitionRegistration) -> None:
        """Add or change a partition of an existing topic."""
        before = self.partition(key)
        self._journal.remember(lambda: self._swap(key, before))
        self._swap(key, partition)

    def _swap(self, key: PartitionKey, partition: PartitionRegistration | None) -> None:
        partitions = self._partitions[key[0]]
        before = partitions.get(key[1])
        if before is not None:
            self._leave(key, before)
        if partition is None:
            del partitions[key[1]]
        else:
            partitions[key[1]] = partition
            self._enter(key, partition)

    def _link(
        self, name: str, topic_id: bytes, partitions: dict[int, PartitionRegistration]
    ) -> None:
        self._ids[name] = topic_id
        self._topics[topic_id] = Topic(name, topic_id, partitions)
        self._partitions[topic_id] = partitions
        if (unified := unified_name(name)) is not None:
            self._unified.setdefault(unified, {})[name] = None

    def _unlink(self, topic_id: bytes) -> None:
        name = self._topics.pop(topic_id).name
        del self._partitions[topic_id], self._ids[name]
        if (unified := unified_name(name)) is not None:
            _discard(self._unified, unified, name)

    def _enter(self, key: PartitionKey, partition: PartitionRegistration) -> None:
        self.partition_count += 1
        for broker_id in partition.isr:
            self._in_isr.setdefault(broker_id, {})[key] = None
        for broker_id in partition.eligible_leader_replicas:
            self._eligible.setdefault(broker_id, {})[key] = None
        if partition.has_leader:
            self._lead_counts[partition.leader] = self._lead_counts.get(partition.leader, 0) + 1
        else:
            self._leaderless[key] = None
        if not partition.has_preferred_leader:
            self._imbalanced[key] = None
        if partition.is_reassigning:
            self._reassigning[key] = None

    def _leave(self, key: PartitionKey, partition: PartitionRegistration) -> None:
        self.partition_count -= 1
        for broker_id in partition.isr:
            _discard(self._in_isr, broker_id, key)
        for broker_id in partition.eligible_leader_replicas:
            _discard(self._eligible, broker_id, key)
        if partition.has_leader:
            self._lead_counts[partition.leader] -= 1
        for keys in (self._leaderless, self._imbalanced, self._reassigning):
            keys.pop(key, None)


def _discard(sets: dict[Name, dict[Member, None]], name: Name, member: Member) -> None:
    """Remove a member from the set of a name, and drop an empty set."""
    members = sets[name]
    del members[member]
    if not members:
        del sets[name]


# --------------------------------------------------------------------------------------------------
# Placement: striped across racks, and across the brokers of each rack (KIP-36)
#
# Every partition starts one rack further, and in each rack one broker further, which spreads
# leaders and followers evenly; the starting offsets are random. Fenced brokers come last and never
# lead. After as many partitions as there are unfenced brokers all is shuffled, so that the same
# followers do not always share a leader.

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

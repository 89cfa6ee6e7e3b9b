"""The assignor of share groups: `simple` gives each partition to about as many members as another,
and each member about as many partitions; balance comes before few moves.

For the same members it returns the same result as Apache Kafka's, the order of topics and
partitions included, since records and responses have them in that order.
Source: KIP-932, org.apache.kafka.coordinator.group.assignor.{SimpleAssignor,
SimpleHomogeneousAssignmentBuilder, SimpleHeterogeneousAssignmentBuilder} since 4.2; compared with
the classes of 4.2.2 and 4.4.0.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kraftsim.groups.rules_assignors import Shares, uuid_hash
from kraftsim.groups.rules_java_maps import JavaMap, JavaSet, room_for

TopicPartitionKey = tuple[bytes, int]
Assignment = JavaMap[bytes, JavaSet[int]]
P = TypeVar("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingMember:
    """A member as input of the assignor: subscribed topics that exist, and its target so far.

    `subscribes` is whether it subscribes to any topic, existing or not.
    """

    member_id: str
    topic_ids: tuple[bytes, ...]
    subscribes: bool
    target: Shares


def assign_shared(
    members: Sequence[SharingMember],
    partition_counts: Mapping[bytes, int],
    assignable: Mapping[bytes, Collection[int]],
    *,
    has_same_topics: bool,
) -> dict[str, Shares]:
    """Return the target assignment of each member.

    Members, their topics and their targets are in the iteration order of Java. `partition_counts`
    has every existing topic, `assignable` the initialized partitions. Members that are missing from
    the result get nothing.
    """
    if not members:
        return {}
    plan = Plan(members, partition_counts, assignable)
    if has_same_topics:
        if not members[0].subscribes:
            return {}
        plan.share_all(members[0].topic_ids)
    else:
        topics: JavaSet[bytes] = JavaSet(uuid_hash)
        for member in members:
            for topic_id in member.topic_ids:
                topics.add(topic_id)
        if not len(topics):
            return {}
        for topic_id in topics:
            plan.share_topic(topic_id)
    return plan.result()


def desired_counts(sharing: int, partition_count: int, member_count: int) -> list[int]:
    """Return how many partitions each of the members should have; the sum is exact."""
    each = sharing * partition_count / member_count
    return [
        math.ceil(each * (index + 1)) - math.ceil(each * index) for index in range(member_count)
    ]


def sharing_of(partition_count: int, member_count: int) -> int:
    """Return how many members each partition should have."""
    return -(-member_count // partition_count) if partition_count else 0


class Plan:
    """An assignment in progress; members are named by their index."""

    def __init__(
        self,
        members: Sequence[SharingMember],
        partition_counts: Mapping[bytes, int],
        assignable: Mapping[bytes, Collection[int]],
    ) -> None:
        self._members = members
        self._partition_counts = partition_counts
        self._assignable = assignable
        self._readers: dict[bytes, list[int]] = {}
        for index, member in enumerate(members):
            for topic_id in member.topic_ids:
                self._readers.setdefault(topic_id, []).append(index)
        self._changed: dict[int, Assignment] = {}
        """The new assignments of members whose assignment is not that of before."""

    def result(self) -> dict[str, Shares]:
        """Return the assignment of every member."""
        return {
            member.member_id: _shares(self._changed[index])
            if index in self._changed
            else member.target
            for index, member in enumerate(self._members)
        }

    def _changing(self, index: int) -> Assignment:
        """Return the new assignment of a member, to change it."""
        if index not in self._changed:
            target = self._members[index].target
            made: Assignment = JavaMap(uuid_hash, len(target))
            for topic_id, numbers in target.items():
                made.put(topic_id, JavaSet.of(int, numbers))
            self._changed[index] = made
        return self._changed[index]

    def _give(self, index: int, topic_id: bytes, number: int) -> None:
        self._changing(index).compute(topic_id, lambda: JavaSet(int)).add(number)

    def _take(self, index: int, topic_id: bytes, number: int) -> bool:
        """Take a partition from a member; return whether it had it."""
        had = self._changing(index).get(topic_id)
        if had is None or number not in had:
            return False
        had.pop(number)
        return True

    def _partitions(self, topic_id: bytes) -> list[int]:
        allowed = frozenset(self._assignable.get(topic_id, ()))
        return [number for number in range(self._partition_counts[topic_id]) if number in allowed]

    # All members subscribe to the same topics
    # ----------------------------------------------------------------------------------------------

    def share_all(self, topic_ids: Sequence[bytes]) -> None:
        """Share the partitions of all topics at once."""
        targets = [
            (topic_id, number) for topic_id in topic_ids for number in self._partitions(topic_id)
        ]
        count = len(self._members)
        sharing = sharing_of(len(targets), count)
        desired = desired_counts(sharing, len(targets), count)
        table: SharingTable[TopicPartitionKey] = SharingTable(
            room_for(len(targets)), room_for(count), _hash_of_partition
        )
        unfilled = JavaSet[int](int, room_for(count))
        overfilled: list[int] = []
        subscribed = frozenset(topic_ids)
        for index, member in enumerate(self._members):
            had = 0
            for topic_id, numbers in member.target.items():
                if topic_id not in subscribed:
                    self._changing(index).pop(topic_id)
                    continue
                for number in numbers:
                    had += 1
                    table.add((topic_id, number), index)
                    if had >= desired[index]:
                        self._changing(index)
            if had < desired[index]:
                unfilled.add(index)
            elif had > desired[index]:
                overfilled.append(index)
        for index in overfilled:
            for topic_id, number in table.held(index):
                if len(table.by_member[index]) == desired[index]:
                    break
                self._take(index, topic_id, number)
                table.remove((topic_id, number), index)
        for (topic_id, number), indexes in table.by_partition.items():
            excess = len(indexes) - sharing
            for index in indexes if excess > 0 else ():
                if self._take(index, topic_id, number):
                    excess -= 1
                    table.remove((topic_id, number), index)
                    unfilled.add(index)
                if excess <= 0:
                    break
        for target in targets:
            table.by_partition.compute(target, lambda: JavaSet(int))
        if len(unfilled):
            for (topic_id, number), index in table.fill(sharing, desired, unfilled):
                self._give(index, topic_id, number)

    # Members subscribe to different topics
    # ----------------------------------------------------------------------------------------------

    def share_topic(self, topic_id: bytes) -> None:
        """Share the partitions of one topic among its subscribers."""
        targets = self._partitions(topic_id)
        readers = self._readers[topic_id]
        sharing = sharing_of(len(targets), len(readers))
        desired = [0] * len(self._members)
        for index, wanted in zip(
            readers, desired_counts(sharing, len(targets), len(readers)), strict=True
        ):
            desired[index] = wanted
        table: SharingTable[int] = SharingTable(room_for(len(targets)), room_for(len(readers)), int)
        for index, member in enumerate(self._members):
            for number in member.target.get(topic_id, ()):
                table.add(number, index)
        for index, held in table.by_member.items():
            for number in held if len(held) > desired[index] else ():
                if len(table.by_member[index]) <= desired[index]:
                    break
                table.remove(number, index)
                self._take(index, topic_id, number)
        for number, indexes in table.by_partition.items():
            excess = len(indexes) - sharing
            for index in indexes if excess > 0 else ():
                if self._take(index, topic_id, number):
                    excess -= 1
                    table.remove(number, index)
                if excess <= 0:
                    break
        for number in targets:
            table.by_partition.compute(number, lambda: JavaSet(int))
        unfilled = JavaSet[int](int, room_for(len(self._members)))
        for index in readers:
            if len(table.held(index)) < desired[index]:
                unfilled.add(index)
        for number, index in table.fill(sharing, desired, unfilled):
            self._give(index, topic_id, number)


class SharingTable(Generic[P]):
    """Which member has which partition, seen from both sides."""

    def __init__(self, partition_room: int, member_room: int, hash_of: Callable[[P], int]) -> None:
        self._hash_of = hash_of
        self.by_partition: JavaMap[P, JavaSet[int]] = JavaMap(hash_of, partition_room)
        self.by_member: JavaMap[int, JavaSet[P]] = JavaMap(int, member_room)

    def add(self, partition: P, index: int) -> None:
        """A member has a partition."""
        self.by_partition.compute(partition, lambda: JavaSet(int)).add(index)
        self.by_member.compute(index, lambda: JavaSet(self._hash_of)).add(partition)

    def remove(self, partition: P, index: int) -> None:
        """A member gives up a partition."""
        self.by_partition[partition].pop(index)
        self.by_member[index].pop(partition)

    def held(self, index: int) -> list[P]:
        """Return the partitions of a member."""
        held = self.by_member.get(index)
        return [] if held is None else list(held)

    def fill(
        self, sharing: int, desired: Sequence[int], unfilled: JavaSet[int]
    ) -> Iterator[tuple[P, int]]:
        """Yield which partition goes to which member: each partition to the next members that lack
        some and did not have it before.

        After a round through the members in which no partition was given the rest stays as it is.
        """
        round_of = iter(unfilled)
        was_given = False
        for partition, indexes in self.by_partition.items():
            lacks = sharing - len(indexes)
            while lacks > 0:
                index = next(round_of, None)
                if index is None:
                    if not was_given or not len(unfilled):
                        break
                    round_of, was_given = iter(unfilled), False
                    continue
                if index in indexes:
                    continue
                yield partition, index
                held = self.by_member.compute(index, lambda: JavaSet(self._hash_of))
                held.add(partition)
                lacks -= 1
                was_given = True
                if len(held) >= desired[index]:
                    unfilled.pop(index)
            if not len(unfilled):
                return


def _hash_of_partition(partition: TopicPartitionKey) -> int:
    return 31 * uuid_hash(partition[0]) + partition[1]


def _shares(assignment: Assignment) -> Shares:
    return {topic_id: tuple(numbers) for topic_id, numbers in assignment.items()}

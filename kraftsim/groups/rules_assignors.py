"""The server-side assignors of consumer groups: `range` assigns a contiguous range of each topic,
`uniform` distributes evenly and moves few partitions.

For the same members they return the same result as Apache Kafka's, so members and topics are
iterated in the order of Java's hash maps where Kafka does so. If the members of `uniform` subscribe
to different topics, partitions are assigned one by one to the member with the fewest.
Source: KIP-848, org.apache.kafka.coordinator.group.assignor.{RangeAssignor,
UniformHomogeneousAssignmentBuilder}; compared with Apache Kafka 4.1.2 and 4.4.0.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from kraftsim.groups.rules_timing import java_hash

Partitions = tuple[int, ...]
Shares = Mapping[bytes, Partitions]
"""Topic id -> partitions, ascending; topics are in the order of insertion."""
NO_SHARES: Final[Shares] = {}
UNIFORM, RANGE = "uniform", "range"
FIRST_CAPACITY: Final = 16
FIBONACCI: Final = -7046029254386353131
"""The golden ratio as 64 bits (Knuth)."""
INT32_ABOVE: Final = 1 << 31
K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedMember:
    """A member as input of an assignor: subscribed topics, and its former target assignment."""

    member_id: str
    instance_id: str | None
    topic_ids: tuple[bytes, ...]
    target: Shares


def assign(
    assignor: str,
    members: Sequence[AssignedMember],
    partition_counts: Mapping[bytes, int],
    *,
    newcomer: str | None = None,
) -> dict[str, Shares]:
    """Return the target assignment of each member.

    `partition_counts` has every existing topic; others are not assigned.

    Members are in the order in which they joined; the newcomer is the one that Kafka places after
    the known members.
    """
    known = timeline_order([member for member in members if member.member_id != newcomer], _hash_of)
    rows = java_order(
        [*known, *(member for member in members if member.member_id == newcomer)], _hash_of
    )
    return (_assign_ranges if assignor == RANGE else _assign_uniformly)(rows, partition_counts)


# Range
# --------------------------------------------------------------------------------------------------


def _assign_ranges(
    members: list[AssignedMember], partition_counts: Mapping[bytes, int]
) -> dict[str, Shares]:
    ordered = sorted(
        members,
        key=lambda member: (member.instance_id is None, member.instance_id or member.member_id),
    )
    shares: dict[str, dict[bytes, Partitions]] = {member.member_id: {} for member in ordered}
    for topic_id, count in partition_counts.items():
        readers = [member.member_id for member in ordered if topic_id in member.topic_ids]
        start = 0
        for index, member_id in enumerate(readers):
            end = start + count // len(readers) + (index < count % len(readers))
            if start < end:
                shares[member_id][topic_id] = tuple(range(start, end))
            start = end
    return dict(shares)


# Uniform
# --------------------------------------------------------------------------------------------------


def _assign_uniformly(
    members: list[AssignedMember], partition_counts: Mapping[bytes, int]
) -> dict[str, Shares]:
    topics = [tuple(sorted(member.topic_ids)) for member in members]
    if not topics or not any(topics):
        return {member.member_id: {} for member in members}
    assign_topics = (
        _assign_same_topics
        if all(each == topics[0] for each in topics)
        else _assign_different_topics
    )
    return assign_topics(members, partition_counts)


def _assign_same_topics(
    members: list[AssignedMember], partition_counts: Mapping[bytes, int]
) -> dict[str, Shares]:
    """Take from each member the partitions above its quota, and give these and the unassigned ones
    to the members below theirs.
    """
    topic_ids = hash_set_order(
        (topic_id for topic_id in members[0].topic_ids if topic_id in partition_counts), uuid_hash
    )
    assigned = {
        (topic_id, number)
        for member in members
        for topic_id, numbers in member.target.items()
        for number in numbers
    }
    free = [
        (topic_id, number)
        for topic_id in topic_ids
        for number in range(partition_counts[topic_id])
        if (topic_id, number) not in assigned
    ]
    lowest, above = divmod(sum(partition_counts[topic_id] for topic_id in topic_ids), len(members))
    kept: dict[str, list[tuple[bytes, int]]] = {}
    wanting: list[tuple[str, int]] = []
    for index, member in enumerate(members):
        gets_one_more = above > 0
        quota = lowest + gets_one_more
        mine = kept[member.member_id] = []
        for topic_id in java_order(
            (each for each in member.target if each in topic_ids), uuid_hash
        ):
            there = [
                number for number in member.target[topic_id] if number < partition_counts[topic_id]
            ]
            for number in hash_set_order(there, int):
                (mine if len(mine) < quota else free).append((topic_id, number))
        lacks = quota - len(mine)
        if lacks and gets_one_more and len(members) - index > above:
            lacks, gets_one_more = lacks - 1, False  # a later member may already have one more
        if lacks:
            wanting.append((member.member_id, lacks))
        above -= gets_one_more
    rest = iter(free)
    for member_id, count in wanting:
        kept[member_id] += [partition for _, partition in zip(range(count), rest, strict=False)]
    return {member_id: shares_of(partitions) for member_id, partitions in kept.items()}


def _assign_different_topics(
    members: list[AssignedMember], partition_counts: Mapping[bytes, int]
) -> dict[str, Shares]:
    """Keep partitions, assign the rest to the members with the fewest, and move single ones while
    that improves the balance.
    """
    readers = {
        topic_id: [member for member in members if topic_id in member.topic_ids]
        for topic_id in sorted(partition_counts)
    }
    held: dict[str, list[tuple[bytes, int]]] = {member.member_id: [] for member in members}
    taken: dict[tuple[bytes, int], str] = {}
    for member in members:
        for topic_id, numbers in member.target.items():
            for number in numbers:
                if (
                    topic_id in member.topic_ids
                    and number < partition_counts.get(topic_id, 0)
                    and (topic_id, number) not in taken
                ):
                    taken[topic_id, number] = member.member_id
                    held[member.member_id].append((topic_id, number))
    partitions = [
        (topic_id, number)
        for topic_id in readers
        if readers[topic_id]
        for number in range(partition_counts[topic_id])
    ]
    for partition in sorted(partitions, key=lambda each: len(readers[each[0]])):
        if partition not in taken:
            member_id = min(
                (member.member_id for member in readers[partition[0]]),
                key=lambda each: (len(held[each]), each),
            )
            taken[partition] = member_id
            held[member_id].append(partition)
    has_moved = True
    while has_moved:
        has_moved = False
        for partition in reversed(partitions):
            owner = taken[partition]
            other = min(
                (member.member_id for member in readers[partition[0]]),
                key=lambda each: (len(held[each]), each),
            )
            if len(held[other]) + 1 < len(held[owner]):
                held[owner].remove(partition)
                held[other].append(partition)
                taken[partition] = other
                has_moved = True
    return {member_id: shares_of(found) for member_id, found in held.items()}


# Iteration order
# --------------------------------------------------------------------------------------------------


def shares_of(partitions: Iterable[tuple[bytes, int]]) -> Shares:
    """Return partitions by topic: ascending, topics in order of first occurrence."""
    found: dict[bytes, list[int]] = {}
    for topic_id, number in partitions:
        found.setdefault(topic_id, []).append(number)
    return {topic_id: tuple(sorted(numbers)) for topic_id, numbers in found.items()}


def java_order(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """Return keys in the iteration order of a java.util.HashMap after putting them one by one."""
    rows = list(keys)
    capacity = FIRST_CAPACITY
    while len(rows) > capacity * 3 // 4:
        capacity *= 2
    return sorted(rows, key=lambda key: _spread(hash_of(key)) & (capacity - 1))


def uuid_hash(topic_id: bytes) -> int:
    """Return org.apache.kafka.common.Uuid.hashCode, as 32 bits."""
    mixed = int.from_bytes(topic_id[:8], "big") ^ int.from_bytes(topic_id[8:], "big")
    return (mixed >> 32) ^ (mixed & 0xFFFF_FFFF)


def hash_set_order(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """Return keys in the iteration order of a java.util.HashSet constructed from a collection."""
    rows = list(keys)
    wanted, capacity = int(len(rows) / 0.75) + 1, FIRST_CAPACITY
    while capacity < wanted:
        capacity *= 2
    return sorted(rows, key=lambda key: _spread(hash_of(key)) & (capacity - 1))


def growing_set_order(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """Return keys in the iteration order of a java.util.HashSet to which they were added one by
    one.
    """
    rows, capacity = list(keys), FIRST_CAPACITY
    while len(rows) > capacity * 3 // 4:
        capacity *= 2
    return sorted(rows, key=lambda key: _spread(hash_of(key)) & (capacity - 1))


def timeline_order(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """Return keys in the iteration order of a TimelineHashMap that has never been larger: that of
    the slots, and backwards in each.

    Source: BaseHashTable.findSlot, SnapshottableHashTable.CurrentIterator.
    """
    rows = list(keys)
    bits = 1
    while len(rows) * 3 > (4 << bits):
        bits += 1

    def slot(key: K) -> int:
        signed = (hash_of(key) + INT32_ABOVE & 0xFFFF_FFFF) - INT32_ABOVE
        return (FIBONACCI * signed & 0xFFFF_FFFF_FFFF_FFFF) >> (64 - bits)

    rows.reverse()
    return sorted(rows, key=slot)


def _hash_of(member: AssignedMember) -> int:
    return java_hash(member.member_id)


def _spread(hashed: int) -> int:
    unsigned = hashed & 0xFFFF_FFFF
    return unsigned ^ (unsigned >> 16)

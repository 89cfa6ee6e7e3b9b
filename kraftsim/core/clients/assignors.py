"""Client-side assignors, used by the leader of a classic group: range, and cooperative-sticky.

A cooperative assignment never assigns a partition that another member still owns: it is left out,
and assigned in the follow-up rebalance after the former owner has revoked it.
Source: org.apache.kafka.clients.consumer.{RangeAssignor, CooperativeStickyAssignor}, KIP-429,
KIP-792.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kraftsim.core.clients.producer_steps import TopicPartition
from kraftsim.core.clients.version_probing import Versions

RANGE = "range"
COOPERATIVE_STICKY = "cooperative-sticky"
Assignment = dict[str, tuple[TopicPartition, ...]]
"""Member id -> its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as the leader knows it. owned_generation_id is the generation in which its owned
    partitions were assigned.
    """

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    owned_generation_id: int = -1
    versions: Versions | None = None


def assign(
    protocol: str, members: Sequence[Subscriber], partition_counts: Mapping[str, int]
) -> Assignment:
    """Assign every partition of the subscribed topics."""
    if protocol == COOPERATIVE_STICKY:
        return _without_owned_by_others(_sticky(members, partition_counts), members)
    assert protocol == RANGE, f"{protocol} is not a known assignor"
    return _by_ranges(members, partition_counts)


def _by_ranges(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """Assign one range of every topic to each member; the first members get one more if the count
    is not divisible.
    """
    found: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for topic in sorted(partition_counts):
        wanting = sorted(member.member_id for member in members if topic in member.topics)
        if not wanting:
            continue
        size, rest = divmod(partition_counts[topic], len(wanting))
        first = 0
        for place, member_id in enumerate(wanting):
            count = size + (place < rest)
            found[member_id] += [
                TopicPartition(topic, index) for index in range(first, first + count)
            ]
            first += count
    return {member_id: tuple(partitions) for member_id, partitions in found.items()}


def _sticky(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """Keep each member's partitions up to its quota, and assign the rest to the members with the
    fewest.
    """
    everything = [
        TopicPartition(topic, index)
        for topic in sorted(partition_counts)
        for index in range(partition_counts[topic])
    ]
    owner = _owners(members)
    wanting = sorted(members, key=lambda member: member.member_id)
    found: dict[str, list[TopicPartition]] = {member.member_id: [] for member in wanting}
    share = -(-len(everything) // max(1, len(wanting)))
    topics = {member.member_id: member.topics for member in wanting}
    for where in everything:
        member_id = owner.get(where)
        if (
            member_id is not None
            and where.topic in topics[member_id]
            and len(found[member_id]) < share
        ):
            found[member_id].append(where)
    placed = {where for partitions in found.values() for where in partitions}
    for where in everything:
        if where in placed:
            continue
        candidates = [member.member_id for member in wanting if where.topic in member.topics]
        if candidates:
            found[min(candidates, key=lambda member_id: len(found[member_id]))].append(where)
    return {member_id: tuple(sorted(partitions)) for member_id, partitions in found.items()}


def _owners(members: Sequence[Subscriber]) -> dict[TopicPartition, str]:
    """Return the owner of each partition; of two claims the later generation wins, and neither with
    the same generation.
    """
    claims: dict[TopicPartition, list[Subscriber]] = {}
    for member in members:
        for where in member.owned:
            claims.setdefault(where, []).append(member)
    owners = {}
    for where, claimants in claims.items():
        newest = max(member.owned_generation_id for member in claimants)
        holders = [member.member_id for member in claimants if member.owned_generation_id == newest]
        if len(holders) == 1:
            owners[where] = holders[0]
    return owners


def _without_owned_by_others(wanted: Assignment, members: Sequence[Subscriber]) -> Assignment:
    owner = {where: member.member_id for member in members for where in member.owned}
    return {
        member_id: tuple(where for where in partitions if owner.get(where, member_id) == member_id)
        for member_id, partitions in wanted.items()
    }

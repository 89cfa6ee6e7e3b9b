"""Version probing: members of different releases find the version that all of them understand, without anybody telling them (KIP-268).

A member says which version it uses and up to which it could go. A leader that is older than somebody's words answers with what it knows itself, and
whoever was too new joins again with that. A leader that understands all uses the lowest, and tells everybody once all could go higher. KIP-447's
document rests its upgrade on this: producers per thread begin only when every member is of the version that has them, however often members are
restarted. What shipped has a setting for that (processing.guarantee), which whoever restarts a member can change too early.
Source: KIP-268, KIP-447 (upgrade path of its document), org.apache.kafka.streams.processor.internals.StreamsPartitionAssignor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

OF_TASKS: Final = 1
"""A producer for each task."""
OF_THREADS: Final = 2
"""The first version whose members may have a producer for each thread."""


@dataclass(slots=True)
class ProbingMember:
    """`latest` is the newest version that it understands, `used` the one that it speaks; it begins with the newest."""

    latest: int
    used: int = 0

    def __post_init__(self) -> None:
        self.used = self.used or self.latest


def settle(members: Sequence[ProbingMember]) -> int:
    """Let a group whose first member leads rebalance until all speak one version; return how many rebalances that took."""
    rounds = 0
    while True:
        rounds += 1
        leader = members[0]
        too_new = [member for member in members if member.used > leader.latest]
        if too_new:
            for member in too_new:
                member.used = leader.latest
            continue
        common = min(member.latest for member in members)
        if all(member.used == common for member in members):
            return rounds
        for member in members:
            member.used = common


def has_producers_per_thread(member: ProbingMember) -> bool:
    """Tell whether a member may have one producer for all of its tasks."""
    return member.used >= OF_THREADS

"""Version probing: members of different releases find the version that all of them understand, without an operator (KIP-268).

Each member sends, in the user data of its subscription, the version that it uses and the latest one that it understands. The leader
of the group returns, in the user data of each assignment, the lowest version in use and the latest one that all members understand.
A leader that meets a member of a later version than its own gives that member no partitions. A member that receives a lower version
than it sent, or learns that all members understand a later one than it uses, changes over and joins again.
Source: KIP-268; org.apache.kafka.streams.processor.internals.StreamsPartitionAssignor (assign, maybeUpdateSubscriptionVersion).
"""

from collections.abc import Collection
from typing import Final, NamedTuple

OF_TASKS: Final = 1
"""The version whose members have a producer for each task."""
OF_THREADS: Final = 2
"""The first version whose members may have a producer for each thread (KIP-447's document)."""


class Versions(NamedTuple):
    """What travels as user data, two int32. To the leader: the version in use and the latest that the member understands.

    From the leader: the version of the assignment and the latest that all members understand.
    """

    used: int
    latest: int


class VersionProbing:
    """The versions of one member. `latest`: the newest that it understands; it uses that until it is told another one."""

    def __init__(self, latest: int) -> None:
        self.own = Versions(latest, latest)
        self.assigned = 0
        """Of the last assignment that was taken; 0: of none yet."""

    def decide_assignment(self, members: Collection[Versions]) -> Versions:
        """As the leader: return what to tell all members."""
        understood = [each for each in members if not self.is_beyond(each)]
        return Versions(min(each.used for each in understood), min(self.own.latest, *(each.latest for each in members)))

    def is_beyond(self, member: Versions) -> bool:
        """As the leader: tell whether a member uses a version that this one does not understand."""
        return member.used > self.own.latest

    def on_assigned(self, told: Versions) -> bool:
        """Take what the leader says; tell whether the member must join again, with another version."""
        common = min(told.latest, self.own.latest)
        if common > self.own.used or told.used < self.own.used:
            self.own = Versions(common, self.own.latest)
            return True
        self.assigned = told.used
        return False

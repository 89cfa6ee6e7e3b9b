"""Version probing: members of different releases agree on the latest version that all support,
without an operator (KIP-268).

Each member sends, in the user data of its subscription, the version in use and its latest supported
version. The leader returns, in the user data of each assignment, the lowest version in use and the
latest version that all members support. A leader that meets a member with a later version than it
supports assigns no partitions to it. A member that receives a lower version than it sent, or a
later commonly supported version than it uses, switches and rejoins.
Source: KIP-268; org.apache.kafka.streams.processor.internals.StreamsPartitionAssignor (assign,
maybeUpdateSubscriptionVersion).
"""

from collections.abc import Collection
from typing import Final, NamedTuple

OF_TASKS: Final = 1
"""The version whose members have one producer per task."""
OF_THREADS: Final = 2
"""The first version whose members may have one producer per thread (KIP-447's document)."""


class Versions(NamedTuple):
    """The user data, two int32.

    To the leader: the version in use and the member's latest supported version.

    From the leader: the version of the assignment and the latest commonly supported version.
    """

    used: int
    latest: int


class VersionProbing:
    """The versions of one member.

    `latest`: its latest supported version, used until the leader returns another one.
    """

    def __init__(self, latest: int) -> None:
        self.own = Versions(latest, latest)
        self.assigned = 0
        """The version of the last assignment; 0: none yet."""

    def decide_assignment(self, members: Collection[Versions]) -> Versions:
        """As the leader: return the versions for all members."""
        understood = [each for each in members if not self.is_beyond(each)]
        return Versions(
            min(each.used for each in understood),
            min(self.own.latest, *(each.latest for each in members)),
        )

    def is_beyond(self, member: Versions) -> bool:
        """As the leader: return whether a member uses an unsupported version."""
        return member.used > self.own.latest

    def on_assigned(self, versions: Versions) -> bool:
        """Handle the leader's versions; return whether the member has to rejoin with another
        version.
        """
        common = min(versions.latest, self.own.latest)
        if common > self.own.used or versions.used < self.own.used:
            self.own = Versions(common, self.own.latest)
            return True
        self.assigned = versions.used
        return False

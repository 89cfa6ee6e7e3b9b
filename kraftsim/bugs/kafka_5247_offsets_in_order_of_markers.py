"""The offsets of a transaction count from their marker on, whatever was committed after them.

A group commits offset 5 in a transaction and 7 outside of it, then the transaction ends: the coordinator tells 5. Whoever loads the log finds 7
behind 5.

Source: KAFKA-5247, fixed by comparing where the commits stand (GroupMetadata.completePendingTxnOffsetCommit).
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.groups.group_offsets import CommittedOffset, GroupOffsets, TopicPartition
from kraftsim.core.groups.group_shard import GroupShard


class LatestMarkerWins(GroupOffsets):
    """Does not look at where a commit stands."""

    __slots__ = ()

    def materialise(self, partition: TopicPartition, stored: CommittedOffset) -> bool:
        """Let a pending offset count."""
        self.committed[partition] = stored  # right: only if no later commit is in the log
        return True


class GroupsOfMarkers(GroupShard):
    """Keeps offsets so."""

    offsets_class = LatestMarkerWins


BUG = Bug(
    name="KAFKA-5247",
    title="offsets of transactions count in the order of markers, not of the log",
    fixed_in=("0.11.0.0", "1.0.0"),
    swap=lambda parts: parts.replacing(group_shard=GroupsOfMarkers),
    story="old_and_new_clients_commit_offsets",
    caught_by=(
        "group-offsets-equal-log",
        "loaded-offsets-equal-log",
    ),
)

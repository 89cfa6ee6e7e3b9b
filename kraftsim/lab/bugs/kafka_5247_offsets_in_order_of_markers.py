"""The offsets of a transaction apply in the order of markers, regardless of later commits.

A group commits offset 5 in a transaction and 7 outside of it, then the transaction ends: the
coordinator returns 5. After a load from the log it returns 7, which is after 5.

Source: KAFKA-5247, fixed by comparing the log positions of the commits
(GroupMetadata.completePendingTxnOffsetCommit).
"""

from kraftsim.groups.rules_offsets import CommittedOffset, GroupOffsets, TopicPartition
from kraftsim.groups.rules_shard import GroupShard
from kraftsim.lab.bugs.bug import Bug


class LatestMarkerWins(GroupOffsets):
    """Ignores the log position of a commit."""

    __slots__ = ()

    def materialise(self, partition: TopicPartition, stored: CommittedOffset) -> bool:
        """Apply a pending offset."""
        self.committed[partition] = stored  # right: only if no later commit is in the log
        return True


class GroupsOfMarkers(GroupShard):
    """Stores offsets this way."""

    offsets_class = LatestMarkerWins


BUG = Bug(
    name="KAFKA-5247",
    title="transactional offsets apply in the order of markers, not of the log",
    fixed_in=("0.11.0.0", "1.0.0"),
    swap=lambda parts: parts.replacing(group_shard=GroupsOfMarkers),
    scenario="offset_commits_pre_and_post_kip_447",
    caught_by=(
        "group-offsets-equal-log",
        "loaded-offsets-equal-log",
    ),
)

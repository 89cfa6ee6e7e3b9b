"""A consumer that asks for stable offsets is told the former one while a transaction may replace it.

The group has given a partition to another member; the member before it has committed its offsets in a transaction that is not over. Both copy the
same records.

Source: KAFKA-9346, what KIP-447 added: UNSTABLE_OFFSET_COMMIT (GroupMetadataManager.getOffsets).
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.groups.group_offsets import OffsetHolder, TopicPartition
from kraftsim.core.groups.group_shard import GroupShard


class TellsWhatStands(GroupShard):
    """Knows no RequireStable."""

    def withholds(self, group: OffsetHolder, partition: TopicPartition, *, require_stable: bool) -> bool:
        """Withhold nothing."""
        return False  # right: what a transaction may replace is not told to whoever wants it stable


BUG = Bug(
    name="KAFKA-9346",
    title="offsets are told that a transaction is about to replace",
    fixed_in=("2.5.0",),
    swap=lambda parts: parts.replacing(group_shard=TellsWhatStands),
    story="exactly_once_under_faults",
    caught_by=("offsets-told-are-stable", "every-input-copied-once"),
)

"""A consumer that fetches stable offsets gets the previous offset while an open transaction may
replace it.

The group has assigned a partition to another member; the previous owner has committed its offsets
in a transaction that is still open. Both process the same records.

Source: KAFKA-9346, what KIP-447 added: UNSTABLE_OFFSET_COMMIT (GroupMetadataManager.getOffsets).
"""

from kraftsim.groups.rules_offsets import OffsetHolder, TopicPartition
from kraftsim.groups.rules_shard import GroupShard
from kraftsim.lab.bugs.bug import Bug


class ReturnsUnstableOffsets(GroupShard):
    """Ignores require_stable."""

    def withholds(
        self, group: OffsetHolder, partition: TopicPartition, *, require_stable: bool
    ) -> bool:
        """Return every offset."""
        # right: an offset that a transaction may replace is not returned to a client that requires
        # stable offsets
        return False


BUG = Bug(
    name="KAFKA-9346",
    title="OffsetFetch with require_stable returns offsets with a pending transactional commit",
    fixed_in=("2.5.0",),
    swap=lambda parts: parts.replacing(group_shard=ReturnsUnstableOffsets),
    scenario="exactly_once_under_faults",
    caught_by=("fetched-offsets-stable", "each-input-processed-once"),
)

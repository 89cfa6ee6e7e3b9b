"""What followers were told of partitions of which there was nothing to tell: they ask again and again, and for most of them nothing has changed.

A follower of a thousand partitions names those that change, and each of its requests is about all of them.   Source: KIP-227 says what is the same.
"""

from dataclasses import dataclass

from kraftsim.core.partitions.partition_replica import PartitionReplica
from kraftsim.core.partitions.reign import Reign
from protocol.messages.k01_fetch import FetchPartition, PartitionData


@dataclass(frozen=True, slots=True)
class _QuietRow:
    asked: FetchPartition
    reign: Reign
    row: PartitionData


class QuietRows:
    """Those of one partition, by follower."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[int, _QuietRow] = {}

    def keep(self, follower_id: int, asked: FetchPartition, replica: PartitionReplica, row: PartitionData) -> None:
        """Remember a row without records and without an error."""
        if replica.reign is not None:
            self._rows[follower_id] = _QuietRow(asked, replica.reign, row)

    def find(self, follower_id: int, asked: FetchPartition, replica: PartitionReplica) -> PartitionData | None:
        """Return the row if the same question has the same answer still, as far as a follower is told any of it."""
        quiet = self._rows.get(follower_id)
        if quiet is None or quiet.asked is not asked or quiet.reign is not replica.reign or follower_id not in quiet.reign.followers:
            return None
        row = quiet.row
        is_same = (
            asked.fetch_offset == replica.log_end_offset
            and row.high_watermark == replica.high_watermark
            and row.log_start_offset == replica.log_start_offset
        )
        return row if is_same else None

"""A cache of unchanged fetch rows: followers fetch every partition again and again, and most of the time nothing has changed.

A follower of a thousand partitions sends only changed ones, but every Fetch covers all of them.   Source: KIP-227 defines "unchanged".
"""

from dataclasses import dataclass

from kraftsim.core.partitions.leader_state import LeaderState
from kraftsim.core.partitions.partition_replica import PartitionReplica
from protocol.messages.k01_fetch import FetchPartition, PartitionData


@dataclass(frozen=True, slots=True)
class _UnchangedRow:
    asked: FetchPartition
    leader_state: LeaderState
    row: PartitionData


class UnchangedRows:
    """The cached rows of one partition, by follower."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[int, _UnchangedRow] = {}

    def keep(self, follower_id: int, asked: FetchPartition, replica: PartitionReplica, row: PartitionData) -> None:
        """Cache a row without records and without an error."""
        if replica.leader_state is not None:
            self._rows[follower_id] = _UnchangedRow(asked, replica.leader_state, row)

    def find(self, follower_id: int, asked: FetchPartition, replica: PartitionReplica) -> PartitionData | None:
        """Return the cached row if the same fetch would still have the same response."""
        cached = self._rows.get(follower_id)
        if (
            cached is None
            or cached.asked is not asked
            or cached.leader_state is not replica.leader_state
            or follower_id not in cached.leader_state.followers
        ):
            return None
        row = cached.row
        is_same = (
            asked.fetch_offset == replica.log_end_offset
            and row.high_watermark == replica.high_watermark
            and row.log_start_offset == replica.log_start_offset
        )
        return row if is_same else None

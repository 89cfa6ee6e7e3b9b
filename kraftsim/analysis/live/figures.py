"""What a watcher shows of a running cluster: rates since the last look, and how far reading and
replication are behind.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from kraftsim.clients.events import RecordAcknowledged
from kraftsim.events.event import Event
from kraftsim.partitions.events import BatchAppended, PartitionHighWatermarkMoved
from kraftsim.partitions.events_transactions import MarkerAppended

FIGURE_KINDS: Final[tuple[type[Event], ...]] = (
    BatchAppended,
    MarkerAppended,
    PartitionHighWatermarkMoved,
    RecordAcknowledged,
)
Partition = tuple[str, int]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a watch at one moment.

    Rates are per second since the last status. `oldest_unread_seconds` says how long the oldest
    unread line has been there; `checked_behind_seconds` how far the checks are behind the present,
    None while the present is unknown. `node_lag_seconds` is the age of the last event of each
    node. `high_watermark_lag` is the largest number of records between the high watermark and the
    end of a leader's log, of all partitions that moved theirs.
    """

    event_count: int
    checked_count: int
    events_per_second: float
    acknowledged_per_second: float
    bytes_behind: int
    oldest_unread_seconds: float
    waiting_count: int
    checked_behind_seconds: float | None
    node_lag_seconds: Mapping[str, float]
    high_watermark_lag: int | None
    high_watermark_lag_of: str
    violation_count: int

    def line(self) -> str:
        """Return the status as a line of text."""
        parts = [
            f"{self.event_count:,} events",
            f"{self.events_per_second:,.0f}/s",
            f"{self.acknowledged_per_second:,.0f} acknowledged/s",
            f"{self.bytes_behind:,} bytes unread"
            + (
                f" for {self.oldest_unread_seconds:.1f} s"
                if self.bytes_behind and self.oldest_unread_seconds >= 0.1
                else ""
            ),
        ]
        if self.checked_behind_seconds is not None:
            parts.append(f"checks {self.checked_behind_seconds:.1f} s behind")
        if self.node_lag_seconds:
            node, seconds = max(self.node_lag_seconds.items(), key=lambda each: each[1])
            parts.append(f"last event of {node} {seconds:.1f} s ago")
        if self.high_watermark_lag is not None:
            parts.append(
                f"high watermark lag {self.high_watermark_lag:,}"
                + (f" ({self.high_watermark_lag_of})" if self.high_watermark_lag else "")
            )
        parts.append(f"{self.violation_count} violations")
        return ", ".join(parts)


class ClusterFigures:
    """Figures from the checked events."""

    def __init__(self) -> None:
        self.acknowledged_count = 0
        self.ends: dict[tuple[str, str, int], int] = {}
        self._high_watermarks: dict[Partition, tuple[str, int]] = {}

    def examine(self, node: str, event: Event) -> None:
        """Process one event."""
        match event:
            case RecordAcknowledged():
                self.acknowledged_count += 1
            case BatchAppended():
                self.ends[node, event.topic, event.partition] = event.last_offset + 1
            case MarkerAppended():
                self.ends[node, event.topic, event.partition] = event.offset + 1
            case PartitionHighWatermarkMoved() if event.is_leader:
                self._high_watermarks[event.topic, event.partition] = (node, event.high_watermark)
            case _:
                pass

    def high_watermark_lag(self) -> tuple[int, str] | None:
        """Return the largest lag and its partition; None if no leader moved a high watermark."""
        lags: Counter[str] = Counter()
        for (topic, partition), (leader, mark) in sorted(self._high_watermarks.items()):
            end = self.ends.get((leader, topic, partition), mark)
            lags[f"{topic}-{partition}"] = max(0, end - mark)
        if not lags:
            return None
        partition_name, lag = lags.most_common(1)[0]
        return lag, partition_name

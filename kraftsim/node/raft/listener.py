"""What a node hears from its replica of the metadata log.

Every node that has one follows what is committed; only a controller can come to lead.
Source: org.apache.kafka.raft.RaftClient.Listener.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from kraftsim.core.raft.raft_log import SnapshotId
from kraftsim.core.raft.voter_set import VoterNode
from protocol.batches import RecordBatch


class MetadataListener(Protocol):
    """Follows the log. Batches and snapshots come one after the other; the next one comes when the last call has returned."""

    async def on_committed(self, batches: Sequence[RecordBatch]) -> None:
        """Take committed batches, in order and without a gap, control batches among them."""
        ...

    async def on_snapshot(self, snapshot: SnapshotId, batches: Iterator[RecordBatch]) -> None:
        """Forget everything and take a snapshot in its place. Batches that follow begin at its end offset, or before it: those are to be skipped."""
        ...

    def on_leader(self, leader_epoch: int, leader: VoterNode | None) -> None:
        """Who leads changed; None: nobody is known to."""
        ...


class LeaderDuties(Protocol):
    """What a node does that leads. Between `on_lead` and `on_stop_leading` nothing committed is handed to the listener: it wrote it itself."""

    def on_lead(self, leader_epoch: int) -> None:
        """Everything in the log is committed and was handed on: act as the active controller of an epoch."""
        ...

    def on_stop_leading(self, leader_epoch: int, reason: str, high_watermark: int) -> None:
        """Another epoch has begun: undo everything from the high watermark on. What of it is committed after all comes to the listener."""
        ...

    def on_high_watermark(self, high_watermark: int) -> None:
        """Everything below the high watermark is committed; said while this node leads."""
        ...

    def on_readable(self, *, is_committed: bool) -> None:
        """Fetches that wait may have something to read: what was committed, or else what was only written; or this node leads no more."""
        ...

    def on_lost(self, reason: str, high_watermark: int) -> None:
        """The disk refused: undo what is not committed, answer nobody. The node goes down after this call."""
        ...

"""Callbacks of a node for its replica of the metadata log.

Every node with a replica follows the committed log; only a controller can become leader.
Source: org.apache.kafka.raft.RaftClient.Listener.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from kraftsim.core.raft.raft_log import SnapshotId
from kraftsim.core.raft.voter_set import VoterNode
from protocol.batches import RecordBatch


class MetadataListener(Protocol):
    """Follows the log. Batches and snapshots are passed one at a time; the next call is made after the previous one has returned."""

    async def on_committed(self, batches: Sequence[RecordBatch]) -> None:
        """Process committed batches, in order and without gaps, including control batches."""
        ...

    async def on_snapshot(self, snapshot: SnapshotId, batches: Iterator[RecordBatch]) -> None:
        """Replace all state by a snapshot. Batches that follow start at its end offset, or before it: earlier ones must be skipped."""
        ...

    def on_leader(self, leader_epoch: int, leader: VoterNode | None) -> None:
        """The leader changed; None: the leader is unknown."""
        ...


class LeaderDuties(Protocol):
    """Duties of the leader. Between `on_lead` and `on_stop_leading` committed batches are not passed to the
    listener: this node wrote them itself."""

    def on_lead(self, leader_epoch: int) -> None:
        """Everything in the log is committed and was passed to the listener: act as the active controller of an epoch."""
        ...

    def on_stop_leading(self, leader_epoch: int, reason: str, high_watermark: int) -> None:
        """Another epoch has begun: revert everything from the high watermark on. Records that are committed
        after all are passed to the listener."""
        ...

    def on_high_watermark(self, high_watermark: int) -> None:
        """Everything below the high watermark is committed; called while this node is leader."""
        ...

    def on_readable(self, *, is_committed: bool) -> None:
        """Pending fetches may be completed: records were committed or only written, or this node is no longer leader."""
        ...

    def on_lost(self, reason: str, high_watermark: int) -> None:
        """The disk failed: revert what is not committed, without answering requests. The node stops after this call."""
        ...

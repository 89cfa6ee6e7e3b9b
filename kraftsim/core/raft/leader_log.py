"""The metadata log on its leader, in a quorum of one: which offsets records get, and which of them are committed.

A record counts once it is flushed. (Kafka's leader counts its own records when they are appended: a deviation on purpose, docs/deviations.md;
counting too early is what KAFKA-10533 was about.)   Source: KIP-595, LeaderState.maybeUpdateHighWatermark, KafkaRaftClient.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kraftsim.events.event import Event
from kraftsim.events.metadata import MetadataAppended, MetadataCommitted
from protocol.disk.quorum_state import QuorumState, QuorumVoter


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedOffsets:
    """Where the records of one batch went; both ends are inside."""

    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SoleElection:
    """What the only voter of a quorum writes to `quorum-state`, each durable before the next step: its vote, then its victory."""

    voted: QuorumState
    elected: QuorumState

    @property
    def leader_epoch(self) -> int:
        """The epoch that was won."""
        return self.elected.leader_epoch


def elect_sole_voter(node_id: int, persisted: QuorumState | None, last_log_epoch: int) -> SoleElection:
    """Let the only voter win a new epoch: one above whatever file and log have seen, for it must never lead the same epoch twice (KAFKA-10527).

    `persisted` is None where there is no file yet, `last_log_epoch` is 0 for an empty log.
    """
    seen_epoch = max(last_log_epoch, persisted.leader_epoch if persisted is not None else 0)
    return SoleElection(
        voted=QuorumState(leader_epoch=seen_epoch + 1, voted_id=node_id, current_voters=[QuorumVoter(voter_id=node_id)]),
        elected=QuorumState(leader_epoch=seen_epoch + 1, leader_id=node_id, current_voters=[QuorumVoter(voter_id=node_id)]),
    )


class LeaderLog:
    """The offsets of the metadata log while this node leads. The first record of an epoch is its LeaderChange control record.

    Order of calls: `append`, write the batch, `on_written`, flush, `on_flushed`.
    """

    def __init__(self, *, leader_epoch: int, log_end_offset: int, note: Callable[[Event], None]) -> None:
        self.leader_epoch = leader_epoch
        self.epoch_start_offset = log_end_offset
        """Where the LeaderChange record of this epoch goes."""
        self.log_end_offset = log_end_offset
        self.flushed_end_offset = log_end_offset
        """The first offset that may be lost with the power. What recovery read back counts as flushed: flush it before you lead."""
        self.known_high_watermark: int | None = None
        """The first offset that is not committed; None until the LeaderChange record of this epoch is committed."""
        self._note = note

    @property
    def high_watermark(self) -> int:
        """The first offset that is not committed; 0 while the leader does not know, which is until its LeaderChange record is."""
        return self.known_high_watermark or 0

    @property
    def knows_high_watermark(self) -> bool:
        """Whether the LeaderChange record of this epoch is committed: before that, a controller is not active."""
        return self.known_high_watermark is not None

    def append(self, record_count: int, record_kinds: str = "") -> AppendedOffsets:
        """Give the records of one batch their offsets. `record_kinds` is a comma-separated list for the event log."""
        assert record_count > 0, "a batch has at least one record"
        offsets = AppendedOffsets(first_offset=self.log_end_offset, last_offset=self.log_end_offset + record_count - 1)
        self.log_end_offset = offsets.last_offset + 1
        self._note(
            MetadataAppended(
                leader_epoch=self.leader_epoch, first_offset=offsets.first_offset, last_offset=offsets.last_offset, record_kinds=record_kinds
            )
        )
        return offsets

    def on_written(self) -> int | None:
        """Take note that everything appended is written, not flushed. Returns the high watermark if it moved."""
        return self._advance()

    def on_flushed(self, end_offset: int) -> int | None:
        """Take note that everything below end_offset is flushed. Returns the high watermark if it moved."""
        assert end_offset <= self.log_end_offset, f"flushed to {end_offset}, the log ends at {self.log_end_offset}"
        self.flushed_end_offset = max(self.flushed_end_offset, end_offset)
        return self._advance()

    def _counted_end_offset(self) -> int:
        """Return how far the leader counts its own log: as far as a loss of power leaves it."""
        return self.flushed_end_offset

    def _advance(self) -> int | None:
        """Move the high watermark: past the LeaderChange record of this epoch or not at all (KAFKA-12619), and never back."""
        counted = self._counted_end_offset()
        if counted <= self.epoch_start_offset or counted <= self.high_watermark:
            return None
        self.known_high_watermark = counted
        self._note(MetadataCommitted(leader_epoch=self.leader_epoch, high_watermark=counted))
        return counted

"""A remote segment: its offsets, its leader epochs, and the state of its copy.

Source: org.apache.kafka.server.log.remote.storage.{RemoteLogSegmentMetadata,
RemoteLogSegmentState}.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from protocol.disk.leader_epoch_checkpoint import EpochStart
from protocol.remote_log.registry import RemoteLogSegmentState

SegmentState = RemoteLogSegmentState

NEXT_STATES: Final[Mapping[SegmentState, tuple[SegmentState, ...]]] = {
    SegmentState.COPY_SEGMENT_STARTED: (
        SegmentState.COPY_SEGMENT_FINISHED,
        SegmentState.DELETE_SEGMENT_STARTED,
    ),
    SegmentState.COPY_SEGMENT_FINISHED: (SegmentState.DELETE_SEGMENT_STARTED,),
    SegmentState.DELETE_SEGMENT_STARTED: (SegmentState.DELETE_SEGMENT_FINISHED,),
    SegmentState.DELETE_SEGMENT_FINISHED: (),
}
"""The valid next states of each state, besides itself."""


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """A partition of a topic id."""

    topic_id: bytes
    partition: int
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegment:
    """Both ends of the offset range are inclusive.

    `leader_epochs`: the epochs of its records, with the first offset of each.
    """

    segment_id: bytes
    owner: TopicIdPartition
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    size_bytes: int
    leader_epochs: tuple[EpochStart, ...]
    state: SegmentState = SegmentState.COPY_SEGMENT_STARTED
    custom_metadata: bytes | None = None
    is_transaction_index_empty: bool = False

    def advanced(self, update: "SegmentUpdate") -> "RemoteSegment":
        """Return the segment after an update."""
        kept = self.custom_metadata if update.custom_metadata is None else update.custom_metadata
        return replace(
            self,
            state=update.state,
            custom_metadata=kept,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentUpdate:
    """The copy is complete, or the segment is being deleted, or is deleted."""

    segment_id: bytes
    owner: TopicIdPartition
    broker_id: int
    event_timestamp_ms: int
    state: SegmentState
    custom_metadata: bytes | None = None


def may_follow(former: SegmentState | None, state: SegmentState) -> bool:
    """Return whether a transition is valid; None: the segment is unknown."""
    return (
        state is SegmentState.COPY_SEGMENT_STARTED
        if former is None
        else state is former or state in NEXT_STATES[former]
    )

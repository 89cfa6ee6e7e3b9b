"""What the metadata topic and the store say of remote segments at the end of a run."""

from kraftsim.tiered_storage.events import FinalRemoteEpoch, FinalRemoteSegment
from kraftsim.tiered_storage.final_segments import UNKNOWN, final_remote_events
from kraftsim.tiered_storage.remote_store import RemoteFile, key_of
from kraftsim.tiered_storage.rules_segments import (
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
    segment_record,
    update_record,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.storage.text_files import EpochStart
from protocol.uuids import uuid_text

OWNER = TopicIdPartition(b"t" * 16, 3, "ledger")
LOG = "__remote_log_metadata-7/00000000000000000000.log"


def segment(name: bytes, first_offset: int) -> RemoteSegment:
    """A segment of ten offsets: three of epoch 1, seven of epoch 4."""
    return RemoteSegment(
        segment_id=name * 16,
        owner=OWNER,
        start_offset=first_offset,
        end_offset=first_offset + 9,
        max_timestamp_ms=0,
        broker_id=1,
        event_timestamp_ms=0,
        size_bytes=1,
        leader_epochs=(EpochStart(1, first_offset), EpochStart(4, first_offset + 3)),
    )


def update(of: RemoteSegment, state: SegmentState) -> bytes:
    """A change of its state."""
    return update_record(
        SegmentUpdate(
            segment_id=of.segment_id, owner=OWNER, broker_id=1, event_timestamp_ms=1, state=state
        )
    )


def log(*values: bytes) -> bytes:
    """A log with one batch for each record."""
    return b"".join(
        build_batch([Record(timestamp=0, value=value)], base_offset=offset)
        for offset, value in enumerate(values)
    )


def test_last_states_epochs_and_objects_are_read() -> None:
    """The longest replica counts; an invalid transition is ignored, and objects without a segment
    are reported, too.
    """
    whole, gone, stray = segment(b"a", 0), segment(b"b", 10), segment(b"c", 20)
    values = (
        segment_record(whole),
        update(whole, SegmentState.COPY_SEGMENT_FINISHED),
        segment_record(gone),
        update(gone, SegmentState.DELETE_SEGMENT_STARTED),
        update(gone, SegmentState.DELETE_SEGMENT_FINISHED),
        update(gone, SegmentState.COPY_SEGMENT_FINISHED),
    )
    files = {f"broker-1/{LOG}": log(*values[:1]), f"broker-2/{LOG}": log(*values)}
    keys = [
        key_of(whole, RemoteFile.RECORDS),
        key_of(whole, RemoteFile.TIMES),
        key_of(stray, RemoteFile.PRODUCERS),
        "something else",
    ]
    events = list(final_remote_events(files, keys))
    assert [
        (event.segment_id, event.status, event.first_offset, event.objects)
        for event in events
        if isinstance(event, FinalRemoteSegment)
    ] == [
        (uuid_text(b"a" * 16), SegmentState.COPY_SEGMENT_FINISHED, 0, ".log,.timeindex"),
        (uuid_text(b"b" * 16), SegmentState.DELETE_SEGMENT_FINISHED, 10, ""),
        (uuid_text(b"c" * 16), UNKNOWN, 20, ".snapshot"),
    ]
    assert [
        (event.leader_epoch, event.first_offset, event.last_offset)
        for event in events
        if isinstance(event, FinalRemoteEpoch)
    ] == [(1, 0, 2), (4, 3, 9)]

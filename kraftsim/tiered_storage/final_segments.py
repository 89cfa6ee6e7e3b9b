"""The remote segments at the end of a run: what the metadata topic says of them, and the objects
that are in the store, as input of the invariants on tiered storage.

Independent of brokers' memory and events. Of the replicas of a partition of `__remote_log_metadata`
the longest counts.
Source: KIP-405, RemoteLogSegmentState, RemoteLogMetadataCache.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from kraftsim.events.event import Event
from kraftsim.partitions.rules_final_log import final_batches
from kraftsim.tiered_storage.events import FinalRemoteEpoch, FinalRemoteSegment
from kraftsim.tiered_storage.remote_store import METADATA_TOPIC
from kraftsim.tiered_storage.rules_segments import (
    RemoteSegment,
    SegmentState,
    end_of_epoch,
    may_follow,
    parse_metadata,
)
from protocol.malformed import MalformedMessage
from protocol.uuids import uuid_text

KEY: Final = re.compile(
    r"(?P<topic>[^/]+)-(?P<partition>\d+)-(?P<topic_id>[\w-]{22})/"
    r"(?P<first_offset>\d{20})-(?P<segment_id>[\w-]{22})(?P<suffix>\..+)"
)
UNKNOWN: Final = -1
NO_OFFSET: Final = -1


def final_remote_events(files: Mapping[str, bytes], keys: Iterable[str]) -> Iterator[Event]:
    """Yield FinalRemoteSegment, then its FinalRemoteEpoch events, for each segment, sorted by
    topic, partition and first offset.

    `files` are those of `final_log_events`; `keys` are the names of all objects in the store.
    """
    objects: dict[str, list[re.Match[str]]] = {}
    for key in sorted(keys):
        found = KEY.fullmatch(key)
        if found is not None:
            objects.setdefault(found["segment_id"], []).append(found)
    known = _segments(files)
    for segment in sorted(
        known.values(),
        key=lambda each: (each.owner.topic, each.owner.partition, each.start_offset),
    ):
        segment_id = uuid_text(segment.segment_id)
        yield FinalRemoteSegment(
            topic=segment.owner.topic,
            partition=segment.owner.partition,
            segment_id=segment_id,
            status=segment.state,
            first_offset=segment.start_offset,
            last_offset=segment.end_offset,
            objects=",".join(each["suffix"] for each in objects.pop(segment_id, [])),
            is_transaction_index_empty=segment.is_transaction_index_empty,
        )
        for each in (
            segment.leader_epochs if segment.state is SegmentState.COPY_SEGMENT_FINISHED else ()
        ):
            yield FinalRemoteEpoch(
                topic=segment.owner.topic,
                partition=segment.owner.partition,
                segment_id=segment_id,
                leader_epoch=each.leader_epoch,
                first_offset=each.start_offset,
                last_offset=end_of_epoch(segment, each.leader_epoch),
            )
    for segment_id, left in objects.items():
        yield FinalRemoteSegment(
            topic=left[0]["topic"],
            partition=int(left[0]["partition"]),
            segment_id=segment_id,
            status=UNKNOWN,
            first_offset=int(left[0]["first_offset"]),
            last_offset=NO_OFFSET,
            objects=",".join(each["suffix"] for each in left),
            is_transaction_index_empty=False,
        )


def _segments(files: Mapping[str, bytes]) -> dict[bytes, RemoteSegment]:
    segments: dict[bytes, RemoteSegment] = {}
    for batches in final_batches(files, METADATA_TOPIC):
        for record in (
            record for batch in batches if not batch.is_control for record in batch.records()
        ):
            with suppress(MalformedMessage):
                change = None if record.value is None else parse_metadata(bytes(record.value))
                if isinstance(change, RemoteSegment):
                    segments.setdefault(change.segment_id, change)
                elif change is not None and change.segment_id in segments:
                    before = segments[change.segment_id]
                    if may_follow(before.state, change.state):
                        segments[change.segment_id] = before.advanced(change)
    return segments

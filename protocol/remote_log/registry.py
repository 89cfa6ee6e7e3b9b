"""Frames the records of `__remote_log_metadata` and finds their classes, which are declared in
`records`.

The frame is that of `record_frames`, with numbers of their own; the key of a log record is null.
Source: KIP-405; RemoteLogMetadataSerde, BytesApiMessageSerde.
"""

from enum import IntEnum
from functools import cache

from protocol.declarations import classes_by_number
from protocol.records.record_frames import build_frame, frame_record_version, parse_frame
from protocol.schema import Message

__all__ = [
    "RemoteLogSegmentState",
    "RemotePartitionDeleteState",
    "build_record",
    "declared_records",
    "parse_record",
    "record_class",
    "record_version",
]

MODULES = ("records",)
"""The modules that declare records."""

build_record = build_frame
record_version = frame_record_version


class RemoteLogSegmentState(IntEnum):
    """The state of a segment's upload."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemotePartitionDeleteState(IntEnum):
    """The state of a partition's deletion."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


def parse_record(value: bytes) -> Message:
    """Return the record in the value of a log record; `record_version` returns its version.

    Raises MalformedMessage.
    """
    return parse_frame(value, record_class)


@cache
def declared_records() -> tuple[type, ...]:
    """Return the class of every record, by ascending number."""
    return tuple(_classes().values())


def record_class(number: int) -> type:
    """Return the class of a record. Raises KeyError."""
    return _classes()[number]


@cache
def _classes() -> dict[int, type]:
    return classes_by_number((f"{__package__}.{name}" for name in MODULES), "metadata")

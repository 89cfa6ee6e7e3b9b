"""Frames the records of the metadata log and finds their classes, which are declared in the modules
of this package, by subject.

The frame is that of `record_frames`; the key of a log record is null.
Source: KIP-631, MetadataRecordSerde.
"""

from functools import cache

from protocol.declarations import classes_by_number
from protocol.records.record_frames import (
    FRAME_VERSION,
    build_frame,
    frame_record_version,
    parse_frame,
)
from protocol.schema import Message

__all__ = [
    "FRAME_VERSION",
    "build_record",
    "declared_records",
    "parse_record",
    "record_class",
    "record_version",
]

MODULES = ("registrations", "topics", "settings", "security", "controller")
"""The modules that declare records."""

build_record = build_frame
record_version = frame_record_version


def parse_record(value: bytes) -> Message:
    """Return the metadata record in the value of a log record; `record_version` returns its
    version.

    Raises MalformedMessage: a node must stop at an unknown record.
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

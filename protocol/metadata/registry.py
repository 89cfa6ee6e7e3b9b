"""Frames the records of the metadata log and finds their classes, which are declared in files
`mNN_name.py` of this package.

The frame is that of `record_frames`; the key of a log record is null.
Source: KIP-631, MetadataRecordSerde.
"""

import importlib
import os
from functools import cache

from protocol.numbered_files import name_in_kafka, numbered_modules
from protocol.records.record_frames import (
    FRAME_VERSION,
    build_frame,
    frame_record_version,
    parse_frame,
)
from protocol.schema import Message, declaration_of

__all__ = [
    "FRAME_VERSION",
    "build_record",
    "declared_records",
    "parse_record",
    "record_class",
    "record_version",
]

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
    return tuple(record_class(number) for number in sorted(_module_names()))


@cache
def record_class(number: int) -> type:
    """Return the class of a record. Raises KeyError."""
    module_name = _module_names()[number]
    module = importlib.import_module(f"protocol.metadata.{module_name}")
    found = getattr(module, name_in_kafka(module_name) + "Record")
    assert isinstance(found, type) and declaration_of(found).api_key == number, (
        f"{module_name} does not declare record {number}"
    )
    return found


@cache
def _module_names() -> dict[int, str]:
    """Map each number to the name of its file."""
    return numbered_modules(os.path.dirname(__file__), "m")

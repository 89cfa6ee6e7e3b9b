"""Frames the records of the metadata log and finds their classes; a file `mNN_name.py` in this folder is all that it takes to be found.

The value of a log record is a frame version (1), the record's number, its version and its body, the first three as unsigned varints.
Source: KIP-631, MetadataRecordSerde, AbstractApiMessageSerde.
"""

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Final

from protocol.malformed import MalformedMessage
from protocol.message_codec import CompiledMessage, compiled
from protocol.schema import Message, declaration_of

FRAME_VERSION: Final = 1

_FILE = re.compile(r"m(\d+)_(\w+)\.py")


def build_record(record: Message, version: int) -> bytes:
    """Return the value of the log record that carries a metadata record."""
    cls: type = type(record)
    declaration = declaration_of(cls)
    assert declaration.kind == "metadata" and declaration.api_key is not None, f"{declaration.name} is no metadata record"
    return bytes((FRAME_VERSION, declaration.api_key, version)) + compiled(cls, version).encode(record)


def parse_record(value: bytes) -> Message:
    """Return the metadata record in the value of a log record; `record_version` tells its version.

    Raises MalformedMessage: a node that meets a record it does not know must not go on.
    """
    if len(value) < 3 or (value[0] | value[1] | value[2]) > 127:
        raise MalformedMessage(None, None, "", f"a frame of {len(value)} bytes that begins with {value[:3].hex()}")
    frame_version, number, version = value[:3]
    if frame_version != FRAME_VERSION:
        raise MalformedMessage(None, None, "", f"frame version {frame_version}")
    record, position = _codec(number, version).decode(value, 3)
    if position != len(value):
        raise MalformedMessage(number, version, "", f"{len(value) - position} bytes are left", position)
    return record


def record_version(value: bytes) -> int:
    """Return the version of the record in a value that `parse_record` accepts."""
    return value[2]


@cache
def declared_records() -> tuple[type, ...]:
    """Return the class of every record, by ascending number."""
    return tuple(record_class(number) for number in sorted(_module_names()))


@cache
def record_class(number: int) -> type:
    """Return the class of a record. Raises KeyError."""
    module_name = _module_names()[number]
    module = importlib.import_module(f"protocol.metadata.{module_name}")
    found = getattr(module, "".join(word.capitalize() for word in module_name.split("_")[1:]) + "Record")
    assert isinstance(found, type) and declaration_of(found).api_key == number, f"{module_name} does not declare record {number}"
    return found


@cache
def _codec(number: int, version: int) -> CompiledMessage:
    """Return the codec of a kind of record. Raises MalformedMessage for one that is not declared."""
    if number not in _module_names():
        raise MalformedMessage(number, version, "", "an unknown kind of metadata record")
    cls = record_class(number)
    if version not in declaration_of(cls).versions:
        raise MalformedMessage(number, version, "", f"{cls.__name__} has versions {declaration_of(cls).versions}")
    return compiled(cls, version)


@cache
def _module_names() -> dict[int, str]:
    """Map each number to the name of its file."""
    found: dict[int, str] = {}
    for file in sorted(Path(__file__).parent.glob("m*.py")):
        match = _FILE.fullmatch(file.name)
        assert match is not None, f"{file.name} is not called mNN_name.py"
        assert int(match[1]) not in found, f"two files for record {match[1]}"
        found[int(match[1])] = file.stem
    return found

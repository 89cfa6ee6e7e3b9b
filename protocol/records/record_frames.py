"""The frame of a record in the metadata log and in the remote log metadata topic: record type and
version.

A frame version (1), the record's number and its version, each an unsigned varint, then the record;
nothing may follow it.
Source: KIP-631; AbstractApiMessageSerde, MetadataRecordSerde, BytesApiMessageSerde.
"""

from collections.abc import Callable
from functools import cache
from typing import Final

from protocol.codec.fixed import fixed
from protocol.codec.message_codec import CompiledMessage, compiled
from protocol.malformed import MalformedMessage
from protocol.schema import Message, declaration_of, int8, structure

FRAME_VERSION: Final = 1


@structure
class RecordFrame:
    """What stands before the record: three varints in Kafka, each of which has had one byte so
    far.
    """

    frame_version: int = int8(default=FRAME_VERSION)
    number: int = int8()
    version: int = int8()


FRAME: Final = fixed(RecordFrame)

RecordClass = Callable[[int], type]
"""The class of a record's number. Raises KeyError for an undeclared one."""


def build_frame(record: Message, version: int) -> bytes:
    """Return the value of the log record that contains a record."""
    start, codec = _codec_of(type(record), version)  # type: ignore[arg-type]  # a class is hashable
    return start + codec.encode(record)


def parse_frame(value: bytes, record_class: RecordClass) -> Message:
    """Return the record in the value of a log record; `frame_record_version` returns its version.

    Raises MalformedMessage: a node must stop at an unknown record.
    """
    if len(value) < 3 or (value[0] | value[1] | value[2]) > 127:
        raise MalformedMessage(
            None, None, "", f"a frame of {len(value)} bytes that begins with {value[:3].hex()}"
        )
    frame_version, number, version = FRAME.unpack_from(value)
    if frame_version != FRAME_VERSION:
        raise MalformedMessage(None, None, "", f"frame version {frame_version}")
    record, position = _codec(record_class, number, version).decode(value, FRAME.size)
    if position != len(value):
        raise MalformedMessage(
            number, version, "", f"{len(value) - position} bytes are left", position
        )
    return record


def frame_record_version(value: bytes) -> int:
    """Return the version of the record in a value that `parse_frame` accepts."""
    return value[2]


@cache
def _codec_of(cls: type, version: int) -> tuple[bytes, CompiledMessage[Message]]:
    """Return the start of the frame of a record of a class, and its codec."""
    declaration = declaration_of(cls)
    assert declaration.kind == "metadata" and declaration.api_key is not None, (
        f"{declaration.name} has no number"
    )
    return FRAME.pack(FRAME_VERSION, declaration.api_key, version), compiled(cls, version)


@cache
def _codec(record_class: RecordClass, number: int, version: int) -> CompiledMessage[Message]:
    """Return the codec of a record type. Raises MalformedMessage for an undeclared one."""
    try:
        cls = record_class(number)
    except KeyError:
        raise MalformedMessage(number, version, "", "an unknown kind of record") from None
    if version not in declaration_of(cls).versions:
        raise MalformedMessage(
            number, version, "", f"{cls.__name__} has versions {declaration_of(cls).versions}"
        )
    return compiled(cls, version)

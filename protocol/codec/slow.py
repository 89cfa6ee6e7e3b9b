"""What generated code calls: the names that it may use, and rare cases that are worth a function
call, such as long varints and unknown tags.
"""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from struct import error as struct_error
from typing import Any

from protocol.codec.declaration import Message
from protocol.codec.shared_defaults import shared_default
from protocol.codec.source import struct_method, struct_table
from protocol.codec.sweeps import Shapes
from protocol.limits import LAST_INT32, LAST_UINT32, STRING_SIZE_MAX
from protocol.utf8 import decode_leniently, decode_string

# --------------------------------------------------------------------------------------------------
# Rare cases of fused codecs that are worth a function call: long varints, unknown tags
#
# Every failure here is a ValueError with the reason; the fused codec turns it into a
# MalformedMessage with a path.

BYTE = [bytes((number,)) for number in range(128)]
"""Precomputed one-byte varints."""
_TWO_BYTES, _THREE_BYTES = Struct(">H").pack, Struct(">HB").pack


def longer_varint(first_byte: int, buffer: bytes, position: int) -> tuple[int, int]:
    """Decode the rest of a compact length whose first byte was above 127; return it and its end
    position.

    Kafka uses the lowest 32 bits as a signed number; a negative one is null.
    """
    value, position = _longer(first_byte, buffer, position)
    return (0 if value > LAST_INT32 + 1 else value), position


def longer_string(first_byte: int, buffer: bytes, position: int) -> tuple[int, int]:
    """Decode the rest of the length of a compact string whose first byte was above 127."""
    length, position = longer_varint(first_byte, buffer, position)
    if length - 1 > STRING_SIZE_MAX:
        raise ValueError("a string is too long")
    return length, position


def varint(number: int) -> bytes:
    """Write an unsigned varint."""
    if number < 128:
        return BYTE[number]
    if number < 1 << 14:
        return _TWO_BYTES((number & 0x7F | 0x80) << 8 | number >> 7)
    if number < 1 << 21:
        return _THREE_BYTES((number & 0x7F | 0x80) << 8 | number >> 7 & 0x7F | 0x80, number >> 14)
    if number > LAST_UINT32:
        raise ValueError("a varint is above 2^32 - 1")
    written = bytearray()
    while number > 127:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def string_varint(length: int) -> bytes:
    """Write the length (plus one) of a compact string."""
    if length - 1 > STRING_SIZE_MAX:
        raise ValueError("a string is too long")
    return varint(length)


def longer_count(first_byte: int, buffer: bytes, position: int) -> tuple[int, int]:
    """Decode the rest of a number of tagged fields; a negative one is none."""
    count, position = _longer(first_byte, buffer, position)
    return (0 if count > LAST_INT32 else count), position


def as_bytes(buffer: bytes | bytearray | memoryview) -> bytes:
    """Copy a buffer whose slices are not bytes."""
    return bytes(buffer) if isinstance(buffer, bytearray | memoryview) else buffer


def tag_spans(count: int, buffer: bytes, position: int) -> tuple[dict[int, tuple[int, int]], int]:
    """Find the start and end of each tagged field after the byte `count`; return them and the end
    position.

    As in Kafka tags may be in any order, and of a repeated one the last is used.
    """
    if count > 127:
        count, position = longer_count(count, buffer, position)
    spans: dict[int, tuple[int, int]] = {}
    for _ in range(count):
        tag, size, position = longer_tag(buffer, position)
        spans[tag] = (position, position + size)
        position += size
    if position > len(buffer):
        raise ValueError("the tagged fields end behind the message")
    return spans, position


def keep_tags(count: int, buffer: bytes, position: int, structure: Message) -> int:
    """Store all tagged fields of a structure without known ones; return the end position."""
    spans, position = tag_spans(count, buffer, position)
    structure._tags = {tag: bytes(buffer[start:end]) for tag, (start, end) in spans.items()} or None
    return position


def keep_tag(tag: int, content: bytes, structure: Message) -> None:
    """Store one unknown tagged field of a structure with known ones."""
    if structure._tags is None:
        structure._tags = {}
    structure._tags[tag] = bytes(content)


def longer_tag(buffer: bytes, position: int) -> tuple[int, int, int]:
    """Decode a tag and a size of any number of bytes; return both and the end position."""
    tag = buffer[position]
    position += 1
    if tag > 127:
        tag, position = _longer(tag, buffer, position)
    size = buffer[position]
    position += 1
    if size > 127:
        size, position = _longer(size, buffer, position)
    return tag, size, position


def write_tags(tags: Mapping[int, bytes], append: Callable[[bytes], None]) -> None:
    """Write tagged fields in ascending order."""
    append(varint(len(tags)))
    for tag, content in sorted(tags.items()):
        append(varint(tag))
        append(varint(len(content)))
        append(content)


def write_mixed_tags(
    unknown: Mapping[int, bytes],
    known: Sequence[int],
    written: Sequence[bytes],
    append: Callable[[bytes], None],
) -> None:
    """Encode the tagged fields of a structure with both kinds; `written` is a gap, then tag, size
    and content of each known one that is set.
    """
    for tag in known:
        if tag in unknown:
            raise ValueError(f"tag {tag} is known, but kept among the unknown ones")
    write_tags(
        {
            **unknown,
            **{tag[0]: content for tag, content in zip(written[1::3], written[3::3], strict=True)},
        },
        append,
    )


def _longer(first_byte: int, buffer: bytes, position: int) -> tuple[int, int]:
    """Decode the rest of an unsigned number of 32 bits."""
    byte = buffer[position]
    value = first_byte & 0x7F | (byte & 0x7F) << 7
    if byte < 0x80:
        return value, position + 1
    byte = buffer[position + 1]
    value |= (byte & 0x7F) << 14
    if byte < 0x80:
        return value, position + 2
    return _last_bytes(value, buffer, position + 2)


def _last_bytes(value: int, buffer: bytes, position: int) -> tuple[int, int]:
    """Add the fourth and the fifth byte of a varint; bits above the 32nd are dropped, as in
    Kafka.
    """
    byte = buffer[position]
    value |= (byte & 0x7F) << 21
    if byte < 0x80:
        return value, position + 1
    byte = buffer[position + 1]
    if byte > 0x7F:
        raise ValueError("a varint has more than five bytes")
    return (value | byte << 28) & 0xFFFFFFFF, position + 2


# --------------------------------------------------------------------------------------------------
# The names that generated code may use, beside those that it defines itself

RUNTIME: dict[str, Any] = {
    "BYTE": BYTE,
    "Shapes": Shapes,
    "as_bytes": as_bytes,
    "decode_leniently": decode_leniently,
    "decode_string": decode_string,
    "join": b"".join,
    "keep_tag": keep_tag,
    "keep_tags": keep_tags,
    "longer_count": longer_count,
    "longer_string": longer_string,
    "longer_tag": longer_tag,
    "longer_varint": longer_varint,
    "new": object.__new__,
    "shared_default": shared_default,
    "string_varint": string_varint,
    "struct_error": struct_error,
    "struct_method": struct_method,
    "struct_table": struct_table,
    "varint": varint,
    "write_mixed_tags": write_mixed_tags,
    "write_tags": write_tags,
}

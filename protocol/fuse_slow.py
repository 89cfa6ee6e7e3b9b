"""What fused codecs do rarely enough to call a function: long varints, unknown tags.

Every failure here is a ValueError with the reason; the fused codec turns it into a MalformedMessage with a path.
"""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct

from protocol.limits import LAST_INT32, LAST_UINT32, STRING_SIZE_MAX
from protocol.schema import Message

BYTE = [bytes((number,)) for number in range(128)]
"""One-byte varints, ready made."""
_TWO_BYTES, _THREE_BYTES = Struct(">H").pack, Struct(">HB").pack


def longer_varint(first_byte: int, buffer: bytes, position: int) -> tuple[int, int]:
    """Finish a compact length whose first byte was above 127 and has been read; return it and the position behind it.

    Kafka takes the lowest 32 bits for a signed number; a negative one is null.
    """
    value, position = _longer(first_byte, buffer, position)
    return (0 if value > LAST_INT32 + 1 else value), position


def longer_string(first_byte: int, buffer: bytes, position: int) -> tuple[int, int]:
    """Finish the length of a compact string whose first byte was above 127."""
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
    """Finish a number of tagged fields; a negative one is none."""
    count, position = _longer(first_byte, buffer, position)
    return (0 if count > LAST_INT32 else count), position


def as_bytes(buffer: bytes | bytearray | memoryview) -> bytes:
    """Copy what would not give bytes when sliced."""
    return bytes(buffer) if isinstance(buffer, bytearray | memoryview) else buffer


def tag_spans(count: int, buffer: bytes, position: int) -> tuple[dict[int, tuple[int, int]], int]:
    """Find where each tagged field begins and ends, the byte `count` having been read; return that and the position behind the last.

    As in Kafka tags may come in any order, and of one that is repeated the last counts.
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
    """Keep all tagged fields of a structure that knows none; return the position behind them."""
    spans, position = tag_spans(count, buffer, position)
    structure._tags = {tag: bytes(buffer[start:end]) for tag, (start, end) in spans.items()} or None
    return position


def keep_tag(tag: int, content: bytes, structure: Message) -> None:
    """Keep one tagged field that a structure does not know beside others that it knows."""
    if structure._tags is None:
        structure._tags = {}
    structure._tags[tag] = bytes(content)


def longer_tag(buffer: bytes, position: int) -> tuple[int, int, int]:
    """Read a tag and a size of any number of bytes; return both and the position behind them."""
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


def write_mixed_tags(unknown: Mapping[int, bytes], known: Sequence[int], written: Sequence[bytes], append: Callable[[bytes], None]) -> None:
    """Write the tagged fields of a structure that has both kinds; `written` is a gap, then tag, size and content of each that is known and set."""
    for tag in known:
        if tag in unknown:
            raise ValueError(f"tag {tag} is known, but kept among the unknown ones")
    write_tags({**unknown, **{tag[0]: content for tag, content in zip(written[1::3], written[3::3], strict=True)}}, append)


def _longer(first_byte: int, buffer: bytes, position: int) -> tuple[int, int]:
    """Finish an unsigned number of 32 bits."""
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
    """Add the fourth and the fifth byte of a varint, of which bits above the 32nd are lost, as in Kafka."""
    byte = buffer[position]
    value |= (byte & 0x7F) << 21
    if byte < 0x80:
        return value, position + 1
    byte = buffer[position + 1]
    if byte > 0x7F:
        raise ValueError("a varint has more than five bytes")
    return (value | byte << 28) & 0xFFFFFFFF, position + 2

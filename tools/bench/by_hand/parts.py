"""Strings and the ends of structures, for the handwritten codecs."""

from collections.abc import Callable
from typing import Final

from protocol.codec.slow import BYTE, keep_tags, longer_string, string_varint, write_tags
from protocol.schema import Message

ZERO_UUID = bytes(16)
new: Final[Callable[[type], Message]] = object.__new__


def text_at(buffer: bytes, position: int) -> tuple[str, int]:
    """Read a compact string."""
    size = buffer[position]
    position += 1
    if size > 127:
        size, position = longer_string(size, buffer, position)
    if not size:
        raise ValueError("a null string")
    end = position + size - 1
    return buffer[position:end].decode(), end


def nullable_text_at(buffer: bytes, position: int) -> tuple[str | None, int]:
    """Read a compact nullable string."""
    return text_at(buffer, position) if buffer[position] else (None, position + 1)


def end_of(it: Message, buffer: bytes, position: int) -> int:
    """Read the end of a structure without tagged fields of its own."""
    tags = buffer[position]
    if tags:
        return keep_tags(tags, buffer, position + 1, it)
    it._tags = None
    return position + 1


def sized(text: str) -> bytes:
    """Write a compact string."""
    content = text.encode()
    size = len(content) + 1
    return (BYTE[size] if size < 128 else string_varint(size)) + content


def tags_of(it: Message) -> bytes:
    """Write unknown tags."""
    chunks: list[bytes] = []
    write_tags(it._tags, chunks.append)
    return b"".join(chunks)

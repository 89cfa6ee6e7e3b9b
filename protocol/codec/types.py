"""Kafka's wire types as Construct classes: strict about ranges, exact about where they fail.

construct's own types are not usable: its varints are unbounded, its compiled Bytes returns short
data silently, and compact strings, nullable structures and tagged fields are unsupported.
Interpreted, these types read and write by themselves; the compiler reads their attributes (`code`,
`length`, `element`) and generates code that must agree with them.
Source: org.apache.kafka.common.protocol.codec.types.Type; KIP-482.
"""

import io
import struct
from collections.abc import Mapping, Sequence
from typing import IO, Any, TypeAlias

import construct

from protocol.codec.declaration import Primitive
from protocol.limits import LAST_INT32, LAST_UINT32, STRING_SIZE_MAX
from protocol.utf8 import decode_leniently, decode_string

Context: TypeAlias = Any
"""construct's context: the values parsed so far, and the keywords of `parse` and `build`."""


class WireError(construct.ConstructError):  # type: ignore[misc]  # construct has no types
    """A value that does not fit its type; `path` is construct's, `position` the byte in the stream
    (None when building).
    """

    def __init__(self, path: str, reason: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.wire_path = path
        self.reason = reason
        self.position = position


class WireType(construct.Construct):  # type: ignore[misc]  # construct has no types
    """A wire type; the classes below define the encoding."""

    def _sizeof(self, context: object, path: str) -> int:
        raise construct.SizeofError(path=path)


class FixedType(WireType):
    """A type of fixed size: `code` is that of the struct module."""

    def __init__(self, primitive: Primitive, code: str) -> None:
        super().__init__()
        self.primitive = primitive
        self.code = code
        self.struct = struct.Struct(">" + code)

    @property
    def size_bytes(self) -> int:
        return self.struct.size

    def _sizeof(self, context: object, path: str) -> int:
        return self.struct.size


class Number(FixedType):
    """A big-endian number; integers are checked against the range of the type."""

    def _parse(self, stream: IO[bytes], context: object, path: str) -> int | float:
        number: int | float = self.struct.unpack(read_exactly(stream, self.struct.size, path))[0]
        return number

    def _build(self, obj: object, stream: IO[bytes], context: object, path: str) -> object:
        try:
            stream.write(self.struct.pack(obj))
        except struct.error as error:
            raise WireError(path, f"{obj!r} does not fit: {error}") from error
        return obj


class Boolean(FixedType):
    """One byte; zero is False, any other True; written as 0 or 1."""

    def _parse(self, stream: IO[bytes], context: object, path: str) -> bool:
        return read_exactly(stream, 1, path) != b"\x00"

    def _build(self, obj: object, stream: IO[bytes], context: object, path: str) -> object:
        stream.write(b"\x01" if obj else b"\x00")
        return obj


class Uuid(FixedType):
    """Sixteen raw bytes."""

    def _parse(self, stream: IO[bytes], context: object, path: str) -> bytes:
        return read_exactly(stream, 16, path)

    def _build(self, obj: object, stream: IO[bytes], context: object, path: str) -> object:
        if not isinstance(obj, bytes) or len(obj) != 16:
            raise WireError(path, f"{obj!r} is not 16 bytes")
        stream.write(obj)
        return obj


class UnsignedVarint(WireType):
    """LEB128 of at most five bytes; bits above the 32nd are dropped, as in Kafka."""

    def _parse(self, stream: IO[bytes], context: object, path: str) -> int:
        value = 0
        start = stream.tell()
        for shift in (0, 7, 14, 21, 28):
            byte = read_exactly(stream, 1, path)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & LAST_UINT32
        raise WireError(path, "the varint has more than five bytes", start)

    def _build(self, obj: int, stream: IO[bytes], context: object, path: str) -> object:
        rest = obj
        while rest > 0x7F:
            stream.write(bytes((rest & 0x7F | 0x80,)))
            rest >>= 7
        stream.write(bytes((rest,)))
        return obj


UNSIGNED_VARINT = UnsignedVarint()
INT8, INT16, INT32 = (
    Number(Primitive.INT8, "b"),
    Number(Primitive.INT16, "h"),
    Number(Primitive.INT32, "i"),
)
FIXED: Mapping[Primitive, FixedType] = {
    fixed.primitive: fixed
    for fixed in (
        Boolean(Primitive.BOOLEAN, "?"),
        INT8,
        INT16,
        Number(Primitive.UINT16, "H"),
        INT32,
        Number(Primitive.UINT32, "I"),
        Number(Primitive.INT64, "q"),
        Number(Primitive.FLOAT64, "d"),
        Uuid(Primitive.UUID, "16s"),
    )
}
"""The types of fixed size."""


class Length(WireType):
    """The length of a string, bytes or an array, None for null: a signed number, or in compact form
    a varint of one more (0 is null).

    Kafka stores the varint in a signed int, too: a negative one is null, the lowest negative one a
    number too high for anything.
    """

    def __init__(self, number: WireType, *, compact: bool, nullable: bool) -> None:
        super().__init__()
        self.number = number
        self.compact = compact
        self.nullable = nullable

    def _parse(self, stream: IO[bytes], context: object, path: str) -> int | None:
        start = stream.tell()
        length = int(self.number._parse(stream, context, path))
        if self.compact:
            length = -1 if length > LAST_INT32 + 1 else length - 1
        if length >= 0:
            return length
        if not self.nullable:
            raise WireError(path, "null, but not nullable", start)
        return None

    def _build(self, obj: int | None, stream: IO[bytes], context: object, path: str) -> object:
        if obj is None and not self.nullable:
            raise WireError(path, "None, but not nullable")
        self.number._build((-1 if obj is None else obj) + self.compact, stream, context, path)
        return obj


def plain_length(number: WireType, *, nullable: bool) -> Length:
    """Return the length type of non-flexible versions: int16 for strings, else int32."""
    return Length(number, compact=False, nullable=nullable)


def compact_length(*, nullable: bool) -> Length:
    """Return the length type of flexible versions."""
    return Length(UNSIGNED_VARINT, compact=True, nullable=nullable)


class Text(WireType):
    """A string: length in bytes, then UTF-8, with invalid bytes replaced."""

    def __init__(self, primitive: Primitive, length: Length, size_max: int) -> None:
        super().__init__()
        self.primitive = primitive
        self.length = length
        self._size_max = size_max

    def _parse(self, stream: IO[bytes], context: object, path: str) -> str | None:
        start = stream.tell()
        size = self.length._parse(stream, context, path)
        if size is None:
            return None
        if size > self._size_max:
            raise WireError(
                path, f"a string of {size} bytes is longer than {self._size_max}", start
            )
        content = read_exactly(stream, size, path)
        try:
            return (
                decode_string(content)
                if self._size_max == STRING_SIZE_MAX
                else decode_leniently(content)
            )
        except ValueError as error:
            raise WireError(path, str(error), start) from error

    def _build(self, obj: object, stream: IO[bytes], context: object, path: str) -> object:
        if obj is None:
            self.length._build(None, stream, context, path)
            return obj
        if not isinstance(obj, str):
            raise WireError(path, f"{obj!r} is not a string")
        try:
            encoded = obj.encode()
        except UnicodeEncodeError as error:
            raise WireError(path, f"{obj!r} has no UTF-8: {error.reason}") from error
        if len(encoded) > self._size_max:
            raise WireError(
                path, f"a string of {len(encoded)} bytes is longer than {self._size_max}"
            )
        self.length._build(len(encoded), stream, context, path)
        stream.write(encoded)
        return obj


class Blob(WireType):
    """Bytes, or records, of which the content is a view: length, then the bytes themselves."""

    def __init__(self, primitive: Primitive, length: Length) -> None:
        super().__init__()
        self.primitive = primitive
        self.length = length

    def _parse(self, stream: IO[bytes], context: object, path: str) -> bytes | memoryview | None:
        size = self.length._parse(stream, context, path)
        if size is None:
            return None
        content = read_exactly(stream, size, path)
        return memoryview(content) if self.primitive is Primitive.RECORDS else content

    def _build(self, obj: object, stream: IO[bytes], context: object, path: str) -> object:
        if obj is not None and not isinstance(obj, bytes | bytearray | memoryview):
            raise WireError(path, f"{obj!r} is not bytes")
        self.length._build(None if obj is None else len(obj), stream, context, path)
        if obj is not None:
            stream.write(obj)
        return obj


class Elements(WireType):
    """An array: count, then the elements.

    Each element takes at least one byte, so a wrong count ends with the input.
    """

    def __init__(self, length: Length, element: construct.Construct) -> None:
        super().__init__()
        self.length = length
        self.element = element

    def _parse(self, stream: IO[bytes], context: object, path: str) -> list[object] | None:
        count = self.length._parse(stream, context, path)
        if count is None:
            return None
        return [
            self.element._parsereport(stream, context, f"{path}[{index}]") for index in range(count)
        ]

    def _build(self, obj: object, stream: IO[bytes], context: object, path: str) -> object:
        if obj is not None and not isinstance(obj, Sequence):
            raise WireError(path, f"{obj!r} is not a list")
        self.length._build(None if obj is None else len(obj), stream, context, path)
        for index, element in enumerate(obj or ()):
            self.element._build(element, stream, context, f"{path}[{index}]")
        return obj


class NullableStructure(WireType):
    """A structure after one byte: negative for null, else it follows.

    In a tagged field the byte is 0 for null, positive otherwise.

    (There it is an unsigned varint, of which no implementation writes more than 0 and 1; longer
    ones are rejected.)
    """

    def __init__(self, structure: construct.Construct, *, tagged: bool) -> None:
        super().__init__()
        self.structure = structure
        self.tagged = tagged

    def _parse(self, stream: IO[bytes], context: object, path: str) -> object:
        start = stream.tell()
        marker = INT8._parse(stream, context, path)
        if self.tagged and marker < 0:
            raise WireError(path, "a structure is marked with more than one byte", start)
        if marker < self.tagged:
            return None
        return self.structure._parsereport(stream, context, path)

    def _build(self, obj: object, stream: IO[bytes], context: object, path: str) -> object:
        null = b"\x00" if self.tagged else b"\xff"
        stream.write(null if obj is None else b"\x01")
        if obj is not None:
            self.structure._build(obj, stream, context, path)
        return obj


class TaggedFields(WireType):
    """The end of each structure of a flexible version: count, then (tag, size, content) by
    ascending tag; a dict from tag to value.

    Unknown tags have their raw bytes as value. Tags are encoded in ascending order, but as in Kafka
    they are decoded in any order, the last of a repeated one is used, and the size of a known one
    is ignored.
    """

    def __init__(self, known: Mapping[int, construct.Renamed]) -> None:
        super().__init__()
        self.known = known

    def _parse(self, stream: IO[bytes], context: object, path: str) -> dict[int, object]:
        values: dict[int, object] = {}
        count = UNSIGNED_VARINT._parse(stream, context, path)
        for _ in range(count if count <= LAST_INT32 else 0):
            tag = UNSIGNED_VARINT._parse(stream, context, path)
            size = UNSIGNED_VARINT._parse(stream, context, path)
            if tag not in self.known:
                values[tag] = read_exactly(stream, size, path)
                continue
            values[tag] = self.known[tag]._parsereport(stream, context, path)
        return values

    def _build(
        self, obj: Mapping[int, object], stream: IO[bytes], context: object, path: str
    ) -> object:
        UNSIGNED_VARINT._build(len(obj), stream, context, path)
        for tag, value in sorted(obj.items()):
            content = value
            if tag in self.known:
                inside = io.BytesIO()
                self.known[tag]._build(value, inside, context, path)
                content = inside.getvalue()
            assert isinstance(content, bytes), f"tag {tag} of {path} is kept as bytes"
            UNSIGNED_VARINT._build(tag, stream, context, path)
            UNSIGNED_VARINT._build(len(content), stream, context, path)
            stream.write(content)
        return obj


def read_exactly(stream: IO[bytes], size: int, path: str) -> bytes:
    """Read `size` bytes or fail."""
    start = stream.tell()
    content = stream.read(size)
    if len(content) != size:
        raise WireError(path, f"{size} bytes are needed, {len(content)} are left", start)
    return content

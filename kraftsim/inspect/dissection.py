"""Decodes a message by the layout of its version, field by field, and keeps the position of each
field.

The codecs of `protocol` decode messages; this also records positions. It must decode exactly what
they decode (a test compares them), and in addition it returns the parts that were decoded before an
error. What Kafka accepts although it is malformed (tags in any order, wrong sizes of tags, invalid
UTF-8) is accepted here, too, and recorded in `oddities`.
Source: org.apache.kafka.common.protocol.codec.types.Type, ByteBufferAccessor; KIP-482.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from kraftsim.inspect.parts import DecodeTrouble, Part, Scalar, joined
from protocol.codec.declaration import Primitive
from protocol.codec.tree import ArrayLayout, PresentField, StructureLayout
from protocol.limits import LAST_INT32, STRING_SIZE_MAX

NUMBERS: Final = {
    Primitive.INT8: Struct(">b"),
    Primitive.INT16: Struct(">h"),
    Primitive.UINT16: Struct(">H"),
    Primitive.INT32: Struct(">i"),
    Primitive.UINT32: Struct(">I"),
    Primitive.INT64: Struct(">q"),
    Primitive.FLOAT64: Struct(">d"),
}
INT16, INT32 = NUMBERS[Primitive.INT16], NUMBERS[Primitive.INT32]
TAGS: Final = "(tags)"
"""Positions of unknown tagged fields."""


class Unreadable(Exception):
    """The bytes cannot be decoded further; the path is that of the dissector when it was raised."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason


class Dissector:
    """Decodes one buffer. After `Unreadable`, `trouble()` names the field."""

    def __init__(self, buffer: bytes, end: int | None = None) -> None:
        self.buffer = buffer
        self.end = len(buffer) if end is None else end
        self._path: list[str] = []
        self.oddities: list[DecodeTrouble] = []

    def trouble(self, failure: Unreadable) -> DecodeTrouble:
        """Return the failure with the path of the field in which it happened, and clear that
        path.
        """
        place = self._place()
        self._path.clear()
        return DecodeTrouble(path=place, position=failure.position, reason=failure.reason)

    def _place(self) -> str:
        path = ""
        for name in self._path:
            path = joined(path, name)
        return path

    def _odd(self, position: int, reason: str) -> None:
        self.oddities.append(
            DecodeTrouble(path=self._place(), position=position, reason=f"{reason}; Kafka reads on")
        )

    def message(self, layout: StructureLayout, position: int, parts: list[Part]) -> int:
        """Append the fields of a message or structure to `parts` as they are decoded; return the
        end position.

        Raises Unreadable.
        """
        for field in layout.fields:
            position = self._named(field, position, parts)
        return self._tags(layout, position, parts) if layout.flexible else position

    def _named(self, field: PresentField, position: int, parts: list[Part]) -> int:
        part = Part(field.name, field.declared.kafka_type, position)
        parts.append(part)
        self._path.append(field.name)
        part.end = self._field(field, position, part)
        self._path.pop()
        return part.end

    def _field(self, field: PresentField, position: int, part: Part) -> int:
        match field.type:
            case Primitive() as primitive:
                part.value, position = self._primitive(
                    primitive, position, flexible=field.flexible, nullable=field.nullable
                )
                return position
            case StructureLayout() as layout:
                if field.nullable:
                    is_null, position = self._is_null(position, tagged=field.tagged)
                    if is_null:
                        return position
                part.parts = []
                return self.message(layout, position, part.parts)
            case ArrayLayout(element):
                count, position = self._length(
                    position, INT32, flexible=field.flexible, nullable=field.nullable
                )
                if count is None:
                    return position
                return self._elements(element, count, position, part, flexible=field.flexible)
        raise AssertionError(f"{field.name} has no wire type")

    def _is_null(self, position: int, *, tagged: bool) -> tuple[bool, int]:
        """Read the marker before a nullable structure: a byte, in a tagged field an unsigned
        varint.
        """
        if tagged:
            mark, position = self.unsigned_varint(position)
            return mark == 0, position
        (mark,), end = NUMBERS[Primitive.INT8].unpack(self._bytes(position, 1)[0]), position + 1
        return mark < 0, end

    def _elements(
        self,
        element: Primitive | StructureLayout,
        count: int,
        position: int,
        part: Part,
        *,
        flexible: bool,
    ) -> int:
        if isinstance(element, Primitive):
            values: list[Scalar] = []
            part.value = values
            for index in range(count):
                self._path.append(f"[{index}]")
                value, position = self._primitive(element, position, flexible=flexible)
                values.append(value)
                self._path.pop()
            return position
        part.parts = parts = []
        for index in range(count):
            name = f"[{index}]"
            each = Part(name, element.cls.__name__, position, parts=[])
            parts.append(each)
            self._path.append(name)
            assert each.parts is not None
            each.end = position = self.message(element, position, each.parts)
            self._path.pop()
        return position

    def _tags(self, layout: StructureLayout, position: int, parts: list[Part]) -> int:
        known = {field.tag: field for field in layout.tags}
        unknown: list[Part] = []
        count, position = self.unsigned_varint(position)
        last_tag = -1
        for _ in range(count):
            start = position
            tag, position = self.unsigned_varint(position)
            if tag <= last_tag:
                self._odd(start, f"tag {tag} stands after tag {last_tag}")
            last_tag = tag
            size, position = self.unsigned_varint(position)
            if tag not in known:
                content, end = self._bytes(position, size)
                unknown.append(Part(str(tag), "unknown tagged field", position, end, content))
                position = end
                continue
            end = self._named(known[tag], position, parts)
            if end != position + size:
                self._odd(
                    start,
                    f"{known[tag].name} (tag {tag}) ends at byte {end}, its size said "
                    f"{position + size}",
                )
            parts[-1].emit = f"tag {tag}"
            position = end
        if unknown:
            parts.append(
                Part(
                    TAGS, "unknown tagged fields", unknown[0].start, unknown[-1].end, parts=unknown
                )
            )
        return position

    def _primitive(
        self, primitive: Primitive, position: int, *, flexible: bool = False, nullable: bool = False
    ) -> tuple[Scalar, int]:
        number = NUMBERS.get(primitive)
        if number is not None:
            end = position + number.size
            if end > self.end:
                raise self._short(position, number.size)
            return number.unpack_from(self.buffer, position)[0], end
        return self._SIZED[primitive](self, position, flexible, nullable)

    def _boolean(self, position: int, flexible: bool, nullable: bool) -> tuple[bool, int]:
        content, end = self._bytes(position, 1)
        return content != b"\x00", end

    def _uuid(self, position: int, flexible: bool, nullable: bool) -> tuple[bytes, int]:
        return self._bytes(position, 16)

    def _string(self, position: int, flexible: bool, nullable: bool) -> tuple[str | None, int]:
        start = position
        size, position = self._length(position, INT16, flexible=flexible, nullable=nullable)
        if size is None:
            return None, position
        if size > STRING_SIZE_MAX:
            raise Unreadable(start, f"a string of {size} bytes is longer than {STRING_SIZE_MAX}")
        return self._text(position, size)

    def _ustring(self, position: int, flexible: bool, nullable: bool) -> tuple[str | None, int]:
        size, position = self._length(position, INT32, flexible=flexible, nullable=nullable)
        return (None, position) if size is None else self._text(position, size)

    def _text(self, position: int, size: int) -> tuple[str, int]:
        content, end = self._bytes(position, size)
        text = content.decode(errors="replace")
        if "\ufffd" in text and text.encode() != content:
            self._odd(position, "not UTF-8")
        return text, end

    def _blob(self, position: int, flexible: bool, nullable: bool) -> tuple[bytes | None, int]:
        size, position = self._length(position, INT32, flexible=flexible, nullable=nullable)
        return (None, position) if size is None else self._bytes(position, size)

    def _length(
        self, position: int, number: Struct, *, flexible: bool, nullable: bool
    ) -> tuple[int | None, int]:
        start = position
        if flexible:
            length, position = self.unsigned_varint(position)
            length -= 1
        else:
            if position + number.size > self.end:
                raise self._short(position, number.size)
            length = number.unpack_from(self.buffer, position)[0]
            position += number.size
        if length >= 0:
            return length, position
        if not nullable:
            raise Unreadable(start, "null, but not nullable")
        return None, position

    def unsigned_varint(self, position: int) -> tuple[int, int]:
        """Read an unsigned varint of at most 31 bits; return it and its end position.

        Raises Unreadable.
        """
        value = 0
        start = position
        for shift in (0, 7, 14, 21, 28):
            if position >= self.end:
                raise self._short(position, 1)
            byte = self.buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > LAST_INT32:
                    raise Unreadable(start, f"the varint {value} is above 2^31 - 1")
                return value, position
        raise Unreadable(start, "the varint has more than five bytes")

    def _bytes(self, position: int, size: int) -> tuple[bytes, int]:
        end = position + size
        if end > self.end:
            raise self._short(position, size)
        return self.buffer[position:end], end

    def _short(self, position: int, size: int) -> Unreadable:
        return Unreadable(
            position, f"{size} bytes are needed, {max(0, self.end - position)} are left"
        )

    _SIZED: Final[dict[Primitive, "Callable[[Dissector, int, bool, bool], tuple[Scalar, int]]"]] = {
        Primitive.BOOLEAN: _boolean,
        Primitive.UUID: _uuid,
        Primitive.STRING: _string,
        Primitive.USTRING: _ustring,
        Primitive.BYTES: _blob,
        Primitive.RECORDS: _blob,
    }

"""Structures of fixed size as tuples of numbers: batch headers, index entries, sizes and checksums.

The interface is that of `struct.Struct`.

    HEADER = fixed(BatchHeader)
    base_offset, batch_length, *rest = HEADER.unpack_from(buffer, position)

The compiler derives the struct codes from the construct tree of the declared structure, nested
structures included, and the numbers are then an ordinary Struct, as fast as one. With `--codec
construct` the tree itself is interpreted.
"""

from collections.abc import Iterator, Mapping
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any

from protocol.codec.choice import FOLLOWERS, is_interpreted

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from protocol.codec.tree import StructureLayout

Numbers = tuple[Any, ...]


class FixedLayout(Struct):
    """The numbers of a structure."""

    __slots__ = ("declared",)

    declared: type


class InterpretedFixed(FixedLayout):
    """The same numbers, read and written by construct."""

    __slots__ = ()

    def pack(self, *numbers: object) -> bytes:
        """Build the structure. Raises struct.error."""
        from protocol.codec.types import WireError

        rest = list(numbers)
        values = _fill(self._layout(), rest)
        if rest:
            raise struct_error(f"{len(rest)} numbers too many")
        try:
            return bytes(self._layout().subcon.build(values))
        except WireError as error:
            raise struct_error(error.reason) from error

    def unpack(self, buffer: "ReadableBuffer") -> Numbers:
        """Parse a buffer of exactly this size. Raises struct.error."""
        size = memoryview(buffer).nbytes
        if size != self.size:
            raise struct_error(f"{self.size} bytes are needed, not {size}")
        return self.unpack_from(buffer, 0)

    def unpack_from(self, buffer: "ReadableBuffer", offset: int = 0) -> Numbers:
        """Parse the structure at an offset. Raises struct.error."""
        content = bytes(memoryview(buffer)[offset : offset + self.size])
        if len(content) < self.size:
            raise struct_error(f"{self.size} bytes are needed, {len(content)} are left")
        return tuple(_flatten(self._layout(), self._layout().subcon.parse(content)))

    def iter_unpack(self, buffer: "ReadableBuffer") -> Iterator[Numbers]:
        """Parse structures one after the other. Raises struct.error."""
        size = memoryview(buffer).nbytes
        if size % self.size:
            raise struct_error(f"{size} bytes are no multiple of {self.size}")
        for offset in range(0, size, self.size):
            yield self.unpack_from(buffer, offset)

    def _layout(self) -> "StructureLayout":
        from protocol.codec.tree import plain_layout_of

        return plain_layout_of(self.declared)


def fixed(cls: type) -> FixedLayout:
    """Return the numbers of a structure whose fields are all of fixed size."""
    # attr-defined: set when the class is generated
    codes: str | None = cls.__codes__  # type: ignore[attr-defined]
    assert codes is not None, (
        f"{cls.__name__} has fields of variable size, or some that exist in some versions only"
    )
    layout = FixedLayout(f">{codes}")
    layout.declared = cls
    _MADE.append(layout)
    _follow_choice()
    return layout


def _follow_choice() -> None:
    """Give all layouts the methods of the chosen form: the objects stay, because modules import
    them by name.
    """
    for layout in _MADE:
        layout.__class__ = InterpretedFixed if is_interpreted() else FixedLayout


_MADE: list[FixedLayout] = []
FOLLOWERS.append(_follow_choice)


def _fill(layout: "StructureLayout", numbers: list[object]) -> dict[str, object]:
    """Take the values of a structure from the front of a list."""
    from protocol.codec.tree import StructureLayout

    values: dict[str, object] = {}
    for field in layout.fields:
        if isinstance(field.subcon, StructureLayout):
            values[field.name] = field.subcon.cls(**_fill(field.subcon, numbers))
        elif numbers:
            values[field.name] = numbers.pop(0)
        else:
            raise struct_error(f"{field.name} is missing")
    return values


def _flatten(layout: "StructureLayout", values: object) -> Iterator[object]:
    from protocol.codec.tree import StructureLayout

    for field in layout.fields:
        value = values[field.name] if isinstance(values, Mapping) else getattr(values, field.name)
        if isinstance(field.subcon, StructureLayout):
            yield from _flatten(field.subcon, value)
        else:
            yield value

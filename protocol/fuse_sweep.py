"""Uniform elements, decoded in one sweep: the same number of bytes each, the same lengths at the
same places.

The partitions of a topic mostly have the same number of replicas, no error message and no tagged
fields. Such elements differ in their numbers only, and a single `iter_unpack` decodes them all;
each length is checked when it is decoded, and the first one that differs ends the sweep. The common
lengths are learned while decoding: code for a shape is generated once it is frequent, with a
growing threshold, so that no peer can make us generate code endlessly.
"""

from collections.abc import Callable, Iterator
from struct import calcsize

from protocol.declaration import TEXT_TYPES, Primitive
from protocol.fuse_source import CODES, Source
from protocol.resolve import ArrayLayout, PresentField, StructureLayout
from protocol.schema import Message

Shape = tuple[int, ...]
"""All lengths and counts within an element as on the wire, in order."""
Reader = Callable[[bytes, int, int, list[Message]], int]
"""`read(buffer, position, count, elements)` appends as many elements as possible, at most `count`;
returns the end position.
"""

VALUES_MAX = 64
"""Elements of more numbers than this get no generated code."""
FIRST_THRESHOLD = 32
"""How often a shape must have occurred; twice as often for the next one, and so on."""
READERS_MAX = 8
SEEN_MAX = 64
"""How many shapes are counted at a time."""


class Sweep:
    """The loop over elements of one shape; `size` is None for elements that cannot be decoded this
    way.
    """

    def __init__(self, source: Source, layout: StructureLayout, shape: Shape) -> None:
        self._source = source
        self._lengths: Iterator[int] = iter(shape)
        self._codes = ""
        self._names: list[str] = []
        self._checks: list[str] = []
        self._lines: list[str] = []
        self._is_possible = True
        self._element = source.fresh("element")
        self._structure(layout, self._element)

    @property
    def size(self) -> int | None:
        """The size of an element in bytes."""
        return (
            calcsize(">" + self._codes)
            if self._is_possible and len(self._names) <= VALUES_MAX
            else None
        )

    def write(self, elements: str, end: str) -> None:
        """Generate the loop from `position` to `end`; an element of another shape breaks out of
        it.
        """
        source = self._source
        names = ", ".join(self._names) + ("," if len(self._names) == 1 else "")
        with source.block(
            f"for {names} in {source.method(self._codes, 'iter_unpack')}(buffer[position:{end}]):"
        ):
            if self._checks:
                with source.block(f"if {' or '.join(self._checks)}:"):
                    source.line("break")
            for line in self._lines:
                source.line(line)
            source.line(f"{elements}.append({self._element})")

    def _structure(self, layout: StructureLayout, target: str) -> None:
        self._lines.append(f"{target} = new({self._source.bind_class(layout.cls)})")
        for field in layout.fields:
            self._lines.append(f"{target}.{field.name} = {self._field(field)}")
        for field in layout.tags:
            self._lines.append(f"{target}.{field.name} = {self._source.default(field.declared)}")
        for absent in layout.absent:
            self._lines.append(f"{target}.{absent.name} = {self._source.default(absent)}")
        self._lines.append(f"{target}._tags = None")
        if layout.flexible:
            self._checks.append(self._value("B"))

    def _field(self, field: PresentField) -> str:
        """Return the expression for a field with its numbers in local variables."""
        match field.type:
            case Primitive() as primitive if primitive in CODES:
                return self._value(CODES[primitive][0])
            case Primitive.RECORDS:
                self._is_possible = False
                return "None"
            case Primitive() as primitive:
                size = self._length(
                    "h" if primitive is Primitive.STRING else "i", flexible=field.flexible
                )
                if size < 0:
                    return "None"
                content = self._value(f"{size}s")
                return f"{content}.decode()" if primitive in TEXT_TYPES else content
            case ArrayLayout(element):
                count = self._length("i", flexible=field.flexible)
                if count > 0 and element in CODES and isinstance(element, Primitive):
                    read = min(count, VALUES_MAX + 1)
                    values = (self._value(CODES[element][0]) for _ in range(read))
                    return f"[{', '.join(values)}]"
                self._is_possible &= count <= 0
                return "None" if count < 0 else "[]"
            case StructureLayout() as layout:
                if field.nullable:
                    self._is_possible &= self._length("b", flexible=False) < 0
                    return "None"
                nested = self._source.fresh("nested")
                self._structure(layout, nested)
                return nested
        raise AssertionError(f"{field.name} has no wire type")

    def _length(self, code: str, *, flexible: bool) -> int:
        """Generate the check of the length and return its meaning, -1 for null."""
        written = next(self._lengths)
        length = self._value("B" if flexible else code)
        self._is_possible &= written < 128
        self._checks.append(f"{length} != {written}")
        return written - flexible

    def _value(self, code: str) -> str:
        self._codes += code
        self._names.append(self._source.fresh("value"))
        return self._names[-1]


def can_be_alike(layout: StructureLayout) -> bool:
    """Return whether shapes are worth learning: there are arrays of numbers, or structures that are
    mostly absent.

    Strings alone rarely have the same length, arrays of structures that exist for their own sake
    are never empty, and records always differ.
    """
    has_arrays = False
    for field in layout.fields:
        match field.type:
            case Primitive.RECORDS:
                return False
            case ArrayLayout(element):
                if isinstance(element, StructureLayout) and not (
                    field.nullable or field.declared.ignorable
                ):
                    return False
                has_arrays = True
    return has_arrays


class Shapes:
    """The shapes of the elements of one array, learned while decoding.

    `read` is the reader of the last learned shape.
    """

    __slots__ = ("_layout", "_readers", "_seen", "_threshold", "read")

    def __init__(self, layout: StructureLayout) -> None:
        self.read: Reader = read_none
        self._layout = layout
        self._readers: dict[Shape, Reader] = {}
        self._seen: dict[Shape, int] = {}
        self._threshold = FIRST_THRESHOLD

    def learn(self, shape: Shape) -> None:
        """Count an element that was decoded separately."""
        reader = self._readers.get(shape)
        if reader is None:
            seen = self._seen.get(shape, 0) + 1
            if seen < self._threshold:
                if len(self._seen) >= SEEN_MAX:
                    self._seen.clear()
                self._seen[shape] = seen
                return
            if len(self._readers) >= READERS_MAX:
                self._readers.clear()
            self._threshold *= 2
            self._seen.clear()
            reader = self._readers[shape] = _reader(self._layout, shape)
        self.read = reader


def read_none(buffer: bytes, position: int, count: int, elements: list[Message]) -> int:
    """Decode no element: the reader of an unknown shape."""
    return position


def _reader(layout: StructureLayout, shape: Shape) -> Reader:
    source = Source({"new": object.__new__})
    sweep = Sweep(source, layout, shape)
    if sweep.size is None:
        return read_none
    with source.block("def read(buffer, position, count, elements):"):
        source.line(f"end = position + count * {sweep.size}")
        with source.block("if end > len(buffer):"):
            source.line("return position")
        sweep.write("elements", "end")
        source.line(f"return position + len(elements) * {sweep.size}")
    reader: Reader = source.compile(layout, f"read {shape}", "read")
    return reader

"""Uniform elements, decoded in one sweep: the same number of bytes each, the same lengths at the
same places.

The partitions of a topic mostly have the same number of replicas, no error message and no tagged
fields. Such elements differ in their numbers only, and a single `iter_unpack` decodes them all;
each length is checked when it is decoded, and the first one that differs ends the sweep. The common
lengths are learned while decoding: code for a shape is generated once it is frequent, with a
growing threshold, so that no peer can make us generate code endlessly. The compiler writes down how
an element is read (`ElementPlan`), a literal in the generated code, so that learning a shape needs
neither the compiler nor construct.
"""

from collections.abc import Callable, Iterator
from struct import calcsize
from typing import Any, TypeAlias

from protocol.codec.declaration import Message, Scope
from protocol.codec.source import Source

Shape = tuple[int, ...]
"""All lengths and counts within an element as on the wire, in order."""
Reader = Callable[[bytes, int, int, list[Message]], int]
"""`read(buffer, position, count, elements)` appends as many elements as possible, at most `count`;
returns the end position.
"""

ElementPlan: TypeAlias = (
    "tuple[str, tuple[tuple[str, FieldPlan], ...], tuple[tuple[str, str], ...], bool]"
)
"""The name of the class in the generated code; each field on the wire; name and default of the
others; whether a count of tags follows.
"""
FieldPlan: TypeAlias = "tuple[Any, ...]"
"""`(FIXED, code)`, `(TEXT, length code)`, `(BLOB, length code)`, `(RECORDS,)`, `(NUMBERS, length
code, code)`, `(ARRAY, length code)`, `(NULLABLE, length code)` or `(NESTED, plan)`; the code of a
compact length is COMPACT.
"""
FIXED, TEXT, BLOB, RECORDS, NUMBERS, ARRAY, NULLABLE, NESTED = (
    "fixed",
    "text",
    "blob",
    "records",
    "numbers",
    "array",
    "nullable",
    "nested",
)
COMPACT = "compact"

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

    def __init__(self, source: Source, plan: ElementPlan, shape: Shape) -> None:
        self._source = source
        self._lengths: Iterator[int] = iter(shape)
        self._codes = ""
        self._names: list[str] = []
        self._checks: list[str] = []
        self._lines: list[str] = []
        self._is_possible = True
        self._element = source.fresh("element")
        self._structure(plan, self._element)

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

    def _structure(self, plan: ElementPlan, target: str) -> None:
        class_name, fields, others, has_tags = plan
        self._lines.append(f"{target} = new({class_name})")
        for name, field in fields:
            self._lines.append(f"{target}.{name} = {self._field(field)}")
        for name, default in others:
            self._lines.append(f"{target}.{name} = {default}")
        self._lines.append(f"{target}._tags = None")
        if has_tags:
            self._checks.append(self._value("B"))

    def _field(self, field: FieldPlan) -> str:
        """Return the expression for a field with its numbers in local variables."""
        kind = field[0]
        if kind == FIXED:
            return self._value(field[1])
        if kind == NESTED:
            nested = self._source.fresh("nested")
            self._structure(field[1], nested)
            return nested
        if kind == RECORDS:
            self._is_possible = False
            return "None"
        size = self._length(field[1])
        if kind == NULLABLE:
            self._is_possible &= size < 0
            return "None"
        if size < 0:
            return "None"
        if kind in (TEXT, BLOB):
            content = self._value(f"{size}s")
            return f"{content}.decode()" if kind == TEXT else content
        if kind == NUMBERS and size > 0:
            return f"[{', '.join(self._value(field[2]) for _ in range(min(size, VALUES_MAX + 1)))}]"
        self._is_possible &= size <= 0
        return "[]"

    def _length(self, code: str) -> int:
        """Generate the check of the length and return its meaning, -1 for null."""
        written = next(self._lengths)
        length = self._value("B" if code == COMPACT else code)
        self._is_possible &= written < 128
        self._checks.append(f"{length} != {written}")
        return written - (code == COMPACT)

    def _value(self, code: str) -> str:
        self._codes += code
        self._names.append(self._source.fresh("value"))
        return self._names[-1]


class Shapes:
    """The shapes of the elements of one array, learned while decoding.

    `read` is the reader of the last learned shape.
    """

    __slots__ = ("_plan", "_readers", "_scope", "_seen", "_threshold", "read")

    def __init__(self, plan: ElementPlan, scope: Scope) -> None:
        self.read: Reader = read_none
        self._plan = plan
        self._scope = scope
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
            reader = self._readers[shape] = _reader(self._plan, self._scope, shape)
        self.read = reader


def read_none(buffer: bytes, position: int, count: int, elements: list[Message]) -> int:
    """Decode no element: the reader of an unknown shape."""
    return position


def _reader(plan: ElementPlan, scope: Scope, shape: Shape) -> Reader:
    source = Source()
    sweep = Sweep(source, plan, shape)
    if sweep.size is None:
        return read_none
    with source.block("def read(buffer, position, count, elements):"):
        source.line(f"end = position + count * {sweep.size}")
        with source.block("if end > len(buffer):"):
            source.line("return position")
        sweep.write("elements", "end")
        source.line(f"return position + len(elements) * {sweep.size}")
    own_scope = {**scope}
    exec(compile(source.text(), f"<{plan[0]} read {shape}>", "exec"), own_scope)
    reader: Reader = own_scope["read"]
    return reader

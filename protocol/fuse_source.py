"""Writing and compiling the Python source of fused codecs.

A fused codec is one function per message and version, without a call per field: that is worth a
factor of 30 over interpreted construct. The source is registered for tracebacks and debuggers.
"""

import linecache
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from struct import Struct
from typing import Any, Literal

from protocol.declaration import Field, Fresh, Primitive, StructureOf
from protocol.message_class import has_fresh_default, shared_default
from protocol.resolve import StructureLayout

CODES: Mapping[Primitive, tuple[str, int]] = {
    Primitive.BOOLEAN: ("?", 1),
    Primitive.INT8: ("b", 1),
    Primitive.INT16: ("h", 2),
    Primitive.UINT16: ("H", 2),
    Primitive.INT32: ("i", 4),
    Primitive.UINT32: ("I", 4),
    Primitive.INT64: ("q", 8),
    Primitive.FLOAT64: ("d", 8),
    Primitive.UUID: ("16s", 16),
}
"""Fixed-size types: code of the struct module, size in bytes."""

Function = Callable[..., Any]
"""A function compiled from a source, or a method of a Struct."""
Method = Literal["pack", "unpack_from", "iter_unpack"]
Shape = int | tuple[int, ...]
"""The length before the only part of variable size, or those of all such parts."""
LENGTH_MAX = 256
"""Parts of up to so many bytes or numbers are packed by a cached Struct; for longer ones creating
it is cheap compared with using it.
"""
STRUCTS_MAX = 256
"""The size of the cache of Structs; then it is cleared."""


class Source:
    """Lines of Python, and the values of their names."""

    def __init__(self, scope: Mapping[str, object]) -> None:
        self.scope: dict[str, Any] = dict(scope)
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0

    @property
    def depth(self) -> int:
        return self._depth

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write `head`; what is written inside is indented one level."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """Return a name that no other line uses."""
        self._names += 1
        return f"{stem}_{self._names}"

    def bind(self, name: str, value: object) -> str:
        """Bind a name of the source to a value."""
        assert self.scope.get(name, value) is value, f"{name} stands for two values"
        self.scope[name] = value
        return name

    def bind_class(self, cls: type) -> str:
        """Return a name for a class."""
        return self.bind(f"class_{cls.__name__}", cls)

    def method(self, code: str, method: Method) -> str:
        """Return the name of a method of the Struct with this code."""
        return self.bind(f"{method}_{code.replace('?', 'o')}", _method(code, method))

    def table(self, code: str, offsets: tuple[int, ...], method: Method) -> str:
        """Return the name of a table from lengths to the method for parts of these lengths.

        `code` has a pair of braces for each length; its offset is subtracted from each, because
        compact lengths are written one too high.
        """
        stem = code.replace("?", "o").replace("{}", "_") + "".join(map(str, offsets))
        return self.bind(f"{method}_by_length_{stem}", _table(code, offsets, method))

    def default(self, field: Field) -> str:
        """Return an expression for the default of a field."""
        match field.default:
            case Fresh.LIST:
                return "[]"
            case Fresh.STRUCTURE:
                assert isinstance(field.type, StructureOf), f"{field.name} is no structure"
                structure = field.type.structure
                if has_fresh_default(structure):
                    return self.bind_class(structure) + "()"
                return self.bind(f"default_{structure.__name__}", shared_default(structure))
            case int() as number if not isinstance(number, bool):
                return repr(int(number))
            case default:
                return repr(default)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def compile(self, layout: StructureLayout, title: str, function: str = "") -> Function:
        """Compile the lines and return one of their functions, by default the one named by the
        title.
        """
        text = self.text()
        filename = f"<{layout.cls.__name__} v{layout.version} {title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.scope)
        compiled: Function = self.scope[function or title]
        return compiled


def is_fixed(layout: StructureLayout) -> bool:
    """Return whether all objects of a layout take the same number of bytes, unless they have
    unknown tags.
    """
    return (
        bool(layout.fields)
        and not layout.tags
        and all(field.type in CODES for field in layout.fields)
    )


def fixed_codes(layout: StructureLayout) -> str:
    """Return the struct codes of the fields of a fixed layout."""
    return "".join(
        CODES[field.type][0] for field in layout.fields if isinstance(field.type, Primitive)
    )


class LengthTable(dict[Shape, Function]):
    """From the lengths of the variable parts of a code to a bound method of their Struct; a
    negative length (null) takes no bytes.
    """

    def __init__(self, code: str, offsets: tuple[int, ...], method: Method) -> None:
        super().__init__()
        self._code = code
        self._offsets = offsets
        self._method = method

    def __missing__(self, shape: Shape) -> Function:
        lengths = (shape,) if isinstance(shape, int) else shape
        sizes = [
            max(length - offset, 0) for length, offset in zip(lengths, self._offsets, strict=True)
        ]
        made: Function = getattr(Struct(">" + self._code.format(*sizes)), self._method)
        if max(lengths) <= LENGTH_MAX:
            if len(self) >= STRUCTS_MAX:
                self.clear()
            self[shape] = made
        return made


@cache
def _method(code: str, method: Method) -> Function:
    made: Function = getattr(Struct(">" + code), method)
    return made


@cache
def _table(code: str, offsets: tuple[int, ...], method: Method) -> LengthTable:
    return LengthTable(code, offsets, method)

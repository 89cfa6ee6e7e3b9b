"""Lines of generated Python, and what generated code needs at run time.

A fused codec is one function per message and version, without a call per field. Its source is
complete: it begins with the definitions of all Structs, tables and classes that it uses, so that it
can be read, and stored as compiled code.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from struct import Struct
from typing import Any, Literal

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
    """Lines of Python, and the definitions before them."""

    def __init__(self, classes: tuple[type, ...] = ()) -> None:
        self._classes = classes
        self._definitions: dict[str, str] = {}
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

    def define(self, name: str, expression: str) -> str:
        """Define a name before the first line."""
        defined = self._definitions.setdefault(name, expression)
        assert defined == expression, f"{name} stands for two values"
        return name

    def bind_class(self, cls: type) -> str:
        """Return a name for a class of the message."""
        return self.define(f"class_{cls.__name__}", f"CLASSES[{self._classes.index(cls)}]")

    def shared_default(self, cls: type) -> str:
        """Return a name for the shared default of a structure."""
        return self.define(f"default_{cls.__name__}", f"shared_default({self.bind_class(cls)})")

    def method(self, code: str, method: Method) -> str:
        """Return the name of a method of the Struct with this code."""
        return self.define(
            f"{method}_{code.replace('?', 'o')}", f"struct_method({code!r}, {method!r})"
        )

    def table(self, code: str, offsets: tuple[int, ...], method: Method) -> str:
        """Return the name of a table from lengths to the method for parts of these lengths.

        `code` has a pair of braces for each length; its offset is subtracted from each, because
        compact lengths are written one too high.
        """
        stem = code.replace("?", "o").replace("{}", "_") + "".join(map(str, offsets))
        return self.define(
            f"{method}_by_length_{stem}", f"struct_table({code!r}, {offsets!r}, {method!r})"
        )

    def text(self) -> str:
        definitions = [f"{name} = {expression}" for name, expression in self._definitions.items()]
        return "\n".join([*definitions, *self._lines]) + "\n"


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
def struct_method(code: str, method: Method) -> Function:
    """Return a method of a Struct."""
    made: Function = getattr(Struct(">" + code), method)
    return made


@cache
def struct_table(code: str, offsets: tuple[int, ...], method: Method) -> LengthTable:
    """Return the table that `Source.table` names."""
    return LengthTable(code, offsets, method)

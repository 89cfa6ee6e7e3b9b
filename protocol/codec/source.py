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

from protocol.codec.declaration import Fresh
from protocol.codec.tree import Field, StructureLayout, has_fresh_default, structure_of

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


# --------------------------------------------------------------------------------------------------
# Expressions in generated sources that test whether a field has its default
#
# A tagged field with its default takes no bytes; a field that the version lacks must have it. The
# tests are written so that the common case is cheap: the shared default of a structure is compared
# by identity.


def default(source: Source, field: Field) -> str:
    """Return an expression for the default of a field."""
    match field.default:
        case Fresh.LIST:
            return "[]"
        case Fresh.STRUCTURE:
            structure = structure_of(field)
            return (
                f"{source.bind_class(structure)}()"
                if has_fresh_default(structure)
                else source.shared_default(structure)
            )
        case value:
            return literal(value)


def literal(value: object) -> str:
    """Return the source of a scalar; members of IntEnum become plain numbers."""
    return (
        repr(int(value)) if isinstance(value, int) and not isinstance(value, bool) else repr(value)
    )


def is_default(source: Source, field: Field, expression: str) -> str:
    """Return the test whether a value is the default."""
    match field.default:
        case None:
            return f"{expression} is None"
        case True:
            return expression
        case False:
            return f"not {expression}"
        case Fresh.LIST:
            return f"(not {expression} and {expression} is not None)"
        case Fresh.STRUCTURE:
            shared = default(source, field)
            return (
                f"({expression} is {shared} or ({expression} == {shared} and {expression}._tags "
                "is None))"
            )
        case _:
            return f"{expression} == {default(source, field)}"


def is_plainly_default(source: Source, field: Field, expression: str) -> str:
    """Return the same without a comparison of structures: one that only equals the default is found
    when the tags are encoded.
    """
    return (
        f"{expression} is {default(source, field)}"
        if field.default is Fresh.STRUCTURE
        else is_default(source, field, expression)
    )


def is_set(source: Source, field: Field, expression: str) -> str:
    """Return the opposite test."""
    match field.default:
        case None:
            return f"{expression} is not None"
        case False:
            return expression
        case _:
            return f"not ({is_default(source, field, expression)})"


def nothing_but_fields(source: Source, layout: StructureLayout, target: str) -> list[str]:
    """Return the condition under which only the present fields of an object need a test."""
    return [
        f"{target}._tags is None",
        *(is_default(source, field, f"{target}.{field.name}") for field in layout.guarded),
    ]

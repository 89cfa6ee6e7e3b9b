"""Expressions in generated sources that test whether a field has its default.

A tagged field with its default takes no bytes; a field that the version lacks must have it. The
tests are written so that the common case is cheap: the shared default of a structure is compared by
identity.
"""

from protocol.codec.declaration import Fresh
from protocol.codec.source import Source
from protocol.codec.tree import Field, StructureLayout, has_fresh_default, structure_of


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

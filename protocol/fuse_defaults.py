"""Expressions in generated sources that test whether a field has its default.

A tagged field with its default takes no bytes; a field that the version lacks must have it. The
tests are written so that the common case is cheap: the shared default of a structure is compared by
identity.
"""

from protocol.declaration import Field, Fresh
from protocol.fuse_source import Source
from protocol.resolve import StructureLayout


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
            default = source.default(field)
            return (
                f"({expression} is {default} or ({expression} == {default} and "
                f"{expression}._tags is None))"
            )
        case _:
            return f"{expression} == {source.default(field)}"


def is_plainly_default(source: Source, field: Field, expression: str) -> str:
    """Return the same without a comparison of structures: one that only equals the default is found
    when the tags are encoded.
    """
    return (
        f"{expression} is {source.default(field)}"
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

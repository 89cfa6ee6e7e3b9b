"""Tables of the fields of a message over all versions, and of the changes of each version."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from protocol.codec.declaration import (
    ArrayOf,
    Declaration,
    Fresh,
    Primitive,
    StructureOf,
    VersionRange,
    pascal_case,
)
from protocol.codec.tree import Field, fields_of
from protocol.schema import declaration_of

HEADINGS: Final = "| field | type | versions | null | default | tag |\n|---|---|---|---|---|---|"
BYTES_SHOWN_MAX: Final = 16


class Row(NamedTuple):
    """A field with its place in the message; `versions` are those of the message in which it
    exists.
    """

    path: str
    field: Field
    versions: VersionRange


def field_table(cls: type) -> list[str]:
    """Return a table of all fields of a message, those of structures below their field."""
    declaration = declaration_of(cls)
    rows = list(rows_of(declaration, declaration.versions))
    if not rows:
        return ["It has no fields.\n"]
    return [HEADINGS, *(_line(row, declaration) for row in rows), ""]


def rows_of(declaration: Declaration, versions: VersionRange, path: str = "") -> Iterator[Row]:
    """Yield the fields in the order of the wire, with those of structures."""
    for field in fields_of(declaration):
        present = field.versions.intersection(versions)
        place = f"{path}{field.name}" + ("[]" if isinstance(field.type, ArrayOf) else "")
        yield Row(place, field, present)
        inner = field.type.element if isinstance(field.type, ArrayOf) else field.type
        if isinstance(inner, StructureOf):
            yield from rows_of(declaration_of(inner.structure), present, f"{place}.")


def changes(cls: type) -> dict[int, list[str]]:
    """Return the fields that each version after the first added and removed, for versions with
    changes.
    """
    declaration = declaration_of(cls)
    found: dict[int, list[str]] = {}
    first, last = declaration.versions.first, declaration.versions.last
    for version in range(first + 1, last + 1):
        said = []
        if version == declaration.flexible.first:
            said.append("flexible: compact lengths, tagged fields")
        rows = list(rows_of(declaration, declaration.versions))
        gone = {row.path for row in rows if row.versions.last == version - 1}
        new = [row for row in rows if row.versions.first == version]
        said += [
            f"adds `{row.path}`"
            + (f" (tag {row.field.tag})" if version in row.field.tagged else "")
            for row in new
            if not _inside(row.path, new)
        ]
        said += [
            f"drops `{path}`"
            for path in sorted(gone)
            if not any(path.startswith(f"{other}.") for other in gone)
        ]
        said += [
            f"`{row.path}` may be null"
            for row in rows
            if row.field.nullable.first == version
            and version in row.versions
            and version - 1 in row.versions
        ]
        if said:
            found[version] = said
    return found


def type_words(field: Field) -> str:
    """Return the type in Kafka's notation, structures by their names."""
    return (
        field.kafka_type.replace("[]", "array of ", 1)
        if field.kafka_type.startswith("[]")
        else field.kafka_type
    )


def _inside(path: str, new: list[Row]) -> bool:
    """Return whether a field was added with its parent structure."""
    return any(path.startswith(f"{row.path}.") for row in new)


def _line(row: Row, declaration: Declaration) -> str:
    field = row.field
    depth = row.path.count(".")
    indent = "&nbsp;" * 4 * depth
    name = f"{indent}`{field.name}`" + (
        f" ({field.kafka_name})" if field.kafka_name != pascal_case(field.name) else ""
    )
    nullable = field.nullable.intersection(row.versions)
    tagged = field.tagged.intersection(row.versions)
    tag = (
        ""
        if not tagged
        else str(field.tag)
        + (f" in {_words(tagged, declaration)}" if tagged != row.versions else "")
    )
    cells = (
        name,
        type_words(field),
        _words(row.versions, declaration),
        _words(nullable, declaration) if nullable else "",
        _default(field),
        tag,
    )
    return f"| {' | '.join(cells)} |"


def _words(versions: VersionRange, declaration: Declaration) -> str:
    """Return the shortest notation of a range: `all`, `3+`, `0-2`, `4`."""
    whole = declaration.versions
    if versions.first <= whole.first and versions.last >= whole.last:
        return "all"
    if versions.last >= whole.last:
        return f"{versions.first}+"
    return str(VersionRange(max(versions.first, whole.first), versions.last))


def _default(field: Field) -> str:
    """Return the default unless it is zero, the empty string or the empty list."""
    match field.default:
        case Fresh() | False | "" | b"":
            return ""
        case None:
            return "" if field.type is Primitive.RECORDS else "null"
        case bytes() as content:
            return "" if not any(content) else f"`0x{content[:BYTES_SHOWN_MAX].hex()}`"
        case 0:
            return ""
        case value:
            return f"`{value}`"

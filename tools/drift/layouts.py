"""The layout of one version, as a list of fields that can be compared: once from a declaration,
once from a definition.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from protocol.codec.declaration import ArrayOf, Declaration, StructureOf
from protocol.codec.tree import Field, fields_of
from protocol.schema import declaration_of
from tools.drift.definitions import TOP, DefinedField, Definition
from tools.drift.exceptions import present_name

UNTAGGED = -1


class Slot(NamedTuple):
    """A field on the wire; `path` is Kafka's in lower case, `is_tagged` also of fields inside a
    tagged one.
    """

    path: str
    type: str
    nullable: bool
    tag: int
    is_tagged: bool
    compact: bool


def declared_layout(declaration: Declaration, version: int) -> list[Slot]:
    """Return the fields of our declaration on the wire, nested ones after the field that contains
    them.
    """

    def walk(fields: Sequence[Field], path: str, is_tagged: bool) -> Iterator[Slot]:
        present = [field for field in fields if version in field.versions]
        for field in sorted(present, key=lambda field: _tag(field, version)):
            element = field.type.element if isinstance(field.type, ArrayOf) else field.type
            slot = Slot(
                path=path + field.kafka_name.lower(),
                type=_bare(field.kafka_type, isinstance(element, StructureOf)),
                nullable=version in field.nullable,
                tag=_tag(field, version),
                is_tagged=is_tagged or version in field.tagged,
                compact=version
                in (declaration.flexible if field.flexible is None else field.flexible),
            )
            yield slot
            if isinstance(element, StructureOf):
                yield from walk(
                    fields_of(declaration_of(element.structure)), f"{slot.path}.", slot.is_tagged
                )

    return list(walk(fields_of(declaration), "", False))


def defined_layout(definition: Definition, version: int) -> list[Slot]:
    """Return the fields of Kafka's definition on the wire."""

    def walk(structure: str, path: str, is_tagged: bool) -> Iterator[Slot]:
        present = [field for field in definition.structures[structure] if version in field.versions]
        for field in sorted(present, key=lambda field: _tag(field, version)):
            is_structure = field.element_type in definition.structures
            slot = Slot(
                path=path + present_name(definition.name, structure, field.name).lower(),
                type=_bare(field.type, is_structure),
                nullable=version in field.nullable,
                tag=_tag(field, version),
                is_tagged=is_tagged or version in field.tagged,
                compact=version
                in (definition.flexible if field.flexible is None else field.flexible),
            )
            yield slot
            if is_structure:
                yield from walk(field.element_type, f"{slot.path}.", slot.is_tagged)

    return list(walk(TOP, "", False))


def _tag(field: Field | DefinedField, version: int) -> int:
    return field.tag if field.tag is not None and version in field.tagged else UNTAGGED


def _bare(kafka_type: str, is_structure: bool) -> str:
    """Return the type without the name of its structure: releases rename structures, which does not
    change the wire.
    """
    if not is_structure:
        return kafka_type
    return "[]structure" if kafka_type.startswith("[]") else "structure"

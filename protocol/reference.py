"""The readable reference: the layout of a message as a plain construct Struct.

It is slow by design: it specifies the fused codec, tests compare the two, and after an error it
runs again to find the field.
Source: org.apache.kafka.message.MessageDataGenerator (what Kafka generates from the same
definitions).
"""

from collections.abc import Mapping

import construct

from protocol.declaration import TEXT_TYPES, Primitive
from protocol.limits import LAST_INT32, STRING_SIZE_MAX
from protocol.resolve import ArrayLayout, PresentField, StructureLayout, default_of, is_default
from protocol.schema import Message
from protocol.types import (
    FIXED,
    INT16,
    INT32,
    Blob,
    Elements,
    Length,
    NullableStructure,
    TaggedFields,
    Text,
    WireError,
    compact_length,
    plain_length,
)

TAGGED = "(tagged)"
"""Name of the tagged fields within the Struct; no field can have this name."""


def reference_of(layout: StructureLayout) -> construct.Construct:
    """Return the Construct that parses and builds objects of the layout's class."""
    subcons = [field.name / _construct_of(field) for field in layout.fields]
    if layout.flexible:
        subcons.append(
            TAGGED
            / TaggedFields({field.tag: (field.name, _construct_of(field)) for field in layout.tags})
        )
    return StructureAdapter(construct.Struct(*subcons), layout)


class StructureAdapter(construct.Adapter):  # type: ignore[misc]
    """Container to object and back: absent fields get their default, and must have it when
    encoded.
    """

    def __init__(self, subcon: construct.Construct, layout: StructureLayout) -> None:
        super().__init__(subcon)
        self._layout = layout

    def _decode(self, container: Mapping[str, Message], context: object, path: str) -> object:
        values = {field.name: container[field.name] for field in self._layout.fields}
        unknown: dict[int, bytes] = dict(container.get(TAGGED, {}))
        for field in self._layout.tags:
            values[field.name] = (
                unknown.pop(field.tag) if field.tag in unknown else default_of(field.declared)
            )
        for absent in self._layout.absent:
            values[absent.name] = default_of(absent)
        structure = self._layout.cls(**values)
        structure._tags = unknown or None
        return structure

    def _encode(self, obj: Message, context: object, path: str) -> dict[str, object]:
        if not isinstance(obj, self._layout.cls):
            raise WireError(path, f"{obj!r} is no {self._layout.cls.__name__}")
        for absent in self._layout.guarded:
            value = getattr(obj, absent.name)
            if not is_default(absent, value):
                raise WireError(
                    f"{path} -> {absent.name}",
                    f"version {self._layout.version} has no such field, but it is set to {value!r}",
                )
        values = {field.name: getattr(obj, field.name) for field in self._layout.fields}
        tags = getattr(obj, "_tags", None)
        if self._layout.flexible:
            values[TAGGED] = self._tagged_values(obj, tags or {}, path)
        return values

    def _tagged_values(
        self, obj: object, unknown: Mapping[int, bytes], path: str
    ) -> dict[int, object]:
        tagged: dict[int, object] = dict(unknown)
        for field in self._layout.tags:
            if field.tag in unknown:
                raise WireError(
                    f"{path} -> {field.name}",
                    f"tag {field.tag} is known in version {self._layout.version}, but kept among "
                    "the unknown ones",
                )
            value = getattr(obj, field.name)
            if not is_default(field.declared, value):
                tagged[field.tag] = value
        return tagged


def _construct_of(field: PresentField) -> construct.Construct:
    match field.type:
        case StructureLayout():
            structure = reference_of(field.type)
            return (
                NullableStructure(structure, tagged=field.tagged) if field.nullable else structure
            )
        case ArrayLayout(element):
            subcon = (
                reference_of(element)
                if isinstance(element, StructureLayout)
                else _primitive(element, flexible=field.flexible, nullable=False)
            )
            return Elements(
                _length(element, array=True, flexible=field.flexible, nullable=field.nullable),
                subcon,
            )
        case Primitive():
            return _primitive(field.type, flexible=field.flexible, nullable=field.nullable)
    raise AssertionError(f"{field.name} has no wire type")


def _primitive(primitive: Primitive, *, flexible: bool, nullable: bool) -> construct.Construct:
    if primitive in FIXED:
        return FIXED[primitive]
    length = _length(primitive, array=False, flexible=flexible, nullable=nullable)
    if primitive in TEXT_TYPES:
        return Text(length, STRING_SIZE_MAX if primitive is Primitive.STRING else LAST_INT32)
    return Blob(length, view=primitive is Primitive.RECORDS)


def _length(
    element: Primitive | StructureLayout, *, array: bool, flexible: bool, nullable: bool
) -> Length:
    if flexible:
        return compact_length(nullable=nullable)
    return plain_length(
        INT16 if element is Primitive.STRING and not array else INT32, nullable=nullable
    )

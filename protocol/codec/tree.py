"""Messages as construct trees: the one description that is interpreted, compiled, compared with
Kafka's definitions, and documented.

Two trees, both of ordinary constructs. The *declared* tree covers all versions: `Field`s, each of
which knows in which versions it exists, may be null, or is tagged. Evaluating the versions gives
the tree *at one version*: a `StructureLayout`, which is construct's own Struct of Kafka's wire
types (`types`) behind an adapter from container to message object. Nothing in it depends on a
version any more, so the interpreter needs no conditions, and the compiler walks exactly the objects
that would otherwise run.
Source: the JSON message definitions of Apache Kafka (`versions`, `nullableVersions`,
`taggedVersions`, `flexibleVersions`); KIP-482; org.apache.kafka.message.MessageDataGenerator (what
Kafka generates from the same definitions).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import IO, Final

import construct

from protocol.codec.declaration import (
    LAST_VERSION,
    NO_VERSIONS,
    Arguments,
    ArrayOf,
    Declaration,
    FieldCall,
    Fresh,
    Message,
    Primitive,
    Scalar,
    StructureOf,
    UnknownVersion,
    VersionRange,
    WireType,
    declaration_of,
    pascal_case,
    snake_case,
)
from protocol.codec.shared_defaults import shared_default
from protocol.codec.types import (
    FIXED,
    INT16,
    INT32,
    Blob,
    Context,
    Elements,
    FixedType,
    Length,
    NullableStructure,
    TaggedFields,
    Text,
    WireError,
    compact_length,
    plain_length,
)
from protocol.limits import LAST_INT32, STRING_SIZE_MAX

TAGGED = "(tagged)"
"""Name of the tagged fields within the Struct; no field can have this name."""
NULLABLE_TYPES: Final = (Primitive.STRING, Primitive.USTRING, Primitive.BYTES, Primitive.RECORDS)
TEXT_TYPES: Final = (Primitive.STRING, Primitive.USTRING)
PYTHON_TYPES: Final[Mapping[Primitive, tuple[type, ...]]] = {
    Primitive.BOOLEAN: (bool,),
    Primitive.FLOAT64: (float, int),
    Primitive.UUID: (bytes,),
    Primitive.STRING: (str,),
    Primitive.USTRING: (str,),
    Primitive.BYTES: (bytes,),
}


class Field(construct.Construct):  # type: ignore[misc]  # construct has no types
    """A field of a message or structure, over all versions: `parse(data, version=4,
    flexible=VersionRange.parse("2+"))` parses its value alone.

    It exists in `versions`; in `tagged` it is a tagged field with the number `tag`; in `nullable`
    it may be None. `flexible` overrides where its own encoding is compact (None: like the message).
    `ignorable`: dropped silently in versions that lack it.
    """

    def __init__(self, name: str, call: FieldCall) -> None:
        super().__init__()
        options = call.options
        self.name: str = name
        self.kafka_name: str = options.get("kafka_name") or pascal_case(name)
        self.type: WireType = call.type
        self.tagged = VersionRange.parse(options.get("tagged", "none"))
        self.versions = _versions(options, self.tagged)
        self.nullable = NO_VERSIONS if call.nullable is None else VersionRange.parse(call.nullable)
        self.default: Scalar | Fresh | None = call.default
        self.tag: int | None = options.get("tag")
        self.ignorable: bool = options.get("ignorable", False)
        self.flexible = VersionRange.parse(options["flexible"]) if "flexible" in options else None

    @property
    def kafka_type(self) -> str:
        """The type in the notation of Kafka's definitions: "int32", "[]TopicData",
        "LeaderIdAndEpoch".
        """
        return _kafka_type(self.type)

    def is_called(self, kafka_name: str) -> bool:
        """Return whether this is the field with a name of Kafka's (whose capitalisation is not
        consistent: `timeoutMs`, `TimeoutMs`).
        """
        return kafka_name == self.kafka_name or snake_case(kafka_name) == self.name

    def at(self, version: int, flexible_versions: VersionRange) -> "PresentField":
        """Return the field as it is on the wire in one of its versions."""
        is_compact = version in flexible_versions and (
            self.flexible is None or version in self.flexible
        )
        is_tagged = version in self.tagged
        subcon = _construct_of(
            self.type,
            version,
            flexible_versions,
            compact=is_compact,
            nullable=version in self.nullable,
            tagged=is_tagged,
        )
        return PresentField(self, subcon, tagged=is_tagged)

    def _parse(self, stream: IO[bytes], context: Context, path: str) -> object:
        version = version_of(context)
        if version not in self.versions or version in self.tagged:
            return default_of(self)
        return self.at(version, context._params.get("flexible", NO_VERSIONS))._parsereport(
            stream, context, path
        )

    def _build(self, obj: object, stream: IO[bytes], context: Context, path: str) -> object:
        version = version_of(context)
        if version in self.versions and version not in self.tagged:
            self.at(version, context._params.get("flexible", NO_VERSIONS))._build(
                obj, stream, context, path
            )
        return obj

    def _sizeof(self, context: object, path: str) -> int:
        raise construct.SizeofError(path=path)


class PresentField(construct.Renamed):  # type: ignore[misc]  # construct has no types
    """A field at one version: its name, and the construct of its content in that version."""

    def __init__(self, declared: Field, subcon: construct.Construct, *, tagged: bool) -> None:
        super().__init__(subcon, newname=declared.name)
        self.declared = declared
        self.tagged = tagged

    @property
    def tag(self) -> int:
        assert self.declared.tag is not None, f"{self.name} is not a tagged field"
        return self.declared.tag

    @cached_property
    def type(self) -> "Primitive | ArrayLayout | StructureLayout":
        """What it holds, by Kafka's name of it: for tools that show or invent messages."""
        return kind_of(self.subcon)

    @cached_property
    def nullable(self) -> bool:
        length = getattr(self.subcon, "length", None)
        return isinstance(self.subcon, NullableStructure) or (
            isinstance(length, Length) and length.nullable
        )

    @property
    def flexible(self) -> bool:
        """Whether its length is compact."""
        length = getattr(self.subcon, "length", None)
        return isinstance(length, Length) and length.compact


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """The type of a field that holds elements."""

    element: "Primitive | StructureLayout"


class StructureLayout(construct.Adapter):  # type: ignore[misc]  # construct has no types
    """A message or structure at one version: a Struct, and the adapter between its container and an
    object of the class.

    `fields` are in wire order, then, if flexible, `tags` by number; `absent` are not on the wire:
    they get their default, and must have it when encoded.
    """

    def __init__(
        self,
        cls: type,
        version: int,
        *,
        flexible: bool,
        fields: tuple[PresentField, ...],
        tags: tuple[PresentField, ...],
        absent: tuple[Field, ...],
    ) -> None:
        subcons: list[construct.Construct] = list(fields)
        if flexible:
            subcons.append(TAGGED / TaggedFields({field.tag: field for field in tags}))
        super().__init__(construct.Struct(*subcons))
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.fields = fields
        self.tags = tags
        self.absent = absent

    @property
    def guarded(self) -> tuple[Field, ...]:
        """The absent fields whose value must be the default, because dropping another value would
        change the meaning.
        """
        return tuple(field for field in self.absent if not field.ignorable)

    def _decode(self, container: Mapping[str, Message], context: object, path: str) -> object:
        values = {field.name: container[field.name] for field in self.fields}
        unknown: dict[int, bytes] = dict(container.get(TAGGED, {}))
        for field in self.tags:
            values[field.name] = (
                unknown.pop(field.tag) if field.tag in unknown else default_of(field.declared)
            )
        for absent in self.absent:
            values[absent.name] = default_of(absent)
        structure = self.cls(**values)
        structure._tags = unknown or None
        return structure

    def _encode(self, obj: Message, context: object, path: str) -> dict[str, object]:
        if not isinstance(obj, self.cls):
            raise WireError(path, f"{obj!r} is no {self.cls.__name__}")
        for absent in self.guarded:
            value = getattr(obj, absent.name)
            if not is_default(absent, value):
                raise WireError(
                    f"{path} -> {absent.name}",
                    f"version {self.version} has no such field, but it is set to {value!r}",
                )
        values = {field.name: getattr(obj, field.name) for field in self.fields}
        tags = getattr(obj, "_tags", None)
        if self.flexible:
            values[TAGGED] = self._tagged_values(obj, tags or {}, path)
        return values

    def _tagged_values(
        self, obj: object, unknown: Mapping[int, bytes], path: str
    ) -> dict[int, object]:
        tagged: dict[int, object] = dict(unknown)
        for field in self.tags:
            if field.tag in unknown:
                raise WireError(
                    f"{path} -> {field.name}",
                    f"tag {field.tag} is known in version {self.version}, but kept among the "
                    "unknown ones",
                )
            value = getattr(obj, field.name)
            if not is_default(field.declared, value):
                tagged[field.tag] = value
        return tagged


def version_of(context: Context) -> int:
    """Return the version that the caller of `parse` or `build` passed, also to constructs around
    this one.
    """
    version: int = context._params["version"]
    return version


def fields_of(declaration: Declaration) -> tuple[Field, ...]:
    """Return the constructs of a declaration's fields, in wire order."""
    found = _FIELDS.get(id(declaration))
    if found is None:
        fields = tuple(Field(name, call) for name, call in declaration.calls.items())
        found = _FIELDS[id(declaration)] = declaration, fields
    return found[1]


_FIELDS: dict[int, tuple[Declaration, tuple[Field, ...]]] = {}
"""By identity, which is safe because the declaration is kept, too."""


def layout_of(cls: type, version: int) -> StructureLayout:
    """Return the construct of a message at a version; UnknownVersion if it does not declare
    that.
    """
    found = _LAYOUTS.get((cls, version))
    if found is None:
        declaration = declaration_of(cls)
        if version not in declaration.versions:
            raise UnknownVersion(declaration.name, declaration.versions, version)
        found = _LAYOUTS[cls, version] = _structure_layout(cls, version, declaration.flexible)
    return found


_LAYOUTS: dict[tuple[type, int], StructureLayout] = {}


@cache
def plain_layout_of(cls: type) -> StructureLayout:
    """Return the construct of a structure that has no versions."""
    return _structure_layout(cls, 0, NO_VERSIONS)


def check(cls: type) -> None:
    """Reject an inconsistent declaration."""
    declaration = declaration_of(cls)
    tags = sorted(field.tag for field in fields_of(declaration) if field.tag is not None)
    assert tags == list(range(len(tags))), f"the tags of {cls.__name__} are {tags}"
    for field in fields_of(declaration):
        where = f"{cls.__name__}.{field.name}"
        assert (field.tag is not None) == bool(field.tagged), (
            f"{where}: tag= and tagged= go together"
        )
        assert field.tagged.intersection(field.versions) == field.tagged, (
            f"{where}: tagged in versions that lack it"
        )
        assert field.tagged.intersection(declaration.flexible) == field.tagged, (
            f"{where}: tagged in versions that are not flexible"
        )
        may_be_null = field.type in NULLABLE_TYPES or isinstance(field.type, ArrayOf | StructureOf)
        assert may_be_null or not field.nullable, f"{where}: {field.kafka_type} cannot be null"
        assert field.default is not None or field.nullable or field.type is Primitive.RECORDS, (
            f"{where}: null by default, but never nullable"
        )
        if (
            isinstance(field.type, Primitive)
            and field.type is not Primitive.RECORDS
            and field.default is not None
        ):
            assert isinstance(field.default, PYTHON_TYPES.get(field.type, (int,))), (
                f"{where}: {field.default!r} is no {field.kafka_type}"
            )
        element = field.type.element if isinstance(field.type, ArrayOf) else field.type
        if isinstance(element, StructureOf):
            assert declaration_of(element.structure).calls, (
                f"{where}: an element without fields takes no bytes"
            )


def has_fresh_default(structure: type) -> bool:
    """Return whether a default instance would contain a list, and so cannot be shared."""
    for field in fields_of(declaration_of(structure)):
        if field.default is Fresh.LIST:
            return True
        if field.default is Fresh.STRUCTURE and has_fresh_default(structure_of(field)):
            return True
    return False


def structure_of(field: Field) -> type:
    """Return the class of a field that is a structure."""
    assert isinstance(field.type, StructureOf), f"{field.name} is no structure"
    return field.type.structure


def default_of(field: Field) -> object:
    """Return the value of an absent field; lists are new each time, structures are shared and
    reject assignment where possible.
    """
    match field.default:
        case Fresh.LIST:
            return []
        case Fresh.STRUCTURE:
            structure = structure_of(field)
            return structure() if has_fresh_default(structure) else shared_default(structure)
        case default:
            return default


def is_default(field: Field, value: Message) -> bool:
    """Return whether a value is the unset value of the field (a structure with unknown tags is
    not).
    """
    if field.default is Fresh.LIST:
        return value is not None and not value
    expected = default_of(field)
    if expected is None or value is None:
        return value is expected
    return bool(value == expected) and getattr(value, "_tags", None) is None


def kind_of(subcon: construct.Construct) -> "Primitive | ArrayLayout | StructureLayout":
    """Return what a construct of a field holds."""
    match subcon:
        case NullableStructure():
            return kind_of(subcon.structure)
        case Elements():
            element = kind_of(subcon.element)
            assert not isinstance(element, ArrayLayout), "Kafka has no arrays of arrays"
            return ArrayLayout(element)
        case StructureLayout():
            return subcon
        case FixedType() | Text() | Blob():
            return subcon.primitive
    raise AssertionError(f"{subcon} is no construct of a field")


def holds_records(layout: StructureLayout) -> bool:
    """Return whether it can contain record batches, which are never copied."""
    return holds(layout, Primitive.RECORDS)


def holds(layout: StructureLayout, primitive: Primitive) -> bool:
    """Return whether it can contain anything of this type."""
    return any(field_holds(field, primitive) for field in (*layout.fields, *layout.tags))


def field_holds(field: PresentField, primitive: Primitive) -> bool:
    """Return whether a field is of this type, or contains such fields."""
    inner = inner_layout(field)
    if inner is not None:
        return holds(inner, primitive)
    subcon = field.subcon.element if isinstance(field.subcon, Elements) else field.subcon
    return bool(subcon.primitive is primitive)


def inner_layout(field: PresentField) -> StructureLayout | None:
    """Return the structure in a field, or that of its elements."""
    match field.subcon:
        case (
            Elements(element=StructureLayout() as inner)
            | NullableStructure(structure=StructureLayout() as inner)
            | (StructureLayout() as inner)
        ):
            return inner
    return None


def versions_with_records(cls: type, versions: VersionRange) -> Iterator[VersionRange]:
    """Yield ranges of versions in which a structure contains record batches."""
    for field in fields_of(declaration_of(cls)):
        present = field.versions.intersection(versions)
        kind = field.type.element if isinstance(field.type, ArrayOf) else field.type
        if present and kind is Primitive.RECORDS:
            yield present
        elif present and isinstance(kind, StructureOf):
            yield from versions_with_records(kind.structure, present)


def _versions(options: Arguments, tagged: VersionRange) -> VersionRange:
    if "versions" in options:
        assert "since" not in options and "until" not in options, (
            "say versions=, or since= and until="
        )
        return VersionRange.parse(options["versions"])
    if tagged and "since" not in options and "until" not in options:
        return tagged
    return VersionRange(options.get("since", 0), options.get("until", LAST_VERSION))


def _structure_layout(cls: type, version: int, flexible_versions: VersionRange) -> StructureLayout:
    fields: list[PresentField] = []
    tags: list[PresentField] = []
    absent: list[Field] = []
    for field in fields_of(declaration_of(cls)):
        if version not in field.versions:
            absent.append(field)
            continue
        present = field.at(version, flexible_versions)
        (tags if present.tagged else fields).append(present)
    tags.sort(key=lambda present: present.tag)
    return StructureLayout(
        cls,
        version,
        flexible=version in flexible_versions,
        fields=tuple(fields),
        tags=tuple(tags),
        absent=tuple(absent),
    )


def _construct_of(
    wire_type: WireType,
    version: int,
    flexible_versions: VersionRange,
    *,
    compact: bool,
    nullable: bool,
    tagged: bool,
) -> construct.Construct:
    """Return the construct of a type at one version."""
    match wire_type:
        case StructureOf(structure):
            inner = _structure_layout(structure, version, flexible_versions)
            return NullableStructure(inner, tagged=tagged) if nullable else inner
        case ArrayOf(Primitive() as element):
            return Elements(
                _length(INT32, compact=compact, nullable=nullable),
                _primitive(element, compact=compact, nullable=False),
            )
        case ArrayOf(StructureOf(structure)):
            inner = _structure_layout(structure, version, flexible_versions)
            assert inner.fields or inner.flexible, (
                f"an array of {structure.__name__} would take no bytes in version {version}, so "
                "its count could lie"
            )
            return Elements(_length(INT32, compact=compact, nullable=nullable), inner)
        case Primitive():
            return _primitive(wire_type, compact=compact, nullable=nullable)
    raise AssertionError(f"{wire_type} is no wire type")


def _primitive(primitive: Primitive, *, compact: bool, nullable: bool) -> construct.Construct:
    if primitive in FIXED:
        return FIXED[primitive]
    length = _length(
        INT16 if primitive is Primitive.STRING else INT32, compact=compact, nullable=nullable
    )
    if primitive in TEXT_TYPES:
        return Text(
            primitive, length, STRING_SIZE_MAX if primitive is Primitive.STRING else LAST_INT32
        )
    return Blob(primitive, length)


def _length(number: FixedType, *, compact: bool, nullable: bool) -> Length:
    return compact_length(nullable=nullable) if compact else plain_length(number, nullable=nullable)


def _kafka_type(wire_type: WireType) -> str:
    match wire_type:
        case Primitive():
            return str(wire_type.value)
        case ArrayOf(element):
            return "[]" + _kafka_type(element)
        case StructureOf(structure):
            return declaration_of(structure).name

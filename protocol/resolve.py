"""A declaration at one version: its fields, their order, and the handling of the others.

Both codecs, the readable reference and the fused one, are generated from this layout, so neither
handles versions.
Source: the JSON message definitions of Apache Kafka (`versions`, `nullableVersions`,
`taggedVersions`, `flexibleVersions`).
"""

from dataclasses import dataclass

from protocol.declaration import (
    ArrayOf,
    Declaration,
    Field,
    Fresh,
    Primitive,
    StructureOf,
    VersionRange,
    WireType,
)
from protocol.message_class import has_fresh_default, shared_default
from protocol.schema import Message, declaration_of


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """A list of elements."""

    element: "Primitive | StructureLayout"


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentField:
    """A field of this version: in its position, or as a tagged field."""

    declared: Field
    type: "Primitive | ArrayLayout | StructureLayout"
    nullable: bool
    flexible: bool
    tagged: bool
    """It is a tagged field; a nullable structure has another marker byte there than elsewhere."""

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def tag(self) -> int:
        assert self.declared.tag is not None, f"{self.name} is not a tagged field"
        return self.declared.tag


@dataclass(frozen=True, slots=True, kw_only=True)
class StructureLayout:
    """A message or structure at one version: `fields` in wire order, then, if flexible, `tags` by
    number; `absent` are not on the wire.
    """

    cls: type
    version: int
    flexible: bool
    fields: tuple[PresentField, ...]
    tags: tuple[PresentField, ...]
    absent: tuple[Field, ...]

    @property
    def guarded(self) -> tuple[Field, ...]:
        """The absent fields whose value must be the default, because dropping another value would
        change the meaning.
        """
        return tuple(field for field in self.absent if not field.ignorable)


class UnknownVersion(ValueError):
    """A version that a message does not declare."""

    def __init__(self, name: str, versions: VersionRange, version: int) -> None:
        super().__init__(name, versions, version)
        self.name = name
        self.versions = versions
        self.version = version

    def __str__(self) -> str:
        return f"{self.name} has versions {self.versions}, not {self.version}"


def layout_of(cls: type, version: int) -> StructureLayout:
    """Return the layout of a message at a version; UnknownVersion if it does not declare that."""
    found = _LAYOUTS.get((cls, version))
    if found is None:
        declaration = declaration_of(cls)
        if version not in declaration.versions:
            raise UnknownVersion(declaration.name, declaration.versions, version)
        found = _LAYOUTS[cls, version] = _structure_layout(cls, version, declaration.flexible)
    return found


_LAYOUTS: dict[tuple[type, int], StructureLayout] = {}


def default_of(field: Field) -> object:
    """Return the value of an absent field; lists are new each time, structures are shared and
    reject assignment where possible.
    """
    match field.default:
        case Fresh.LIST:
            return []
        case Fresh.STRUCTURE:
            assert isinstance(field.type, StructureOf), f"{field.name} is no structure"
            structure = field.type.structure
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


def holds_records(layout: StructureLayout) -> bool:
    """Return whether it can contain record batches, which are never copied."""
    return holds(layout, Primitive.RECORDS)


def holds(layout: StructureLayout, primitive: Primitive) -> bool:
    """Return whether it can contain anything of this type."""
    return any(field_holds(field, primitive) for field in (*layout.fields, *layout.tags))


def field_holds(field: PresentField, primitive: Primitive) -> bool:
    """Return whether a field is of this type, or contains such fields."""
    shape = field.type.element if isinstance(field.type, ArrayLayout) else field.type
    return shape is primitive or (isinstance(shape, StructureLayout) and holds(shape, primitive))


def _structure_layout(cls: type, version: int, flexible_versions: VersionRange) -> StructureLayout:
    declaration: Declaration = declaration_of(cls)
    flexible = version in flexible_versions
    fields: list[PresentField] = []
    tags: list[PresentField] = []
    absent: list[Field] = []
    for field in declaration.fields:
        if version not in field.versions:
            absent.append(field)
            continue
        is_tagged = version in field.tagged
        present = PresentField(
            declared=field,
            type=_shape(field.type, version, flexible_versions),
            nullable=version in field.nullable,
            flexible=flexible and (field.flexible is None or version in field.flexible),
            tagged=is_tagged,
        )
        (tags if is_tagged else fields).append(present)
    tags.sort(key=lambda present: present.tag)
    return StructureLayout(
        cls=cls,
        version=version,
        flexible=flexible,
        fields=tuple(fields),
        tags=tuple(tags),
        absent=tuple(absent),
    )


def _shape(
    wire_type: WireType, version: int, flexible_versions: VersionRange
) -> "Primitive | ArrayLayout | StructureLayout":
    match wire_type:
        case Primitive():
            return wire_type
        case StructureOf(structure):
            return _structure_layout(structure, version, flexible_versions)
        case ArrayOf(Primitive() as element):
            return ArrayLayout(element)
        case ArrayOf(StructureOf(structure)):
            layout = _structure_layout(structure, version, flexible_versions)
            assert layout.fields or layout.flexible, (
                f"an array of {structure.__name__} would take no bytes in version {version}, so "
                "its count could lie"
            )
            return ArrayLayout(layout)
    raise AssertionError(f"{wire_type} is no wire type")

"""The class generated from a declaration: mutable, slotted, keyword-only, compared and printed by
its fields.

Messages are created on the hot path, thousands per second: a frozen dataclass would cost four times
as much, and a class per version would make handlers differ by version. `__init__` and `__eq__` are
generated as source once per class.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from protocol.declaration import (
    ArrayOf,
    Declaration,
    Field,
    Fresh,
    Kind,
    Primitive,
    Scalar,
    StructureOf,
    VersionRange,
    WireType,
    pascal_case,
)

if TYPE_CHECKING:
    from protocol.message_construct import MessageConstruct

T = TypeVar("T")

NULLABLE_TYPES = (Primitive.STRING, Primitive.USTRING, Primitive.BYTES, Primitive.RECORDS)
PYTHON_TYPES: Mapping[Primitive, tuple[type, ...]] = {
    Primitive.BOOLEAN: (bool,),
    Primitive.FLOAT64: (float, int),
    Primitive.UUID: (bytes,),
    Primitive.STRING: (str,),
    Primitive.USTRING: (str,),
    Primitive.BYTES: (bytes,),
}
LEFT_OUT = "LEFT_OUT"
"""In generated sources: the argument of `__init__` is missing, so its default is created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOptions:
    """A field in the class body before it gets its name."""

    kafka_name: str | None
    type: WireType
    versions: VersionRange
    nullable: VersionRange
    default: Scalar | Fresh | None
    tag: int | None
    tagged: VersionRange
    ignorable: bool
    flexible: VersionRange | None


def message_class(
    body: type[T],
    *,
    name: str,
    kind: Kind,
    api_key: int | None,
    versions: VersionRange,
    flexible: VersionRange,
    latest_unstable: bool = False,
) -> type[T]:
    """Create the slotted class of a class body whose annotated attributes are FieldOptions; methods
    and docstring are kept.
    """
    fields = _fields_of(body)
    declaration = Declaration(
        name=name,
        kind=kind,
        api_key=api_key,
        versions=versions,
        flexible=flexible,
        fields=fields,
        latest_unstable=latest_unstable,
    )
    _check(body.__name__, declaration)
    names = [field.name for field in fields]
    namespace: dict[str, Any] = {
        key: value
        for key, value in vars(body).items()
        if key not in (*names, "__dict__", "__weakref__")
    }
    namespace["__slots__"] = (*names, "_tags")
    namespace["__declaration__"] = declaration
    namespace["__repr__"] = _repr
    if kind != "structure":
        assert not {"versions", "construct"} & set(names), (
            f"{body.__name__} has a field that hides what every message class has"
        )
        namespace["versions"] = versions
        namespace["construct"] = classmethod(_construct)
    cls: Any = type(body.__name__, body.__bases__, namespace)
    cls.__qualname__ = body.__qualname__
    for method in _methods(cls, fields):
        method.__qualname__ = f"{body.__qualname__}.{method.__name__}"
        setattr(cls, method.__name__, method)
    cls.__hash__ = None
    made: type[T] = cls
    return made


def shared_default(structure: type[T]) -> T:
    """Return the one instance that stands for "all defaults": it equals a new one and rejects
    assignment.

    Decoders use it for an absent structure, which is cheaper than creating one, and encoders
    recognise it by identity.
    """
    found = _SHARED_DEFAULTS.get(structure)
    if found is None:
        methods = {
            "__setattr__": _refuse_assignment,
            "__reduce__": lambda _: (structure, ()),
        }  # a copy is an ordinary one
        frozen = type(
            structure.__name__,
            (structure,),
            {"__slots__": (), "__doc__": structure.__doc__, **methods},
        )
        found = object.__new__(frozen)
        template = structure()
        for slot in structure.__slots__:  # type: ignore[attr-defined]
            object.__setattr__(found, slot, getattr(template, slot))
        _SHARED_DEFAULTS[structure] = found
    return found  # type: ignore[no-any-return]


def has_fresh_default(structure: type) -> bool:
    """Return whether a default instance would contain a list, and so cannot be shared."""
    for field in _declaration(structure).fields:
        if field.default is Fresh.LIST:
            return True
        if field.default is Fresh.STRUCTURE and has_fresh_default(_structure_of(field)):
            return True
    return False


_SHARED_DEFAULTS: dict[type, Any] = {}


def _refuse_assignment(self: object, name: str, value: object) -> NoReturn:
    raise AttributeError(
        f"this {type(self).__name__} is the shared default of an absent field: assign a new one "
        f"instead of changing .{name}"
    )


def _construct(cls: type, version: int) -> "MessageConstruct":
    """Return the Construct of this message at a version: it parses, builds, compiles, and fits into
    any other Struct.
    """
    from protocol.message_codec import construct_of

    return construct_of(cls, version)


def _repr(self: Any) -> str:
    fields = ", ".join(
        f"{field.name}={getattr(self, field.name)!r}" for field in self.__declaration__.fields
    )
    return f"{type(self).__name__}({fields})"


def _fields_of(body: type) -> tuple[Field, ...]:
    fields = []
    annotated = inspect.get_annotations(body)
    for name in annotated:
        options = vars(body).get(name)
        assert isinstance(options, FieldOptions), (
            f"{body.__name__}.{name} is annotated, but no field"
        )
        fields.append(
            Field(
                name=name,
                kafka_name=options.kafka_name or pascal_case(name),
                type=options.type,
                versions=options.versions,
                nullable=options.nullable,
                default=options.default,
                tag=options.tag,
                tagged=options.tagged,
                ignorable=options.ignorable,
                flexible=options.flexible,
            )
        )
    for name, value in vars(body).items():
        assert not isinstance(value, FieldOptions) or name in annotated, (
            f"{body.__name__}.{name} has no annotation"
        )
    return tuple(fields)


def _check(class_name: str, declaration: Declaration) -> None:
    """Reject an inconsistent declaration."""
    tags = sorted(field.tag for field in declaration.fields if field.tag is not None)
    assert tags == list(range(len(tags))), f"the tags of {class_name} are {tags}"
    for field in declaration.fields:
        where = f"{class_name}.{field.name}"
        assert not field.name.startswith("_"), f"{where}: a field has no leading underscore"
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
            assert _declaration(element.structure).fields, (
                f"{where}: an element without fields takes no bytes"
            )


def _methods(cls: type, fields: tuple[Field, ...]) -> list[Any]:
    """Write and compile `__init__` and `__eq__`."""
    scope: dict[str, Any] = {LEFT_OUT: object(), "CLASS": cls}
    arguments, assignments = [], []
    for field in fields:
        match field.default:
            case Fresh.LIST:
                fresh = "[]"
            case Fresh.STRUCTURE:
                structure = _structure_of(field)
                fresh = f"NEW_{field.name}" + ("()" if has_fresh_default(structure) else "")
                scope[f"NEW_{field.name}"] = (
                    structure if has_fresh_default(structure) else shared_default(structure)
                )
            case default:
                arguments.append(f"{field.name}={_literal(default)}")
                assignments.append(f"    self.{field.name} = {field.name}")
                continue
        arguments.append(f"{field.name}={LEFT_OUT}")
        assignments.append(
            f"    self.{field.name} = {fresh} if {field.name} is {LEFT_OUT} else {field.name}"
        )
    equals = [f"self.{field.name} == other.{field.name}" for field in fields]
    source = [
        f"def __init__(self{', *, ' if arguments else ''}{', '.join(arguments)}):",
        *assignments,
        "    self._tags = None",
        "def __eq__(self, other):",
        "    if not isinstance(other, CLASS): return NotImplemented",
        f"    return {' and '.join(equals) or 'True'}",
    ]
    exec("\n".join(source), scope)
    return [scope["__init__"], scope["__eq__"]]


def _literal(default: Scalar | None) -> str:
    """Return the source of a default; members of IntEnum become plain numbers."""
    return (
        repr(int(default))
        if isinstance(default, int) and not isinstance(default, bool)
        else repr(default)
    )


def _structure_of(field: Field) -> type:
    assert isinstance(field.type, StructureOf), f"{field.name} is no structure"
    return field.type.structure


def _declaration(structure: type) -> Declaration:
    declaration: Declaration = structure.__declaration__  # type: ignore[attr-defined]
    return declaration

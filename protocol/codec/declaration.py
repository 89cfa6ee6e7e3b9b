"""What a node knows of a declared message without construct: name, key, versions, and the calls
that stand in the class body.

A call such as `int32(since=3)` is kept as it was written. `tree` makes the construct of it on
demand: when a codec is compiled for the first time, when construct itself interprets the message,
or when a tool asks for the fields. A node that finds its codecs in the store needs none of them.
Source: the JSON message definitions of Apache Kafka
(clients/src/main/resources/common/message/README.md).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

LAST_VERSION = 32767

Message: TypeAlias = Any
"""An object of some class made by @message; the API key and version determine which."""

Kind = Literal[
    "request",
    "response",
    "header",
    "data",
    "metadata",
    "control",
    "coordinator-key",
    "coordinator-value",
    "zookeeper",
    "lease-pid",
    "structure",
]


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions `first` to `last`, both inclusive; `last` is LAST_VERSION for "3+"; "none" is empty
    (last < first).
    """

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "VersionRange":
        """Read Kafka's notation: "0-5", "3+", "4" or "none"."""
        found = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
        if found is None:
            assert text == "none", f"{text!r} is not a range of versions"
            return NO_VERSIONS
        first, is_open, last = int(found[1]), found[2], found[3]
        versions = cls(first, LAST_VERSION if is_open else int(last or first))
        assert versions, f"{text!r} ends before it begins"
        return versions

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __bool__(self) -> bool:
        return self.first <= self.last

    def intersection(self, other: "VersionRange") -> "VersionRange":
        """Return the versions that both contain."""
        both = VersionRange(max(self.first, other.first), min(self.last, other.last))
        return both if both else NO_VERSIONS

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.last == LAST_VERSION:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NO_VERSIONS = VersionRange(0, -1)
ALL_VERSIONS = VersionRange(0, LAST_VERSION)


class Primitive(Enum):
    """A primitive wire type; the value is Kafka's name of it."""

    BOOLEAN = "bool"
    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    FLOAT64 = "float64"
    UUID = "uuid"
    STRING = "string"
    USTRING = "ustring"
    """ZooKeeper's string type: text after a length of four bytes."""
    BYTES = "bytes"
    RECORDS = "records"


TEXT_TYPES: Final = (Primitive.STRING, Primitive.USTRING)
INTEGER_RANGES: Final[Mapping[Primitive, tuple[int, int]]] = {
    Primitive.INT8: (-(1 << 7), (1 << 7) - 1),
    Primitive.INT16: (-(1 << 15), (1 << 15) - 1),
    Primitive.UINT16: (0, (1 << 16) - 1),
    Primitive.INT32: (-(1 << 31), (1 << 31) - 1),
    Primitive.UINT32: (0, (1 << 32) - 1),
    Primitive.INT64: (-(1 << 63), (1 << 63) - 1),
}
"""The lowest and the highest value of each kind of integer."""


@dataclass(frozen=True, slots=True)
class StructureOf:
    """A nested structure, with the class that declares it."""

    structure: type


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """A list of elements of one type."""

    element: Primitive | StructureOf


WireType = Primitive | StructureOf | ArrayOf


class Fresh(Enum):
    """A default that is created for each message, because it is mutable."""

    LIST = "[]"
    STRUCTURE = "all defaults"


Scalar = bool | int | float | str | bytes


Arguments: TypeAlias = Mapping[str, Any]
"""The keywords of a field function, which are checked there."""
Scope: TypeAlias = dict[str, Any]
"""The names of generated code."""


@dataclass(frozen=True, slots=True)
class FieldCall:
    """A field as the class body declares it: the wire type, and the arguments as they were
    given.
    """

    type: WireType
    default: Scalar | Fresh | None
    nullable: str | None
    options: Arguments

    def text(self) -> str:
        """Return everything that determines the construct, except for nested structures, which have
        texts of their own.
        """
        default = (
            int(self.default)
            if isinstance(self.default, int) and not isinstance(self.default, bool)
            else self.default
        )
        kind = self.type.element if isinstance(self.type, ArrayOf) else self.type
        name = kind.value if isinstance(kind, Primitive) else "structure"
        return (
            f"{type(self.type).__name__} {name} {default!r} {self.nullable} "
            f"{sorted(self.options.items())}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A message or structure: its name in Kafka, its versions, its fields in wire order.

    A structure has kind "structure" and no versions of its own: its fields count in the versions of
    the message around it.
    """

    name: str
    kind: Kind
    api_key: int | None
    versions: VersionRange
    flexible: VersionRange
    calls: Mapping[str, FieldCall]
    digest: str
    """Of the content of this declaration and of those of all nested structures: two equal ones have
    the same codecs.
    """
    latest_unstable: bool = False


class UnknownVersion(ValueError):
    """A version that a message does not declare."""

    def __init__(self, name: str, versions: VersionRange, version: int) -> None:
        super().__init__(name, versions, version)
        self.name = name
        self.versions = versions
        self.version = version

    def __str__(self) -> str:
        return f"{self.name} has versions {self.versions}, not {self.version}"


def snake_case(kafka_name: str) -> str:
    """Return our name of a field, derived from Kafka's: `ProducerId` -> `producer_id`,
    `isKRaftController` -> `is_k_raft_controller`.
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kafka_name).lower()


def pascal_case(name: str) -> str:
    """Return Kafka's usual name of a field, given ours: `producer_id` -> `ProducerId`."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def declaration_of(cls: type) -> Declaration:
    """Return the declaration of a class made by @message or @structure."""
    declaration = getattr(cls, "__declaration__", None)
    assert isinstance(declaration, Declaration), (
        f"{cls.__name__} is neither a @message nor a @structure"
    )
    return declaration


def nested_structure(call: FieldCall) -> type | None:
    """Return the class of the structure, or of the elements, of a field."""
    kind = call.type.element if isinstance(call.type, ArrayOf) else call.type
    return kind.structure if isinstance(kind, StructureOf) else None


def classes_of(cls: type) -> tuple[type, ...]:
    """Return a message class and those of all its structures, in the order of their first use:
    generated code names them by this order.
    """
    found: dict[type, None] = {}
    _collect(cls, found)
    return tuple(found)


def _collect(cls: type, found: dict[type, None]) -> None:
    if cls in found:
        return
    found[cls] = None
    for call in declaration_of(cls).calls.values():
        structure = nested_structure(call)
        if structure is not None:
            _collect(structure, found)

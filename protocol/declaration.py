"""The declaration of a message: its fields, and in which versions each of them is on the wire.

One declaration serves all versions of a message; `resolve` turns it into the layout of one version,
the drift check compares it with Kafka's own.
Source: the JSON message definitions of Apache Kafka
(clients/src/main/resources/common/message/README.md).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

LAST_VERSION = 32767

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a message or structure, over all versions.

    It exists in `versions`; in `tagged` it is a tagged field with the number `tag`; in `nullable`
    it may be None. `flexible` overrides where its own encoding is compact (None: like the message).
    `ignorable`: dropped silently in versions that lack it.
    """

    name: str
    kafka_name: str
    type: WireType
    versions: VersionRange = ALL_VERSIONS
    nullable: VersionRange = NO_VERSIONS
    default: Scalar | Fresh | None
    tag: int | None = None
    tagged: VersionRange = NO_VERSIONS
    ignorable: bool = False
    flexible: VersionRange | None = None

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
    fields: tuple[Field, ...]
    latest_unstable: bool = False


def snake_case(kafka_name: str) -> str:
    """Return our name of a field, derived from Kafka's: `ProducerId` -> `producer_id`,
    `isKRaftController` -> `is_k_raft_controller`.
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kafka_name).lower()


def pascal_case(name: str) -> str:
    """Return Kafka's usual name of a field, given ours: `producer_id` -> `ProducerId`."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def _kafka_type(wire_type: WireType) -> str:
    match wire_type:
        case Primitive():
            return str(wire_type.value)
        case ArrayOf(element):
            return "[]" + _kafka_type(element)
        case StructureOf(structure):
            declaration: Declaration = structure.__declaration__  # type: ignore[attr-defined]
            return declaration.name

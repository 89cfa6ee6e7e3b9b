"""The language in which messages are declared: one class per message, for all its versions.

    @message(key=22, versions="0-5", flexible="2+")
    class InitProducerIdRequest:
        transactional_id: str | None = string(nullable="0+")
        transaction_timeout_ms: int = int32()
        producer_id: int = int64(since=3, default=-1)

The keywords are those of Kafka's definitions, so that the two can be compared line by line. The
resulting class is mutable and slotted, has a keyword-only `__init__` in which every field has its
default, `==` and `repr` over the fields, and stores unknown tagged fields does not know in `_tags`
(number -> raw bytes, or None).
Source: clients/src/main/resources/common/message/README.md; KIP-482 (tagged fields).
"""

from collections.abc import Callable
from typing import Literal, TypedDict, TypeVar, Unpack, cast, dataclass_transform, overload

from protocol.codec.declaration import (
    ALL_VERSIONS,
    ArrayOf,
    Declaration,
    FieldCall,
    Fresh,
    Kind,
    Message,
    Primitive,
    Scalar,
    StructureOf,
    VersionRange,
    WireType,
    declaration_of,
    snake_case,
)
from protocol.codec.message_class import message_class

__all__ = [
    "Declaration",
    "Message",
    "VersionRange",
    "array",
    "boolean",
    "byte_string",
    "declaration_of",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "message",
    "records",
    "snake_case",
    "string",
    "struct",
    "structure",
    "uint16",
    "uint32",
    "ustring",
    "uuid",
]

T = TypeVar("T")

ZERO_UUID = bytes(16)


class Options(TypedDict, total=False):
    """Keywords that every field takes.

    Ranges are written as Kafka writes them: "0-5", "3+", "4", "none".
    """

    since: int
    """First version that has the field."""
    until: int
    """Last version that has the field (inclusive)."""
    versions: str
    """Both at once, instead of `since` and `until`."""
    tag: int
    """Number of the tagged field."""
    tagged: str
    """Versions in which the field is a tagged one; also its `versions` if those are not given."""
    ignorable: bool
    """In a version that lacks the field any value is dropped silently; otherwise a non-default
    value is an error.
    """
    flexible: str
    """Versions in which the field's own encoding is compact, where that differs from the
    message's.
    """
    kafka_name: str
    """Kafka's name, if it differs from that derived from ours."""


@dataclass_transform(kw_only_default=True)
def message(
    *,
    key: int | None = None,
    kind: Kind | None = None,
    versions: str,
    flexible: str = "none",
    latest_unstable: bool = False,
    kafka_name: str | None = None,
) -> Callable[[type[T]], type[T]]:
    """Create a message from a class whose attributes are fields.

    `kind` is optional for classes called ...Request and ...Response.
    """

    def declare(body: type[T]) -> type[T]:
        return message_class(
            body,
            name=kafka_name or body.__name__,
            kind=kind or _kind_by_name(body.__name__),
            api_key=key,
            versions=VersionRange.parse(versions),
            flexible=VersionRange.parse(flexible),
            latest_unstable=latest_unstable,
        )

    return declare


@overload
def structure(body: type[T], /) -> type[T]: ...
@overload
def structure(*, kafka_name: str) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(kw_only_default=True)
def structure(
    body: type[T] | None = None, /, *, kafka_name: str | None = None
) -> type[T] | Callable[[type[T]], type[T]]:
    """Create a nested structure from a class whose attributes are fields; `kafka_name` if two
    structures of one file share Kafka's name.
    """

    def declare(body: type[T]) -> type[T]:
        return message_class(
            body,
            name=kafka_name or body.__name__,
            kind="structure",
            api_key=None,
            versions=ALL_VERSIONS,
            flexible=ALL_VERSIONS,
        )

    return declare if body is None else declare(body)


def boolean(*, default: bool = False, **options: Unpack[Options]) -> bool:
    """One byte, 0 or 1."""
    return _field(Primitive.BOOLEAN, default, options)


def int8(*, default: int = 0, **options: Unpack[Options]) -> int:
    """A signed byte."""
    return _field(Primitive.INT8, default, options)


def int16(*, default: int = 0, **options: Unpack[Options]) -> int:
    """Two bytes, signed."""
    return _field(Primitive.INT16, default, options)


def uint16(*, default: int = 0, **options: Unpack[Options]) -> int:
    """Two bytes, unsigned."""
    return _field(Primitive.UINT16, default, options)


def int32(*, default: int = 0, **options: Unpack[Options]) -> int:
    """Four bytes, signed."""
    return _field(Primitive.INT32, default, options)


def uint32(*, default: int = 0, **options: Unpack[Options]) -> int:
    """Four bytes, unsigned."""
    return _field(Primitive.UINT32, default, options)


def int64(*, default: int = 0, **options: Unpack[Options]) -> int:
    """Eight bytes, signed."""
    return _field(Primitive.INT64, default, options)


def float64(*, default: float = 0.0, **options: Unpack[Options]) -> float:
    """An IEEE 754 double."""
    return _field(Primitive.FLOAT64, default, options)


def uuid(*, default: bytes = ZERO_UUID, **options: Unpack[Options]) -> bytes:
    """Sixteen raw bytes."""
    return _field(Primitive.UUID, default, options)


@overload
def string(*, default: str = "", **options: Unpack[Options]) -> str: ...
@overload
def string(
    *, nullable: str, default: str | None = "", **options: Unpack[Options]
) -> str | None: ...
def string(
    *, nullable: str | None = None, default: str | None = "", **options: Unpack[Options]
) -> str | None:
    """UTF-8 text of at most 32767 bytes."""
    return _field(Primitive.STRING, default, options, nullable)


@overload
def ustring(*, default: str = "", **options: Unpack[Options]) -> str: ...
@overload
def ustring(
    *, nullable: str, default: str | None = "", **options: Unpack[Options]
) -> str | None: ...
def ustring(
    *, nullable: str | None = None, default: str | None = "", **options: Unpack[Options]
) -> str | None:
    """UTF-8 text after a length of four bytes, as ZooKeeper writes it."""
    return _field(Primitive.USTRING, default, options, nullable)


@overload
def byte_string(*, default: bytes = b"", **options: Unpack[Options]) -> bytes: ...
@overload
def byte_string(
    *, nullable: str, default: bytes | None = b"", **options: Unpack[Options]
) -> bytes | None: ...
def byte_string(
    *, nullable: str | None = None, default: bytes | None = b"", **options: Unpack[Options]
) -> bytes | None:
    """Bytes that are opaque to the protocol."""
    return _field(Primitive.BYTES, default, options, nullable)


def records(
    *, nullable: str | None = None, **options: Unpack[Options]
) -> bytes | memoryview | None:
    """Record batches: never copied, decoded as a memoryview into the frame; None unless given."""
    return cast("bytes | memoryview | None", _field(Primitive.RECORDS, None, options, nullable))


@overload
def array(of: Callable[..., T], **options: Unpack[Options]) -> list[T]: ...
@overload
def array(
    of: Callable[..., T], *, nullable: str, default: None = None, **options: Unpack[Options]
) -> list[T] | None: ...
@overload
def array(
    of: Callable[..., T], *, nullable: str, default: tuple[()], **options: Unpack[Options]
) -> list[T] | None: ...
def array(
    of: Callable[..., T],
    *,
    nullable: str | None = None,
    default: tuple[()] | None = (),
    **options: Unpack[Options],
) -> list[T] | None:
    """A list; `of` is a @structure class or one of the functions above: `array(int32)`.

    The default is an empty list, or None if declared.
    """
    element = StructureOf(of) if isinstance(of, type) else _PRIMITIVES[of]
    return cast(
        "list[T] | None",
        _field(ArrayOf(element), Fresh.LIST if default == () else None, options, nullable),
    )


@overload
def struct(of: type[T], **options: Unpack[Options]) -> T: ...
@overload
def struct(
    of: type[T], *, nullable: str, default: None, **options: Unpack[Options]
) -> T | None: ...
@overload
def struct(of: type[T], *, nullable: str, **options: Unpack[Options]) -> T | None: ...
def struct(
    of: type[T],
    *,
    nullable: str | None = None,
    default: Literal[Fresh.STRUCTURE] | None = Fresh.STRUCTURE,
    **options: Unpack[Options],
) -> T | None:
    """A nested structure; the default is one with all its own defaults, or None if declared."""
    return cast("T | None", _field(StructureOf(of), default, options, nullable))


_PRIMITIVES: dict[Callable[..., object], Primitive] = {
    boolean: Primitive.BOOLEAN,
    int8: Primitive.INT8,
    int16: Primitive.INT16,
    uint16: Primitive.UINT16,
    int32: Primitive.INT32,
    uint32: Primitive.UINT32,
    int64: Primitive.INT64,
    float64: Primitive.FLOAT64,
    uuid: Primitive.UUID,
    string: Primitive.STRING,
    ustring: Primitive.USTRING,
    byte_string: Primitive.BYTES,
}
"""The element types of `array(...)` besides structures."""


def _field(wire_type: WireType, default: T, options: Options, nullable: str | None = None) -> T:
    """Return the call, which `tree.field_of` makes a construct of; for the type checker it is the
    type of the value in an object.
    """
    return cast(
        "T", FieldCall(wire_type, cast("Scalar | Fresh | None", default), nullable, options)
    )


def _kind_by_name(name: str) -> Kind:
    if name.endswith("Request"):
        return "request"
    assert name.endswith("Response"), f"say which kind of message {name} is"
    return "response"

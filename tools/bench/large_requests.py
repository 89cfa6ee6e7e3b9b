"""Requests with many entries: one for each array of each API.

The list is generated from the message declarations, so it includes the arrays of new APIs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from protocol.api_keys import ApiKey
from protocol.codec.declaration import Primitive
from protocol.codec.tree import ArrayLayout, PresentField, StructureLayout, default_of, layout_of
from protocol.messages import registry
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.schema import Message

TOPIC: Final = "large"
"""A topic with PARTITIONS partitions; used for every single name in a request."""
PARTITIONS: Final = 100
UUID_BYTES: Final = 16
NOW: Final = 1_700_000_000_000
USUAL: Final[Mapping[str, object]] = {
    "acks": -1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "group_instance_id": None,
    "iterations": 4096,
    "max_bytes": 1 << 20,
    "max_timestamp": 0,
    "mechanism": 1,
    "member_epoch": 0,
    "member_id": "",
    "new_partition_count": 1,
    "num_partitions": 1,
    "operation": 2,
    "partition_max_bytes": 1 << 20,
    "pattern_type_filter": 1,
    "permission_type": 3,
    "permission_type_filter": 3,
    "principal": "User:large",
    "producer_epoch": 0,
    "producer_id": 0,
    "protocol_type": "consumer",
    "rebalance_timeout_ms": 10_000,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_pattern_type": 3,
    "resource_type": 2,
    "resource_type_filter": 2,
    "session_timeout_ms": 10_000,
    "timeout_ms": 10_000,
    "transaction_timeout_ms": 60_000,
    "validate_only": True,
}
"""Field values with which a request is not rejected at once; all other fields have their default, 0
or TOPIC.
"""


@dataclass(frozen=True, slots=True)
class LargeRequest:
    """A request with any number of entries in the field `array`."""

    api_key: ApiKey
    version: int
    array: str
    of: Callable[[int], Message]

    @property
    def label(self) -> str:
        """Return API, version and array."""
        return f"{self.api_key.name} v{self.version} {self.array}"


def every_array(api_key: ApiKey, version: int) -> Iterator[LargeRequest]:
    """Return one large request for each array of an API at a version."""
    layout = layout_of(registry.request_class(api_key), version)
    for path in _arrays(layout):
        yield LargeRequest(
            api_key,
            version,
            ".".join(path),
            # misc: mypy infers no type for a lambda with a default
            lambda count, path=path: _message(layout, path, count, 0),  # type: ignore[misc]
        )


def _arrays(layout: StructureLayout) -> Iterator[tuple[str, ...]]:
    """Return the path of each array in a structure, outer ones first."""
    for field in (*layout.fields, *layout.tags):
        match field.type:
            case ArrayLayout(StructureLayout() as element):
                yield (field.name,)
                yield from ((field.name, *inner) for inner in _arrays(element))
            case ArrayLayout():
                yield (field.name,)
            case StructureLayout() as structure:
                yield from ((field.name, *inner) for inner in _arrays(structure))
            case _:
                pass


def _message(layout: StructureLayout, path: tuple[str, ...], count: int, index: int) -> Message:
    """Return a structure whose array at `path` has `count` entries; `index` makes its keys
    unique.
    """
    values = {field.name: _value(field, path, count, index) for field in layout.fields}
    values |= {
        field.name: _value(field, path, count, index)
        for field in layout.tags
        if path and field.name == path[0]
    }
    made: Message = layout.cls(**values)
    return made


def _value(field: PresentField, path: tuple[str, ...], count: int, index: int) -> object:
    is_on_path = bool(path) and field.name == path[0]
    rest = path[1:] if is_on_path else ()
    match field.type:
        case StructureLayout() as layout:
            return _message(layout, rest, count, index)
        case ArrayLayout(element):
            entries = count if is_on_path and not rest else 1
            if isinstance(element, StructureLayout):
                return [_message(element, rest, count, number) for number in range(entries)]
            return [_scalar(element, field.name, number) for number in range(entries)]
        case Primitive() as primitive:
            if index == 0 and field.name in USUAL:
                return USUAL[field.name]
            if primitive in (Primitive.STRING, Primitive.UUID) or _is_key(field.name):
                return _scalar(primitive, field.name, index)
            if field.name in USUAL:
                return USUAL[field.name]
            default = default_of(field.declared)
            return (
                default
                if default is not None or field.nullable
                else _scalar(primitive, field.name, index)
            )
    raise AssertionError(f"{field.name} has no wire type")


def _is_key(name: str) -> bool:
    """Return whether a number is a key of the entries."""
    return name.endswith(("index", "partition", "partition_id", "broker_id")) or name == "records"


def _scalar(primitive: Primitive, name: str, index: int) -> object:
    match primitive:
        case Primitive.STRING:
            return f"{TOPIC}-{index}" if index else str(USUAL.get(name, TOPIC) or TOPIC)
        case Primitive.UUID:
            return (index + 1).to_bytes(UUID_BYTES)
        case Primitive.BYTES:
            return b""
        case Primitive.RECORDS:
            return build_batch([Record(timestamp=NOW, key=b"key", value=b"value")])
        case Primitive.BOOLEAN:
            return False
        case Primitive.INT8:
            return index % 100
        case Primitive.INT16:
            return index % 30_000
        case _:
            return index

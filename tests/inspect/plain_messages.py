"""Meaningful values for any message: small numbers, short words, real record batches; full, with
nulls, or empty.

`protocol.examples` generates arbitrary values, which a dissector that interprets nested data
(subscriptions, message sets) reports as malformed.
"""

from enum import Enum

from protocol.codec.declaration import Primitive
from protocol.codec.tree import ArrayLayout, PresentField, StructureLayout
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.batches import build_batch
from protocol.records.message_sets import build_message_set
from protocol.records.record import Record
from protocol.requests import request_chunks, response_chunks
from protocol.schema import Message
from protocol.version_prefixed import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    DefaultPrincipalData,
    build_assignment,
    build_subscription,
    build_version_prefixed,
)

RECORDS = [Record(timestamp=1_700_000_000_000, key=b"key", value=b"value")]
SUBSCRIPTION = build_subscription(ConsumerProtocolSubscription(topics=["text"]), 0)
ASSIGNMENT = build_assignment(
    ConsumerProtocolAssignment(
        assigned_partitions=[AssignedPartitions(topic="text", partitions=[1])]
    ),
    0,
)
PRINCIPAL = build_version_prefixed(DefaultPrincipalData(principal_type="User", name="text"), 0)
FORWARDED = b"".join(request_chunks(22, 4, 1, "me", InitProducerIdRequest()))[4:]
ANSWERED = b"".join(response_chunks(22, 4, 1, InitProducerIdResponse()))[4:]
BYTES_FIELDS = {
    "metadata": SUBSCRIPTION,
    "member_metadata": SUBSCRIPTION,
    "assignment": ASSIGNMENT,
    "member_assignment": ASSIGNMENT,
    "request_principal": PRINCIPAL,
    "request_data": FORWARDED,
    "response_data": ANSWERED,
}
FIRST_BATCHES = {0: 3, 1: 4}
"""By API key, the first version with batches of format 2; earlier versions have message sets of
format 1, those before version 2 of format 0.
"""


class Shape(Enum):
    """How a message is filled."""

    FULL = "full"
    NULLS = "nulls"
    EMPTY = "empty"


def plain(layout: StructureLayout, shape: Shape, api_key: int) -> Message:
    """Return a message: arrays have two elements, or none if it is to be empty; nullable fields are
    null if requested.
    """
    return layout.cls(
        **{
            field.name: _value(field, shape, api_key, layout.version)
            for field in (*layout.fields, *layout.tags)
        }
    )


def _value(field: PresentField, shape: Shape, api_key: int, version: int) -> object:
    if field.nullable and shape is Shape.NULLS:
        return None
    match field.type:
        case StructureLayout() as layout:
            return plain(layout, shape, api_key)
        case ArrayLayout(element):
            if shape is Shape.EMPTY:
                return []
            if isinstance(element, StructureLayout):
                return [plain(element, shape, api_key) for _ in range(2)]
            return [_primitive(element, field.name, api_key, version) for _ in range(2)]
        case Primitive() as primitive:
            return _primitive(primitive, field.name, api_key, version)
    raise AssertionError(f"{field.name} has no wire type")


def _primitive(primitive: Primitive, name: str, api_key: int, version: int) -> object:
    match primitive:
        case Primitive.BOOLEAN:
            return True
        case Primitive.FLOAT64:
            return 1.5
        case Primitive.UUID:
            return bytes(range(16))
        case Primitive.STRING:
            return "text"
        case Primitive.BYTES:
            return BYTES_FIELDS.get(name, b"bytes")
        case Primitive.RECORDS:
            is_old = version < FIRST_BATCHES.get(api_key, 0)
            return (
                build_message_set(RECORDS, magic=min(1, version // 2))
                if is_old
                else build_batch(RECORDS)
            )
        case _:
            return 1

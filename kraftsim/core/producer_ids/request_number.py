"""The number by which a controller recognizes a repeated AllocateProducerIds: a tagged field that no shipped request has.

A controller that does not know the field ignores it, so that numbered requests can be sent to any.
Source: KIP-730 (rejected alternative "Idempotent RPC"), KIP-482 (tagged fields).
"""

from typing import Final

from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from protocol.schema import Message

REQUEST_NUMBER_TAG: Final = 7300
"""Far above the tags that Kafka uses so far."""
NUMBER_BYTES: Final = 8


def numbered(request: AllocateProducerIdsRequest, number: int) -> AllocateProducerIdsRequest:
    """Return the request with a number; `number` is at least 0."""
    message: Message = request
    message._tags = {REQUEST_NUMBER_TAG: number.to_bytes(NUMBER_BYTES)}
    return request


def number_of(request: AllocateProducerIdsRequest) -> int | None:
    """Return the number of a request; None if it has none, or the field is malformed."""
    message: Message = request
    content: bytes | None = (message._tags or {}).get(REQUEST_NUMBER_TAG)
    return int.from_bytes(content) if content is not None and len(content) == NUMBER_BYTES else None

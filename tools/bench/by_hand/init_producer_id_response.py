"""InitProducerIdResponse v4, by hand: one Struct."""

from struct import Struct
from struct import error as struct_error

from protocol.codec.slow import keep_tags
from protocol.malformed import MalformedMessage
from protocol.messages.k22_init_producer_id import InitProducerIdResponse
from protocol.schema import Message
from tools.bench.by_hand.parts import new, tags_of

unpack = Struct(">ihqhB").unpack_from
pack = Struct(">ihqhx").pack


def decode(buffer: bytes, position: int = 0) -> tuple[InitProducerIdResponse, int]:
    """Read an InitProducerIdResponse v4."""
    it = new(InitProducerIdResponse)
    try:
        it.throttle_time_ms, it.error_code, it.producer_id, it.producer_epoch, tags = unpack(
            buffer, position
        )
        it.ongoing_txn_producer_id = it.ongoing_txn_producer_epoch = -1
        position += 17
        if tags:
            return it, keep_tags(tags, buffer, position, it)
    except (struct_error, IndexError, ValueError) as error:
        raise MalformedMessage(22, 4, "", str(error)) from error
    it._tags = None
    return it, position


def encode(it: Message) -> bytes:
    """Write an InitProducerIdResponse v4."""
    try:
        if it.ongoing_txn_producer_id != -1 or it.ongoing_txn_producer_epoch != -1:
            raise ValueError("a field is set that version 4 lacks")
        content = pack(it.throttle_time_ms, it.error_code, it.producer_id, it.producer_epoch)
        return content if it._tags is None else content[:-1] + tags_of(it)
    except (struct_error, AttributeError, TypeError, ValueError) as error:
        raise MalformedMessage(22, 4, "", str(error)) from error

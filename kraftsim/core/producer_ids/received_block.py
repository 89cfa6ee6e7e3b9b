"""Validation of an AllocateProducerIds response on the broker.

A block that starts before the end of the current one, or that exceeds int64, would duplicate ids; it is dropped.
Source: RPCProducerIdManager.handleAllocateProducerIdsResponse.
"""

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_ids.block import LAST_PRODUCER_ID, ProducerIdBlock
from protocol.errors import ErrorCode


def received_block(error_code: int, first_producer_id: int, size: int, current: ProducerIdBlock) -> ProducerIdBlock | Refusal:
    """Return the received block, or the error. (Up to 3.9 it may start *at* the last id of the current one.)"""
    if error_code != ErrorCode.NONE:
        return Refusal(_known_error(error_code), "error response of the controller")
    if first_producer_id < current.last_producer_id:
        why = f"block at {first_producer_id} starts before {current.last_producer_id}, the last id of the current one"
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, why)
    if first_producer_id < 0 or size < 0 or first_producer_id > LAST_PRODUCER_ID - size:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"block at {first_producer_id} of {size} ids exceeds the range of producer ids")
    return ProducerIdBlock(first_producer_id=first_producer_id, size=size)


def _known_error(error_code: int) -> ErrorCode:
    try:
        return ErrorCode(error_code)
    except ValueError:  # an unknown error code
        return ErrorCode.UNKNOWN_SERVER_ERROR

"""Whether a broker may take what a controller answered to AllocateProducerIds.

A block that begins before the end of the one in use, or that leaves the range of an int64, would hand ids out twice; it is dropped.
Source: RPCProducerIdManager.handleAllocateProducerIdsResponse.
"""

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_ids.block import LAST_PRODUCER_ID, ProducerIdBlock
from protocol.errors import ErrorCode


def received_block(error_code: int, first_producer_id: int, size: int, current: ProducerIdBlock) -> ProducerIdBlock | Refusal:
    """Return the block that was answered, or why there is none to use. (Up to 3.9 it may begin *at* the last id of the current one.)"""
    if error_code != ErrorCode.NONE:
        return Refusal(_known_error(error_code), "answered by the controller")
    if first_producer_id < current.last_producer_id:
        why = f"block at {first_producer_id} begins before {current.last_producer_id}, the last id of the current one"
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, why)
    if first_producer_id < 0 or size < 0 or first_producer_id > LAST_PRODUCER_ID - size:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"block at {first_producer_id} of {size} ids leaves the range of producer ids")
    return ProducerIdBlock(first_producer_id=first_producer_id, size=size)


def _known_error(error_code: int) -> ErrorCode:
    try:
        return ErrorCode(error_code)
    except ValueError:  # a code from the future
        return ErrorCode.UNKNOWN_SERVER_ERROR

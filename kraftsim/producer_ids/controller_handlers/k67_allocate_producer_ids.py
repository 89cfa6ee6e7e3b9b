"""AllocateProducerIds (67): allocates the next block of producer ids to a broker, once its record
is committed.

A block whose response was lost is never allocated again: a retry gets the next one. Fenced brokers
are served, too. A broker above its request_percentage is served, and then throttled.
Source: KIP-730, kafka.server.ControllerApis.handleAllocateProducerIdsRequest.
"""

from typing import Protocol

from kraftsim.core.decision import Refusal
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.metadata.metadata_writer import AppendedOffsets
from kraftsim.producer_ids.controller import BlockLimits
from kraftsim.producer_ids.events import ProducerIdBlockAllocated
from kraftsim.producer_ids.rules_allocation import number_of
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


class RequestCharges(Protocol):
    """The request quotas of a controller (request_percentage)."""

    def charge(self, call: Call, took_ns: int) -> int:
        """Charge the processing time of a request; return the throttle time in milliseconds."""
        ...


class AllocatingController(DecidingController, Protocol):
    """A controller that allocates producer-id blocks."""

    @property
    def block_limits(self) -> BlockLimits:
        """How often a broker may allocate."""
        ...

    @property
    def request_quotas(self) -> RequestCharges:
        """The request quotas of brokers."""
        ...


def handle(controller: AllocatingController, call: Call) -> Answer | Deferred:
    """Refuse immediately, or answer when the block is committed."""
    request = call.body
    assert isinstance(request, AllocateProducerIdsRequest), "dispatch decodes by API key"
    pause_ms = controller.block_limits.pause_ms(request.broker_id)
    if pause_ms:
        return AllocateProducerIdsResponse(
            error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, throttle_time_ms=pause_ms
        )
    clock = controller.world.clock
    began_ns = clock.monotonic_ns()
    decision = controller.metadata_writer.state.producer_ids.decide_allocate(
        request.broker_id, request.broker_epoch, number_of(request)
    )
    if isinstance(decision, Refusal):
        return AllocateProducerIdsResponse(error_code=decision.error)
    block = decision.result
    took_ns: int | None = None

    def answer(offsets: AppendedOffsets | None) -> Answer:
        if offsets is not None:  # no record is written for a repeated answer
            controller.world.emit(
                ProducerIdBlockAllocated(
                    broker_id=request.broker_id,
                    broker_epoch=request.broker_epoch,
                    first_producer_id=block.first_producer_id,
                    next_producer_id=block.next_producer_id,
                    offset=offsets.first_offset,
                )
            )
        spent_ns = (
            took_ns if took_ns is not None else clock.monotonic_ns() - began_ns
        )  # excludes the time to commit
        pause_ms = controller.request_quotas.charge(call, spent_ns)
        return AllocateProducerIdsResponse(
            throttle_time_ms=pause_ms,
            producer_id_start=block.first_producer_id,
            producer_id_len=block.size,
        )

    committed = controller.metadata_writer.commit(decision, answer)
    took_ns = clock.monotonic_ns() - began_ns
    return committed


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return AllocateProducerIdsResponse(error_code=error)


HANDLER: Handler[AllocatingController] = Handler(
    key=ApiKey.ALLOCATE_PRODUCER_IDS, handle=handle, refuse=_refuse
)

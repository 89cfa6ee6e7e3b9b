"""The block client of a broker since 3.6: it prefetches the next block, and clients never wait.

Holding requests back for up to 30 s made clients time out or pile up; with COORDINATOR_LOAD_IN_PROGRESS they retry.
Source: KAFKA-14694, RPCProducerIdManager of 3.6 to 3.9.
"""

from collections.abc import Callable

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_ids.block import EMPTY_BLOCK, ProducerId, ProducerIdBlock
from kraftsim.core.producer_ids.received_block import received_block
from kraftsim.core.producer_ids.source import Effect, SendAllocate, Waiting
from kraftsim.events.event import Event
from kraftsim.events.producer_ids import ProducerIdBlockReceived, ProducerIdBlockRefused, ProducerIdBlockRequested
from protocol.errors import ErrorCode

ITERATIONS_MAX = 3
"""The maximum number of blocks per claim, if they are all empty (IterationLimit)."""

RETRY_BACKOFF_MS = 50
"""RetryBackoffMs."""


class PrefetchingBlockClient:
    """Uses one block while at most one more is requested or received.

    `broker_epoch()` is the current epoch of this broker's registration (-1 before it has one).
    """

    def __init__(self, *, broker_epoch: Callable[[], int], emit: Callable[[Event], None]) -> None:
        self._broker_epoch = broker_epoch
        self._emit = emit
        self._current = EMPTY_BLOCK
        self._following_producer_id = EMPTY_BLOCK.next_producer_id
        self._stock: ProducerIdBlock | None = None
        self._request_in_flight = False
        """True from the request until the received block is in use: so there is never more than one block in reserve."""
        self._backoff_until_ms: int | None = None
        self._effects: list[Effect] = []

    def claim(self, now_ms: int) -> ProducerId | Refusal | Waiting:
        """Return the next id, or COORDINATOR_LOAD_IN_PROGRESS until the next block is received. Never Waiting."""
        for _ in range(ITERATIONS_MAX):
            if self._following_producer_id <= self._current.last_producer_id:
                return self._hand_out(now_ms)
            if self._stock is None:
                self._maybe_request(now_ms)
                break
            self._use(self._stock)
        return Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the next block of producer ids is not received yet")

    def on_response(self, error_code: int, first_producer_id: int, size: int, now_ms: int) -> None:
        """Store the block; after an error or an invalid block, back off for 50 ms. Does not send a new request."""
        match answer := received_block(error_code, first_producer_id, size, self._current):
            case Refusal():
                self._emit(ProducerIdBlockRefused(error_code=answer.error, reason=answer.why))
                self._backoff_until_ms = now_ms + RETRY_BACKOFF_MS
                self._request_in_flight = False
            case ProducerIdBlock():
                self._emit(ProducerIdBlockReceived(first_producer_id=answer.first_producer_id, next_producer_id=answer.next_producer_id))
                self._stock = answer

    def on_timeout(self, now_ms: int) -> None:
        """Let the next claim that needs a block send a request, without backoff."""
        self._emit(ProducerIdBlockRefused(error_code=ErrorCode.REQUEST_TIMED_OUT, reason="the request to the controller timed out"))
        self._request_in_flight = False

    def on_wake(self, now_ms: int) -> None:
        """Do nothing: no client waits."""

    def take_effects(self) -> list[Effect]:
        """Take the effects that are due."""
        effects, self._effects = self._effects, []
        return effects

    def _hand_out(self, now_ms: int) -> ProducerId:
        producer_id = self._following_producer_id
        self._following_producer_id += 1
        if self._asks_ahead(ProducerId(producer_id)):
            self._maybe_request(now_ms)
        return ProducerId(producer_id)

    def _asks_ahead(self, producer_id: ProducerId) -> bool:
        """Return whether an id is the prefetch threshold."""
        return (
            producer_id == self._current.prefetch_producer_id
        )  # equal, not beyond: one prefetch per block; after a failed one the next request is at its end

    def _use(self, block: ProducerIdBlock) -> None:
        self._current = block
        self._following_producer_id = block.first_producer_id
        self._stock = None
        self._request_in_flight = False

    def _maybe_request(self, now_ms: int) -> None:
        backs_off = self._backoff_until_ms is not None and now_ms < self._backoff_until_ms
        if backs_off or self._stock is not None or self._request_in_flight:
            return
        self._request_in_flight = True
        self._backoff_until_ms = None
        broker_epoch = self._broker_epoch()
        self._emit(ProducerIdBlockRequested(broker_epoch=broker_epoch))
        self._effects.append(SendAllocate(broker_epoch))

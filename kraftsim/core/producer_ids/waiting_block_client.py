"""The block client of a broker before 3.6: clients wait for the next block when no id is left.

Clients wait in a queue, each up to request.timeout.ms from when it is the first; the block, or the error instead of it, goes to
the first one.   Source: RPCProducerIdManager of 3.0 to 3.5; KAFKA-14417 (3.3.2, 3.4.0) for the effect of a timeout.
"""

from collections import deque
from collections.abc import Callable

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_ids.block import EMPTY_BLOCK, ProducerId, ProducerIdBlock
from kraftsim.core.producer_ids.received_block import received_block
from kraftsim.core.producer_ids.source import Complete, Effect, SendAllocate, Waiting, WakeAt
from kraftsim.events.event import Event
from kraftsim.events.producer_ids import ProducerIdBlockReceived, ProducerIdBlockRefused, ProducerIdBlockRequested
from protocol.errors import ErrorCode

RETRIED_AT_ONCE = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
"""Errors that end once the registration is complete: the request is retried without backoff."""


class WaitingBlockClient:
    """Uses one block; a slot holds the result of the next request, a block or an error.

    `max_wait_ms` is request.timeout.ms. `surfaces_timeouts`: before KAFKA-14417 a timeout was REQUEST_TIMED_OUT, which is fatal for producers.
    """

    def __init__(
        self, *, broker_epoch: Callable[[], int], emit: Callable[[Event], None], max_wait_ms: int = 30_000, surfaces_timeouts: bool = False
    ) -> None:
        self._broker_epoch = broker_epoch
        self._emit = emit
        self._max_wait_ms = max_wait_ms
        self._surfaces_timeouts = surfaces_timeouts
        self._current = EMPTY_BLOCK
        self._last_claimed: int | None = None
        """The id of the latest claim. It exceeds the block's end with every client that timed out, which is harmless."""
        self._slot: ProducerIdBlock | Refusal | None = None
        self._request_in_flight = False
        self._waiters: deque[int] = deque()
        self._waiter_count = 0
        self._first_waits_until_ms: int | None = None
        """Set once the first of the queue has found no id."""
        self._effects: list[Effect] = []

    def claim(self, now_ms: int) -> ProducerId | Refusal | Waiting:
        """Return the next id, or add the client to the queue."""
        if not self._waiters:
            result = self._look_for_id()
            if result is not None:
                return result
            self._begin_wait(now_ms)
        self._waiter_count += 1
        self._waiters.append(self._waiter_count)
        return Waiting(self._waiter_count)

    def on_response(self, error_code: int, first_producer_id: int, size: int, now_ms: int) -> None:
        """Fill the slot, or retry at once if only the registration was incomplete."""
        self._request_in_flight = False
        match answer := received_block(error_code, first_producer_id, size, self._current):
            case Refusal():
                self._emit(ProducerIdBlockRefused(error_code=answer.error, reason=answer.why))
            case ProducerIdBlock():
                self._emit(ProducerIdBlockReceived(first_producer_id=answer.first_producer_id, next_producer_id=answer.next_producer_id))
        if isinstance(answer, Refusal) and answer.error in RETRIED_AT_ONCE:
            self._maybe_request()
        else:
            self._fill_slot(answer, now_ms)

    def on_timeout(self, now_ms: int) -> None:
        """Retry; before KAFKA-14417: return the timeout to the next client."""
        self._emit(ProducerIdBlockRefused(error_code=ErrorCode.REQUEST_TIMED_OUT, reason="the request to the controller timed out"))
        self._request_in_flight = False
        if self._surfaces_timeouts:
            self._fill_slot(Refusal(ErrorCode.REQUEST_TIMED_OUT, "the controller did not answer"), now_ms)
        else:
            self._maybe_request()

    def on_wake(self, now_ms: int) -> None:
        """Time out the first of the queue if it has waited long enough; the next one starts its own wait."""
        if self._first_waits_until_ms is None or now_ms < self._first_waits_until_ms:
            return
        error = ErrorCode.REQUEST_TIMED_OUT if self._surfaces_timeouts else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._complete_first(Refusal(error, "no block of producer ids was received in time"))
        self._serve_row(now_ms)

    def take_effects(self) -> list[Effect]:
        """Take the effects that are due, in order."""
        effects, self._effects = self._effects, []
        return effects

    def _look_for_id(self) -> ProducerId | Refusal | None:
        """Look for an id for the first of the queue. None: it must wait."""
        producer_id = self._advance()
        return producer_id if producer_id is not None else self._take_slot()

    def _advance(self) -> ProducerId | None:
        """Advance to the next id; request a block from 90 % on. None: the id is beyond the block."""
        if self._last_claimed is None:
            self._maybe_request()
            self._last_claimed = 0
        else:
            self._last_claimed += 1
            if self._last_claimed >= self._current.prefetch_producer_id:
                self._maybe_request()
        return ProducerId(self._last_claimed) if self._last_claimed <= self._current.last_producer_id else None

    def _take_slot(self) -> ProducerId | Refusal | None:
        """Empty the slot: switch to its block, or return its error."""
        content, self._slot = self._slot, None
        if isinstance(content, ProducerIdBlock):
            self._current = content
            self._last_claimed = content.first_producer_id
            return ProducerId(content.first_producer_id)
        return content

    def _fill_slot(self, content: ProducerIdBlock | Refusal, now_ms: int) -> None:
        assert self._slot is None, "a request is sent only while the slot is empty"
        self._slot = content
        if self._waiters:
            result = self._take_slot()
            assert result is not None, "the slot was just filled"
            self._complete_first(result)
            self._serve_row(now_ms)

    def _complete_first(self, result: ProducerId | Refusal) -> None:
        self._effects.append(Complete(self._waiters.popleft(), result))
        self._first_waits_until_ms = None

    def _serve_row(self, now_ms: int) -> None:
        """Serve the queue until a client must wait."""
        while self._waiters:
            result = self._look_for_id()
            if result is None:
                self._begin_wait(now_ms)
                return
            self._complete_first(result)

    def _begin_wait(self, now_ms: int) -> None:
        self._first_waits_until_ms = now_ms + self._max_wait_ms
        self._effects.append(WakeAt(self._first_waits_until_ms))

    def _maybe_request(self) -> None:
        if self._slot is not None or self._request_in_flight:
            return
        self._request_in_flight = True
        broker_epoch = self._broker_epoch()
        self._emit(ProducerIdBlockRequested(broker_epoch=broker_epoch))
        self._effects.append(SendAllocate(broker_epoch))

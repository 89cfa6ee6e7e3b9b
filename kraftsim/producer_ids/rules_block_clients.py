"""The broker's side: when it requests a block, which ids it returns from it, and what happens while
no block is there.

A `ProducerIdSource` returns effects (`SendAllocate`, `CompleteRequest`, `EndBroker`);
`kraftsim.producer_ids.broker` carries them out. The variants differ in when they request: on
demand, at 90 % of the present block (as shipped since 3.0), or early.
Source: KIP-730, KAFKA-14417, KAFKA-15653; kafka.coordinator.transaction.{RPCProducerIdManager,
ZkProducerIdManager}.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.producer_ids.events import (
    ProducerIdBlockReceived,
    ProducerIdBlockRefused,
    ProducerIdBlockRequested,
)
from kraftsim.producer_ids.rules_allocation import (
    EMPTY_BLOCK,
    ProducerId,
    ProducerIdBlock,
    received_block,
)
from protocol.errors import ErrorCode

# --------------------------------------------------------------------------------------------------
# The interface of InitProducerId to a source of ids, and the effects of a source


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """The result comes later, as `CompleteRequest` with this waiter's number."""

    waiter: int


@dataclass(frozen=True, slots=True)
class SendAllocate:
    """Send AllocateProducerIds with this broker epoch; then call `on_response`, or `on_timeout` if
    the channel gives up.
    """

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class CompleteRequest:
    """Answer the waiting InitProducerId."""

    waiter: int
    result: ProducerId | Refusal


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Call `on_wake` at this time (monotonic milliseconds); spurious or late wake-ups are
    harmless.
    """

    at_ms: int


@dataclass(frozen=True, slots=True)
class EndBroker:
    """Shut the broker down: a fatal error. No shipped source returns it."""

    why: str


Effect = SendAllocate | CompleteRequest | WakeAt | EndBroker


class BlockClaim(NamedTuple):
    """The result of a claim, and the effects of the step; for Waiting, register the waiter before
    they are carried out.
    """

    result: ProducerId | Refusal | WaitingRequest
    effects: list[Effect]


class ProducerIdSource(Protocol):
    """One per broker, selected by the release's traits in `server/parts.py`. Each input returns its
    effects, in order.
    """

    def claim(self, now_ms: int) -> BlockClaim:
        """Return the next id of this broker.

        A Refusal is returned at once; for Waiting the request is held until Complete.
        """
        ...

    def on_response(
        self, error_code: int, first_producer_id: int, size: int, now_ms: int
    ) -> list[Effect]:
        """Handle the AllocateProducerIds response: ErrorCode, ProducerIdStart and ProducerIdLen."""
        ...

    def on_timeout(self, now_ms: int) -> list[Effect]:
        """Handle the timeout of AllocateProducerIds: no response will come."""
        ...

    def on_wake(self, now_ms: int) -> list[Effect]:
        """Time out the requests that have waited long enough."""
        ...


# --------------------------------------------------------------------------------------------------
# Before 3.6: clients wait for the next block when no id is left
#
# They wait in a queue, each up to request.timeout.ms from when it is the first; the block, or the
# error instead of it, goes to the first one.
# Source: RPCProducerIdManager of 3.0 to 3.5; KAFKA-14417 (3.3.2, 3.4.0) for the effect of a
# timeout.

RETRIED_AT_ONCE = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
"""Errors that end once the registration is complete: the request is retried without backoff."""


class WaitingBlockClient:
    """Uses one block; a slot holds the result of the next request, a block or an error.

    `max_wait_ms` is request.timeout.ms. `surfaces_timeouts`: before KAFKA-14417 a timeout was
    REQUEST_TIMED_OUT, which is fatal for producers.
    """

    def __init__(
        self,
        *,
        broker_epoch: Callable[[], int],
        emit: Callable[[Event], None],
        max_wait_ms: int = 30_000,
        surfaces_timeouts: bool = False,
    ) -> None:
        self._broker_epoch = broker_epoch
        self._emit = emit
        self._max_wait_ms = max_wait_ms
        self._surfaces_timeouts = surfaces_timeouts
        self._current = EMPTY_BLOCK
        self._last_claimed: int | None = None
        """The id of the latest claim.

        It exceeds the block's end with every client that timed out, which is harmless.
        """
        self._slot: ProducerIdBlock | Refusal | None = None
        self._request_in_flight = False
        self._waiters: deque[int] = deque()
        self._waiter_count = 0
        self._first_waits_until_ms: int | None = None
        """Set once the first of the queue has found no id."""

    def claim(self, now_ms: int) -> BlockClaim:
        """Return the next id, or add the client to the queue."""
        effects: list[Effect] = []
        if not self._waiters:
            result, effects = self._look_for_id()
            if result is not None:
                return BlockClaim(result, effects)
            effects.append(self._begin_wait(now_ms))
        self._waiter_count += 1
        self._waiters.append(self._waiter_count)
        return BlockClaim(WaitingRequest(self._waiter_count), effects)

    def on_response(
        self, error_code: int, first_producer_id: int, size: int, now_ms: int
    ) -> list[Effect]:
        """Fill the slot, or retry at once if only the registration was incomplete."""
        self._request_in_flight = False
        match answer := received_block(error_code, first_producer_id, size, self._current):
            case Refusal():
                self._emit(ProducerIdBlockRefused(error_code=answer.error, reason=answer.why))
            case ProducerIdBlock():
                self._emit(
                    ProducerIdBlockReceived(
                        first_producer_id=answer.first_producer_id,
                        next_producer_id=answer.next_producer_id,
                    )
                )
        if isinstance(answer, Refusal) and answer.error in RETRIED_AT_ONCE:
            return self._maybe_request()
        return self._fill_slot(answer, now_ms)

    def on_timeout(self, now_ms: int) -> list[Effect]:
        """Retry; before KAFKA-14417: return the timeout to the next client."""
        self._emit(
            ProducerIdBlockRefused(
                error_code=ErrorCode.REQUEST_TIMED_OUT,
                reason="the request to the controller timed out",
            )
        )
        self._request_in_flight = False
        if self._surfaces_timeouts:
            return self._fill_slot(
                Refusal(ErrorCode.REQUEST_TIMED_OUT, "the controller did not answer"), now_ms
            )
        return self._maybe_request()

    def on_wake(self, now_ms: int) -> list[Effect]:
        """Time out the first of the queue if it has waited long enough; the next one starts its own
        wait.
        """
        if self._first_waits_until_ms is None or now_ms < self._first_waits_until_ms:
            return []
        error = (
            ErrorCode.REQUEST_TIMED_OUT
            if self._surfaces_timeouts
            else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )
        refusal = Refusal(error, "no block of producer ids was received in time")
        return [self._complete_first(refusal), *self._serve_row(now_ms)]

    def _look_for_id(self) -> tuple[ProducerId | Refusal | None, list[Effect]]:
        """Look for an id for the first of the queue. None: it must wait."""
        producer_id, effects = self._advance()
        return producer_id if producer_id is not None else self._take_slot(), effects

    def _advance(self) -> tuple[ProducerId | None, list[Effect]]:
        """Advance to the next id; request a block from 90 % on.

        None: the id is beyond the block.
        """
        effects: list[Effect] = []
        if self._last_claimed is None:
            effects = self._maybe_request()
            self._last_claimed = 0
        else:
            self._last_claimed += 1
            if self._last_claimed >= self._current.prefetch_producer_id:
                effects = self._maybe_request()
        return (
            ProducerId(self._last_claimed)
            if self._last_claimed <= self._current.last_producer_id
            else None
        ), effects

    def _take_slot(self) -> ProducerId | Refusal | None:
        """Empty the slot: switch to its block, or return its error."""
        content, self._slot = self._slot, None
        if isinstance(content, ProducerIdBlock):
            self._current = content
            self._last_claimed = content.first_producer_id
            return ProducerId(content.first_producer_id)
        return content

    def _fill_slot(self, content: ProducerIdBlock | Refusal, now_ms: int) -> list[Effect]:
        assert self._slot is None, "a request is sent only while the slot is empty"
        self._slot = content
        if not self._waiters:
            return []
        result = self._take_slot()
        assert result is not None, "the slot was just filled"
        return [self._complete_first(result), *self._serve_row(now_ms)]

    def _complete_first(self, result: ProducerId | Refusal) -> CompleteRequest:
        self._first_waits_until_ms = None
        return CompleteRequest(self._waiters.popleft(), result)

    def _serve_row(self, now_ms: int) -> list[Effect]:
        """Serve the queue until a client must wait."""
        effects: list[Effect] = []
        while self._waiters:
            result, asked = self._look_for_id()
            effects += asked
            if result is None:
                effects.append(self._begin_wait(now_ms))
                break
            effects.append(self._complete_first(result))
        return effects

    def _begin_wait(self, now_ms: int) -> WakeAt:
        self._first_waits_until_ms = now_ms + self._max_wait_ms
        return WakeAt(self._first_waits_until_ms)

    def _maybe_request(self) -> list[Effect]:
        if self._slot is not None or self._request_in_flight:
            return []
        self._request_in_flight = True
        broker_epoch = self._broker_epoch()
        last_claimed = -1 if self._last_claimed is None else self._last_claimed
        self._emit(
            ProducerIdBlockRequested(
                broker_epoch=broker_epoch,
                last_producer_id=min(last_claimed, self._current.last_producer_id),
            )
        )
        return [SendAllocate(broker_epoch)]


# --------------------------------------------------------------------------------------------------
# Since 3.6: the next block is prefetched, and clients never wait
#
# Holding requests back for up to 30 s made clients time out or pile up; with
# COORDINATOR_LOAD_IN_PROGRESS they retry.
# Source: KAFKA-14694, RPCProducerIdManager of 3.6 to 3.9.

ITERATIONS_MAX = 3
"""The maximum number of blocks per claim, if they are all empty (IterationLimit)."""

RETRY_BACKOFF_MS = 50
"""RetryBackoffMs."""


class PrefetchingBlockClient:
    """Uses one block while at most one more is requested or received.

    `broker_epoch()` is the current epoch of this broker's registration (-1 before it has one).
    """

    may_overlap = True
    """Whether a block may start at the last id of the current one, which is then handed out twice.
    """

    def __init__(self, *, broker_epoch: Callable[[], int], emit: Callable[[Event], None]) -> None:
        self._broker_epoch = broker_epoch
        self._emit = emit
        self._current = EMPTY_BLOCK
        self._following_producer_id = EMPTY_BLOCK.next_producer_id
        self._stock: ProducerIdBlock | None = None
        self._request_in_flight = False
        """True from the request until the received block is in use: so there is never more than one
        block in reserve.
        """
        self._backoff_until_ms: int | None = None

    def claim(self, now_ms: int) -> BlockClaim:
        """Return the next id, or COORDINATOR_LOAD_IN_PROGRESS until the next block is received.

        Never Waiting.
        """
        effects: list[Effect] = []
        for _ in range(ITERATIONS_MAX):
            if self._following_producer_id <= self._current.last_producer_id:
                return self._hand_out(now_ms)
            if self._stock is None:
                effects = self._maybe_request(now_ms)
                break
            self._use(self._stock)
        refusal = Refusal(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            "the next block of producer ids is not received yet",
        )
        return BlockClaim(refusal, effects)

    def on_response(
        self, error_code: int, first_producer_id: int, size: int, now_ms: int
    ) -> list[Effect]:
        """Store the block; after an error or an invalid block, back off for 50 ms.

        Does not send a new request.
        """
        match answer := received_block(
            error_code, first_producer_id, size, self._current, may_overlap=self.may_overlap
        ):
            case Refusal():
                self._emit(ProducerIdBlockRefused(error_code=answer.error, reason=answer.why))
                self._backoff_until_ms = now_ms + RETRY_BACKOFF_MS
                self._request_in_flight = False
            case ProducerIdBlock():
                self._emit(
                    ProducerIdBlockReceived(
                        first_producer_id=answer.first_producer_id,
                        next_producer_id=answer.next_producer_id,
                    )
                )
                self._stock = answer
        return []

    def on_timeout(self, now_ms: int) -> list[Effect]:
        """Let the next claim that needs a block send a request, without backoff."""
        self._emit(
            ProducerIdBlockRefused(
                error_code=ErrorCode.REQUEST_TIMED_OUT,
                reason="the request to the controller timed out",
            )
        )
        self._request_in_flight = False
        return []

    def on_wake(self, now_ms: int) -> list[Effect]:
        """Do nothing: no client waits."""
        return []

    def _hand_out(self, now_ms: int) -> BlockClaim:
        producer_id = self._following_producer_id
        self._following_producer_id += 1
        effects: list[Effect] = []
        if self._asks_ahead(ProducerId(producer_id)):
            effects = self._maybe_request(now_ms)
        return BlockClaim(ProducerId(producer_id), effects)

    def _asks_ahead(self, producer_id: ProducerId) -> bool:
        """Return whether an id is the prefetch threshold."""
        return (
            producer_id == self._current.prefetch_producer_id
            # equal, not beyond: one prefetch per block; after a failed one the next request is at
            # its end
        )

    def _use(self, block: ProducerIdBlock) -> None:
        self._current = block
        self._following_producer_id = block.first_producer_id
        self._stock = None
        self._request_in_flight = False

    def _maybe_request(self, now_ms: int) -> list[Effect]:
        backs_off = self._backoff_until_ms is not None and now_ms < self._backoff_until_ms
        if backs_off or self._stock is not None or self._request_in_flight:
            return []
        self._request_in_flight = True
        self._backoff_until_ms = None
        broker_epoch = self._broker_epoch()
        self._emit(
            ProducerIdBlockRequested(
                broker_epoch=broker_epoch, last_producer_id=self._following_producer_id - 1
            )
        )
        return [SendAllocate(broker_epoch)]


class DisjointBlockClient(PrefetchingBlockClient):
    """The client of 4.3 and later: a block begins behind the current one (KAFKA-20031)."""

    may_overlap = False


# --------------------------------------------------------------------------------------------------
# ZooKeeper mode: a new block is taken from ZooKeeper when the former one is used up
#
# Nothing is prefetched. In Kafka a thread that needs an id holds a lock while the znode is updated;
# here the clients wait in a queue, and if no block is available all of them get the error, which is
# fatal for clients.
# Source: ZkProducerIdManager.


class ZnodeBlockClient:
    """Uses one block at a time."""

    def __init__(self, *, broker_epoch: Callable[[], int], emit: Callable[[Event], None]) -> None:
        self._broker_epoch = broker_epoch
        self._emit = emit
        self._block = EMPTY_BLOCK
        self._next_producer_id = 0
        self._is_asking = False
        self._waiters: deque[int] = deque()
        self._waiter_count = 0

    def claim(self, now_ms: int) -> BlockClaim:
        """Return the next id, or let the client wait for a block."""
        if not self._waiters:
            producer_id = self._take()
            if producer_id is not None:
                return BlockClaim(producer_id, [])
        self._waiter_count += 1
        self._waiters.append(self._waiter_count)
        return BlockClaim(WaitingRequest(self._waiter_count), self._ask())

    def on_response(
        self, error_code: int, first_producer_id: int, size: int, now_ms: int
    ) -> list[Effect]:
        """Use the received block, and serve the queue; without one all waiting clients are
        refused.
        """
        self._is_asking = False
        match answer := received_block(error_code, first_producer_id, size, self._block):
            case Refusal():
                return self._refuse_all(answer)
            case ProducerIdBlock():
                self._emit(
                    ProducerIdBlockReceived(
                        first_producer_id=answer.first_producer_id,
                        next_producer_id=answer.next_producer_id,
                    )
                )
                self._block, self._next_producer_id = answer, answer.first_producer_id
                return self._serve_row()

    def on_timeout(self, now_ms: int) -> list[Effect]:
        """Refuse the waiting clients: ZooKeeper is not reachable."""
        self._is_asking = False
        return self._refuse_all(
            Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "ZooKeeper is not reachable")
        )

    def on_wake(self, now_ms: int) -> list[Effect]:
        """Do nothing: there is no timeout."""
        return []

    def _take(self) -> ProducerId | None:
        if self._next_producer_id > self._block.last_producer_id:
            return None
        self._next_producer_id += 1
        return ProducerId(self._next_producer_id - 1)

    def _serve_row(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._waiters:
            producer_id = self._take()
            if producer_id is None:
                return [*effects, *self._ask()]
            effects.append(CompleteRequest(self._waiters.popleft(), producer_id))
        return effects

    def _refuse_all(self, refusal: Refusal) -> list[Effect]:
        self._emit(ProducerIdBlockRefused(error_code=refusal.error, reason=refusal.why))
        refused, self._waiters = self._waiters, deque()
        return [
            CompleteRequest(waiter, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, refusal.why))
            for waiter in refused
        ]

    def _ask(self) -> list[Effect]:
        if self._is_asking:
            return []
        self._is_asking = True
        broker_epoch = self._broker_epoch()
        self._emit(
            ProducerIdBlockRequested(
                broker_epoch=broker_epoch, last_producer_id=self._next_producer_id - 1
            )
        )
        return [SendAllocate(broker_epoch)]


# --------------------------------------------------------------------------------------------------
# As KIP-730's text describes or rejects: fatal authorization errors, no prefetch, eager prefetch,
# uncoordinated ids

BROKER_BITS: Final = 20
COUNTER_BITS: Final = 63 - BROKER_BITS
COUNTED_AHEAD: Final = 1000
"""This many ids are recorded as used before the first of them is: a restarted broker continues
after them.
"""


class TerminatingBlockClient(PrefetchingBlockClient):
    """A failed authorization is fatal, as the text says. Shipped brokers retry."""

    def on_response(
        self, error_code: int, first_producer_id: int, size: int, now_ms: int
    ) -> list[Effect]:
        """Handle the response; CLUSTER_AUTHORIZATION_FAILED shuts the broker down."""
        effects: list[Effect] = []
        if error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            effects.append(EndBroker("AllocateProducerIds: this broker may not ask its controller"))
        return effects + super().on_response(error_code, first_producer_id, size, now_ms)


class OnDemandBlockClient(PrefetchingBlockClient):
    """Requests a block when the former one is used up, and no earlier: clients are refused until it
    is received.
    """

    def _asks_ahead(self, producer_id: ProducerId) -> bool:
        return False


class EagerBlockClient(PrefetchingBlockClient):
    """Requests the next block with the first id of each."""

    def _asks_ahead(self, producer_id: ProducerId) -> bool:
        return producer_id == self._current.first_producer_id


def own_block(broker_id: int, counted: int) -> ProducerIdBlock | Refusal:
    """Return the next block of an uncoordinated broker, given the number of ids that it has used.

    UNKNOWN_SERVER_ERROR if the broker id or the counter does not fit.
    """
    if not 0 <= broker_id < 1 << BROKER_BITS:
        return Refusal(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {broker_id} does not fit in {BROKER_BITS} bits"
        )
    if counted > (1 << COUNTER_BITS) - COUNTED_AHEAD:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {broker_id} has used all its ids")
    return ProducerIdBlock(
        first_producer_id=broker_id << COUNTER_BITS | counted, size=COUNTED_AHEAD
    )


class UncoordinatedSource:
    """Without the controller: the broker id is in the high bits, a local counter in the low ones,
    and a bound of the counter on disk.

    `counted` is the stored bound (0 on an empty disk), `store` writes it. Implements
    `ProducerIdSource`.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        counted: int,
        store: Callable[[int], None],
        emit: Callable[[Event], None],
    ) -> None:
        self._broker_id = broker_id
        self._next = self._counted = counted
        self._store = store

    def claim(self, now_ms: int) -> BlockClaim:
        """Return the next id; UNKNOWN_SERVER_ERROR if the broker id or the counter does not fit.

        Never Waiting.
        """
        if self._next == self._counted:
            block = own_block(self._broker_id, self._counted)
            if isinstance(block, Refusal):
                return BlockClaim(block, [])
            self._counted += block.size
            self._store(self._counted)
        self._next += 1
        return BlockClaim(ProducerId(self._broker_id << COUNTER_BITS | self._next - 1), [])

    def on_response(
        self, error_code: int, first_producer_id: int, size: int, now_ms: int
    ) -> list[Effect]:
        """Do nothing: there are no requests."""
        return []

    def on_timeout(self, now_ms: int) -> list[Effect]:
        """Do nothing: there are no requests."""
        return []

    def on_wake(self, now_ms: int) -> list[Effect]:
        """Do nothing: no client waits."""
        return []

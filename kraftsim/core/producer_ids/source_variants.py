"""Block clients as KIP-730's text describes or rejects: fatal authorization errors, no prefetch, eager prefetch, uncoordinated ids.

Source: KIP-730 (possible errors; broker; rejected alternative "Uncoordinated ID generation").
"""

from collections.abc import Callable
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_ids.block import ProducerId, ProducerIdBlock
from kraftsim.core.producer_ids.prefetching_block_client import PrefetchingBlockClient
from kraftsim.core.producer_ids.source import Effect, EndBroker, Waiting
from kraftsim.events.event import Event
from protocol.errors import ErrorCode

BROKER_BITS: Final = 20
COUNTER_BITS: Final = 63 - BROKER_BITS
COUNTED_AHEAD: Final = 1000
"""This many ids are recorded as used before the first of them is: a restarted broker continues after them."""


class TerminatingBlockClient(PrefetchingBlockClient):
    """A failed authorization is fatal, as the text says. Shipped brokers retry."""

    def on_response(self, error_code: int, first_producer_id: int, size: int, now_ms: int) -> None:
        """Handle the response; CLUSTER_AUTHORIZATION_FAILED shuts the broker down."""
        if error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._effects.append(EndBroker("AllocateProducerIds: this broker may not ask its controller"))
        super().on_response(error_code, first_producer_id, size, now_ms)


class OnDemandBlockClient(PrefetchingBlockClient):
    """Requests a block when the former one is used up, and no earlier: clients are refused until it is received."""

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
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {broker_id} does not fit in {BROKER_BITS} bits")
    if counted > (1 << COUNTER_BITS) - COUNTED_AHEAD:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {broker_id} has used all its ids")
    return ProducerIdBlock(first_producer_id=broker_id << COUNTER_BITS | counted, size=COUNTED_AHEAD)


class UncoordinatedSource:
    """Without the controller: the broker id is in the high bits, a local counter in the low ones, and a bound of the counter on disk.

    `counted` is the stored bound (0 on an empty disk), `store` writes it. Implements `ProducerIdSource`.
    """

    def __init__(self, *, broker_id: int, counted: int, store: Callable[[int], None], emit: Callable[[Event], None]) -> None:
        self._broker_id = broker_id
        self._next = self._counted = counted
        self._store = store

    def claim(self, now_ms: int) -> ProducerId | Refusal | Waiting:
        """Return the next id; UNKNOWN_SERVER_ERROR if the broker id or the counter does not fit. Never Waiting."""
        if self._next == self._counted:
            block = own_block(self._broker_id, self._counted)
            if isinstance(block, Refusal):
                return block
            self._counted += block.size
            self._store(self._counted)
        self._next += 1
        return ProducerId(self._broker_id << COUNTER_BITS | self._next - 1)

    def on_response(self, error_code: int, first_producer_id: int, size: int, now_ms: int) -> None:
        """Do nothing: there are no requests."""

    def on_timeout(self, now_ms: int) -> None:
        """Do nothing: there are no requests."""

    def on_wake(self, now_ms: int) -> None:
        """Do nothing: no client waits."""

    def take_effects(self) -> list[Effect]:
        """Return nothing."""
        return []

"""Brokers that come by producer ids as KIP-730's text wants it, or as it rejects: ending when they have no right, waiting for nobody, asking nobody.

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
"""So many ids are written down as used before the first of them is: a broker that comes back goes on behind them."""


class TerminatingBlockClient(PrefetchingBlockClient):
    """To have no right to ask is fatal, as the text wants it. Shipped brokers ask again."""

    def on_response(self, error_code: int, first_producer_id: int, size: int, now_ms: int) -> None:
        """Take the answer; CLUSTER_AUTHORIZATION_FAILED ends the broker."""
        if error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._effects.append(EndBroker("AllocateProducerIds: this broker may not ask its controller"))
        super().on_response(error_code, first_producer_id, size, now_ms)


class OnDemandBlockClient(PrefetchingBlockClient):
    """Asks for a block when the one before is used up, and no earlier: whoever comes then is sent away until it is there."""

    def _asks_ahead(self, producer_id: ProducerId) -> bool:
        return False


class EagerBlockClient(PrefetchingBlockClient):
    """Asks for the next block with the first id of each."""

    def _asks_ahead(self, producer_id: ProducerId) -> bool:
        return producer_id == self._current.first_producer_id


def own_block(broker_id: int, counted: int) -> ProducerIdBlock | Refusal:
    """Return the next block of a broker that asks nobody, given how many ids it has counted so far.

    UNKNOWN_SERVER_ERROR where the broker's id, or the counter, does not fit.
    """
    if not 0 <= broker_id < 1 << BROKER_BITS:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {broker_id} does not fit in {BROKER_BITS} bits")
    if counted > (1 << COUNTER_BITS) - COUNTED_AHEAD:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {broker_id} has used all its ids")
    return ProducerIdBlock(first_producer_id=broker_id << COUNTER_BITS | counted, size=COUNTED_AHEAD)


class UncoordinatedSource:
    """Asks nobody: the broker's id is in the high bits, a counter of its own in the low ones, and on its disk how far that may have come.

    `counted` is what the disk says (0 on an empty one), `store` writes it. Implements `ProducerIdSource`.
    """

    def __init__(self, *, broker_id: int, counted: int, store: Callable[[int], None], note: Callable[[Event], None]) -> None:
        self._broker_id = broker_id
        self._next = self._counted = counted
        self._store = store

    def claim(self, now_ms: int) -> ProducerId | Refusal | Waiting:
        """Hand out the next id; UNKNOWN_SERVER_ERROR where the broker's id, or the counter, does not fit. Never Waiting."""
        if self._next == self._counted:
            block = own_block(self._broker_id, self._counted)
            if isinstance(block, Refusal):
                return block
            self._counted += block.size
            self._store(self._counted)
        self._next += 1
        return ProducerId(self._broker_id << COUNTER_BITS | self._next - 1)

    def on_response(self, error_code: int, first_producer_id: int, size: int, now_ms: int) -> None:
        """Do nothing: nobody was asked."""

    def on_timeout(self, now_ms: int) -> None:
        """Do nothing: nobody was asked."""

    def on_wake(self, now_ms: int) -> None:
        """Do nothing: nobody waits."""

    def take_effects(self) -> list[Effect]:
        """Return nothing."""
        return []

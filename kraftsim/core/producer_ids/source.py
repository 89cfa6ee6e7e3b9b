"""What InitProducerId asks for a fresh id, whichever way the broker of this release obtains its blocks.

A source never sends anything itself: it leaves effects, which the broker carries out in order after each call.
Source: KIP-730, kafka.coordinator.transaction.ProducerIdManager.
"""

from dataclasses import dataclass
from typing import Protocol

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_ids.block import ProducerId


@dataclass(frozen=True, slots=True)
class Waiting:
    """The answer comes later, as `Complete` with this waiter's number."""

    waiter: int


@dataclass(frozen=True, slots=True)
class SendAllocate:
    """Send AllocateProducerIds with this broker epoch; then call `on_response`, or `on_timeout` if the channel gives up."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Complete:
    """Answer the InitProducerId that was told to wait."""

    waiter: int
    result: ProducerId | Refusal


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Call `on_wake` at this time (monotonic milliseconds); too many or too late wake-ups do no harm."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class EndBroker:
    """Take the broker down: it cannot go on. No shipped source leaves it."""

    why: str


Effect = SendAllocate | Complete | WakeAt | EndBroker


class ProducerIdSource(Protocol):
    """One of them per broker, picked once by traits in `node/parts.py`."""

    def claim(self, now_ms: int) -> ProducerId | Refusal | Waiting:
        """Hand out the next id of this broker. A Refusal is answered at once; for Waiting keep the client until Complete."""
        ...

    def on_response(self, error_code: int, first_producer_id: int, size: int, now_ms: int) -> None:
        """Take the answer of AllocateProducerIds: its ErrorCode, ProducerIdStart and ProducerIdLen."""
        ...

    def on_timeout(self, now_ms: int) -> None:
        """Take note that the channel gave up on AllocateProducerIds: no answer will come."""
        ...

    def on_wake(self, now_ms: int) -> None:
        """Let those who waited long enough go."""
        ...

    def take_effects(self) -> list[Effect]:
        """Return what must be done now, in order, and forget it. Ask after every other call."""
        ...

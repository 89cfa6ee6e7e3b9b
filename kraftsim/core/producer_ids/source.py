"""The interface of InitProducerId to new producer ids, whichever way the broker's release obtains its blocks.

A source does no I/O: it returns effects, which the broker executes in order after each call.
Source: KIP-730, kafka.coordinator.transaction.ProducerIdManager.
"""

from dataclasses import dataclass
from typing import Protocol

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_ids.block import ProducerId


@dataclass(frozen=True, slots=True)
class Waiting:
    """The result comes later, as `Complete` with this waiter's number."""

    waiter: int


@dataclass(frozen=True, slots=True)
class SendAllocate:
    """Send AllocateProducerIds with this broker epoch; then call `on_response`, or `on_timeout` if the channel gives up."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Complete:
    """Answer the waiting InitProducerId."""

    waiter: int
    result: ProducerId | Refusal


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Call `on_wake` at this time (monotonic milliseconds); spurious or late wake-ups are harmless."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class EndBroker:
    """Shut the broker down: a fatal error. No shipped source returns it."""

    why: str


Effect = SendAllocate | Complete | WakeAt | EndBroker


class ProducerIdSource(Protocol):
    """One per broker, selected by the release's traits in `node/parts.py`."""

    def claim(self, now_ms: int) -> ProducerId | Refusal | Waiting:
        """Return the next id of this broker. A Refusal is returned at once; for Waiting the request is held until Complete."""
        ...

    def on_response(self, error_code: int, first_producer_id: int, size: int, now_ms: int) -> None:
        """Handle the AllocateProducerIds response: ErrorCode, ProducerIdStart and ProducerIdLen."""
        ...

    def on_timeout(self, now_ms: int) -> None:
        """Handle the timeout of AllocateProducerIds: no response will come."""
        ...

    def on_wake(self, now_ms: int) -> None:
        """Time out the requests that have waited long enough."""
        ...

    def take_effects(self) -> list[Effect]:
        """Take the effects that are due, in order. Call it after every other call."""
        ...

"""The broker's producer id manager: runs the core's state machine, sends its AllocateProducerIds requests, completes waiting claims.

Source: kafka.coordinator.transaction.RPCProducerIdManager, NodeToControllerChannelManager.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, assert_never

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_ids.block import ProducerId
from kraftsim.core.producer_ids.source import Complete, Effect, EndBroker, ProducerIdSource, SendAllocate, Waiting, WakeAt
from kraftsim.node.outbound import OnAnswer
from kraftsim.node.pump import Pump
from kraftsim.node.shell import NodeShell
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.schema import Message

OnProducerId = Callable[[ProducerId | Refusal], None]


class BlockChannel(Protocol):
    """The channel by which producer id blocks are allocated."""

    def send(self, body: Message, on_answer: OnAnswer) -> None:
        """Send AllocateProducerIds; `on_answer` is called once, later, with the response or an OSError."""
        ...


class ProducerIds:
    """Allocates single producer ids."""

    def __init__(self, shell: NodeShell, source: ProducerIdSource, controller: BlockChannel) -> None:
        self._shell = shell
        self._clock = shell.world.clock
        self._broker_id = shell.config.node_id
        self._source = source
        self._controller = controller
        self._waiters: dict[int, OnProducerId] = {}
        self._pump: Pump[Effect] = Pump(source.take_effects, self._carry_out)

    def claim(self) -> ProducerId | Refusal | Waiting:
        """Return a new id, or why there is none. After Waiting call `wait` at once."""
        claimed = self._source.claim(self._clock.monotonic_ms())
        if not isinstance(claimed, Waiting):
            self._pump.run()
        return claimed

    def wait(self, waiting: Waiting, on_producer_id: OnProducerId) -> None:
        """Register the callback of a claim that returned Waiting."""
        self._waiters[waiting.waiter] = on_producer_id
        self._pump.run()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendAllocate():
                request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=effect.broker_epoch)
                self._controller.send(request, self._on_answer)
            case Complete():
                self._waiters.pop(effect.waiter)(effect.result)
            case WakeAt():
                delay_ms = max(effect.at_ms - self._clock.monotonic_ms(), 0)
                asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_wake)
            case EndBroker():
                self._shell.fail(PermissionError(effect.why))
            case _:
                assert_never(effect)

    def _on_answer(self, answer: Message | OSError) -> None:
        now_ms = self._clock.monotonic_ms()
        if isinstance(answer, AllocateProducerIdsResponse):
            self._source.on_response(answer.error_code, answer.producer_id_start, answer.producer_id_len, now_ms)
        else:
            self._source.on_timeout(now_ms)
        self._pump.run()

    def _on_wake(self) -> None:
        self._source.on_wake(self._clock.monotonic_ms())
        self._pump.run()

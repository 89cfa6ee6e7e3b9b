"""The block client of a ZooKeeper-mode broker, which takes a new block from ZooKeeper when the former one is used up.

Nothing is prefetched. In Kafka a thread that needs an id holds a lock while the znode is updated; here the clients wait in
a queue, and if no block is available all of them get the error, which is fatal for clients.
Source: kafka.coordinator.transaction.ZkProducerIdManager.
"""

from collections import deque
from collections.abc import Callable

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_ids.block import EMPTY_BLOCK, ProducerId, ProducerIdBlock
from kraftsim.core.producer_ids.received_block import received_block
from kraftsim.core.producer_ids.source import Complete, Effect, SendAllocate, Waiting
from kraftsim.events.event import Event
from kraftsim.events.producer_ids import ProducerIdBlockReceived, ProducerIdBlockRefused, ProducerIdBlockRequested
from protocol.errors import ErrorCode


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
        self._effects: list[Effect] = []

    def claim(self, now_ms: int) -> ProducerId | Refusal | Waiting:
        """Return the next id, or let the client wait for a block."""
        if not self._waiters:
            producer_id = self._take()
            if producer_id is not None:
                return producer_id
        self._waiter_count += 1
        self._waiters.append(self._waiter_count)
        self._ask()
        return Waiting(self._waiter_count)

    def on_response(self, error_code: int, first_producer_id: int, size: int, now_ms: int) -> None:
        """Use the received block, and serve the queue; without one all waiting clients are refused."""
        self._is_asking = False
        match answer := received_block(error_code, first_producer_id, size, self._block):
            case Refusal():
                self._refuse_all(answer)
            case ProducerIdBlock():
                self._emit(ProducerIdBlockReceived(first_producer_id=answer.first_producer_id, next_producer_id=answer.next_producer_id))
                self._block, self._next_producer_id = answer, answer.first_producer_id
                self._serve_row()

    def on_timeout(self, now_ms: int) -> None:
        """Refuse the waiting clients: ZooKeeper is not reachable."""
        self._is_asking = False
        self._refuse_all(Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "ZooKeeper is not reachable"))

    def on_wake(self, now_ms: int) -> None:
        """Do nothing: there is no timeout."""

    def take_effects(self) -> list[Effect]:
        """Take the effects that are due, in order."""
        effects, self._effects = self._effects, []
        return effects

    def _take(self) -> ProducerId | None:
        if self._next_producer_id > self._block.last_producer_id:
            return None
        self._next_producer_id += 1
        return ProducerId(self._next_producer_id - 1)

    def _serve_row(self) -> None:
        while self._waiters:
            producer_id = self._take()
            if producer_id is None:
                return self._ask()
            self._effects.append(Complete(self._waiters.popleft(), producer_id))
        return None

    def _refuse_all(self, refusal: Refusal) -> None:
        self._emit(ProducerIdBlockRefused(error_code=refusal.error, reason=refusal.why))
        while self._waiters:
            self._effects.append(Complete(self._waiters.popleft(), Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, refusal.why)))

    def _ask(self) -> None:
        if self._is_asking:
            return
        self._is_asking = True
        broker_epoch = self._broker_epoch()
        self._emit(ProducerIdBlockRequested(broker_epoch=broker_epoch))
        self._effects.append(SendAllocate(broker_epoch))

"""Simulates one controller and its brokers in virtual milliseconds with the nodes' own rules:
crashes, lost responses, a constant client load.

Nothing is measured by a clock; counts follow from the seed alone.   Source: KIP-730.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.timeline import Journal
from kraftsim.producer_ids.rules_allocation import (
    ProducerIdBlock,
    ProducerIdControl,
    RepeatingProducerIdControl,
    ResizableProducerIdControl,
)
from kraftsim.producer_ids.rules_block_clients import Effect, PrefetchingBlockClient, SendAllocate
from protocol.errors import ErrorCode

LAST_ID = 2**63 - 1
YEAR_MS = 365.25 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The parameters.

    Rates are per second and broker; `lost_percent`: of responses, which are retried after
    `retry_ms`.
    """

    seconds: float = 60.0
    brokers: int = 3
    ids_per_second: float = 100.0
    rpc_ms: int = 50
    crash_every_s: float = 0.0
    lost_percent: int = 0
    retry_ms: int = 200
    block_size: int = 1000
    source: type[PrefetchingBlockClient] = PrefetchingBlockClient
    repeats: bool = False


@dataclass(slots=True)
class Found:
    """The results."""

    given: int = 0
    refused: int = 0
    stalls_ms: list[int] = field(default_factory=list)
    """The wait of each client that received at least one error."""
    blocks: int = 0
    crashes: int = 0
    doubled: int = 0
    next_producer_id: int = 0
    audit: list[tuple[int, int, int, int]] = field(default_factory=list)
    """First and next id of each block, its broker and that broker's epoch, in the order of the
    log.
    """

    @property
    def unused(self) -> int:
        """Allocated ids that were never returned to a client."""
        return self.next_producer_id - self.given

    def years_left(self, seconds: float) -> float:
        """Return how long 2^63 ids last at this rate."""
        return (
            LAST_ID / (self.next_producer_id / seconds) / (YEAR_MS / 1000)
            if self.next_producer_id
            else float("inf")
        )


class Broker:
    """One broker: its source of ids, what that is to send, and the client that waits for one."""

    def __init__(self, broker_id: int, terms: Parameters) -> None:
        self.broker_id, self.epoch, self.terms = broker_id, 0, terms
        self.requests = 0
        self.start()

    def start(self) -> None:
        """Restart with empty memory."""
        self.epoch += 1
        self.source = self.terms.source(broker_epoch=lambda: self.epoch, emit=lambda event: None)
        self.waiting_since_ms: int | None = None
        self.effects: list[Effect] = []


def simulate(terms: Parameters, seed: int) -> Found:
    """Let clients request ids for the configured time."""
    random, found = Random(seed), Found()
    brokers = [Broker(number, terms) for number in range(terms.brokers)]
    control_class = RepeatingProducerIdControl if terms.repeats else ResizableProducerIdControl
    control = control_class(Journal(), lambda broker_id, epoch: brokers[broker_id].epoch == epoch)
    if isinstance(control, ResizableProducerIdControl):
        control.resize(terms.block_size)
    answers: list[tuple[int, Broker, int, ProducerIdBlock | Refusal]] = []
    retries: list[tuple[int, Broker, int, int]] = []
    ids: Counter[int] = Counter()
    demand = [0.0] * terms.brokers
    for now_ms in range(int(terms.seconds * 1000)):
        for broker in brokers:
            if terms.crash_every_s and random.random() < 1 / (terms.crash_every_s * 1000):
                broker.start()
                found.crashes += 1
            demand[broker.broker_id] += terms.ids_per_second / 1000
            while demand[broker.broker_id] >= 1 or broker.waiting_since_ms is not None:
                if not _claim(broker, now_ms, found, ids):
                    break
                demand[broker.broker_id] = max(demand[broker.broker_id] - 1, 0)
            effects, broker.effects = broker.effects, []
            for effect in effects:
                assert isinstance(effect, SendAllocate), "no client waits here, so none is woken"
                broker.requests += 1
                _allocate(
                    control,
                    broker,
                    effect.broker_epoch,
                    broker.requests,
                    now_ms,
                    random,
                    found,
                    answers,
                    retries,
                )
        for due in [each for each in retries if each[0] <= now_ms]:
            retries.remove(due)
            if due[1].epoch == due[2]:
                _allocate(control, due[1], due[2], due[3], now_ms, random, found, answers, retries)
        for arrived in [each for each in answers if each[0] <= now_ms]:
            answers.remove(arrived)
            _answer(arrived, now_ms)
    found.next_producer_id = control.next_producer_id
    found.doubled = sum(count - 1 for count in ids.values() if count > 1)
    return found


def _claim(broker: Broker, now_ms: int, found: Found, ids: Counter[int]) -> bool:
    claimed, effects = broker.source.claim(now_ms)
    broker.effects += effects
    if isinstance(claimed, Refusal):
        found.refused += 1
        broker.waiting_since_ms = (
            now_ms if broker.waiting_since_ms is None else broker.waiting_since_ms
        )
        return False
    if broker.waiting_since_ms is not None:
        found.stalls_ms.append(now_ms - broker.waiting_since_ms)
        broker.waiting_since_ms = None
    assert isinstance(claimed, int), "these sources never make a client wait"
    ids[claimed] += 1
    found.given += 1
    return True


def _allocate(
    control: ProducerIdControl,
    broker: Broker,
    epoch: int,
    number: int,
    now_ms: int,
    random: Random,
    found: Found,
    answers: list[tuple[int, Broker, int, ProducerIdBlock | Refusal]],
    retries: list[tuple[int, Broker, int, int]],
) -> None:
    """Let the controller allocate a block; its response arrives later, or is lost, and then the
    broker retries.
    """
    decided = control.decide_allocate(broker.broker_id, epoch, number)
    if isinstance(decided, Decision):
        for record in decided.records:
            control.replay(record)
            found.blocks += 1
            found.audit.append(
                (
                    decided.result.first_producer_id,
                    decided.result.next_producer_id,
                    broker.broker_id,
                    epoch,
                )
            )
    if random.randrange(100) >= broker.terms.lost_percent:
        answers.append(
            (
                now_ms + broker.terms.rpc_ms,
                broker,
                epoch,
                decided.result if isinstance(decided, Decision) else decided,
            )
        )
    else:
        retries.append((now_ms + broker.terms.retry_ms, broker, epoch, number))


def _answer(arrived: tuple[int, Broker, int, ProducerIdBlock | Refusal], now_ms: int) -> None:
    _, broker, epoch, decided = arrived
    if broker.epoch != epoch:
        return  # of an earlier incarnation
    if isinstance(decided, Refusal):
        broker.effects += broker.source.on_response(decided.error, 0, 0, now_ms)
    else:
        broker.effects += broker.source.on_response(
            ErrorCode.NONE, decided.first_producer_id, decided.size, now_ms
        )

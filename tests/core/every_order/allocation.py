"""Two brokers that use producer ids, and the controller that allocates their blocks: late and lost
responses, restarts, failovers of the controller.

The controller responds when its record is committed; at a failover uncommitted records are lost or
kept.
Source: KIP-730, KAFKA-14694.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import pairwise

from kraftsim.core.decision import Decision
from kraftsim.core.timeline import Journal
from kraftsim.producer_ids.rules_allocation import ProducerIdBlock, ProducerIdControl
from kraftsim.producer_ids.rules_block_clients import (
    CompleteRequest,
    Effect,
    PrefetchingBlockClient,
    ProducerIdSource,
    SendAllocate,
    WaitingBlockClient,
)
from protocol.errors import ErrorCode
from protocol.metadata.controller import ProducerIdsRecord

SPENT_AT_ONCE = 500
TICK_MS = 100


@dataclass(slots=True)
class Spender:
    """A broker; `handed_out` are ranges of allocated ids, both ends inclusive."""

    epoch: int
    client: ProducerIdSource
    spends: int = 0
    restarts: int = 0
    handed_out: list[tuple[int, int]] = field(default_factory=list)
    request: int | None = None
    """The epoch of the request in flight."""
    answer: tuple[int, int] | None = None
    """The (error, first id) of the response in flight."""
    asked: int = 0
    """The number of the latest request; a response to an earlier one is dropped."""
    awaits: bool = False


class Allocation:
    """The possible events; each kind of failure occurs a limited number of times."""

    def __init__(
        self,
        *,
        waits: bool = False,
        spends: int = 6,
        troubles: int = 2,
        control: type[ProducerIdControl] = ProducerIdControl,
    ) -> None:
        self._waits, self._spends, self._troubles = waits, spends, troubles
        self._journal = Journal()
        self._control = control(
            self._journal, lambda broker_id, epoch: self._brokers[broker_id].epoch == epoch
        )
        self._brokers: dict[int, Spender] = {}
        self._uncommitted: list[tuple[int, int, int, ProducerIdBlock]] = []
        """(offset, broker, request, block) of uncommitted records."""
        self._next_offset = 0
        self._committed_next = 0
        self._failovers = 0
        self._now_ms = 0
        for broker_id in (1, 2):
            self._brokers[broker_id] = Spender(10 * broker_id, self._new_client(broker_id))

    def moves(self) -> list[str]:
        """See search.World."""
        found = []
        for number, broker in self._brokers.items():
            if broker.spends < self._spends:
                found.append(f"spend {number}")
            if broker.restarts < self._troubles:
                found.append(f"restart {number}")
            if broker.request is not None:
                found.append(f"ask {number}")
            elif broker.answer is not None:
                found.append(f"tell {number}")
            if broker.awaits:
                found.append(f"lose {number}")
        if self._uncommitted:
            found.append("commit")
        if self._failovers < self._troubles:
            found += (
                ["other-controller forgets", "other-controller keeps"]
                if self._uncommitted
                else ["other-controller forgets"]
            )
        return found

    def make(self, move: str) -> None:
        """See search.World."""
        verb, _, word = move.partition(" ")
        match verb:
            case "spend":
                self._spend(int(word))
            case "restart":
                broker = self._brokers[int(word)]
                broker.epoch, broker.restarts = broker.epoch + 1, broker.restarts + 1
                broker.client, broker.request, broker.answer, broker.awaits = (
                    self._new_client(int(word)),
                    None,
                    None,
                    False,
                )
            case "ask":
                self._ask(int(word))
            case "tell":
                self._notify(int(word))
            case "lose":
                broker = self._brokers[int(word)]
                broker.request, broker.answer, broker.awaits = None, None, False
                self._carry_out(int(word), broker.client.on_timeout(self._now_ms))
            case "commit":
                self._commit()
            case _:
                self._fail_over(keeps=word == "keeps")
        self._check()

    def state(self) -> Hashable:
        """See search.World."""
        return (
            self._control.next_producer_id,
            tuple(
                (number, block.first_producer_id, self._is_awaited(number, asked))
                for _, number, asked, block in self._uncommitted
            ),
            self._committed_next,
            self._failovers,
            *(self._inside(each) for each in self._brokers.values()),
        )

    def _inside(self, broker: Spender) -> Hashable:
        counts = (broker.epoch, broker.spends, broker.restarts)
        return (
            counts,
            tuple(broker.handed_out),
            broker.request,
            broker.answer,
            broker.awaits,
            _remembered(broker.client, self._now_ms),
        )

    def _spend(self, number: int) -> None:
        broker = self._brokers[number]
        broker.spends += 1
        self._now_ms += TICK_MS
        caused: list[Effect] = []
        for _ in range(SPENT_AT_ONCE):
            got, effects = broker.client.claim(self._now_ms)
            caused += effects
            if not isinstance(got, int):
                break
            self._hand_out(broker, got)
        self._carry_out(number, caused)

    def _hand_out(self, broker: Spender, producer_id: int) -> None:
        runs = broker.handed_out
        if runs and runs[-1][1] + 1 == producer_id:
            runs[-1] = (runs[-1][0], producer_id)
        else:
            runs.append((producer_id, producer_id))

    def _ask(self, number: int) -> None:
        broker = self._brokers[number]
        assert broker.request is not None, "it was requested"
        decision = self._control.decide_allocate(number, broker.request)
        broker.request = None
        if not isinstance(decision, Decision):
            broker.answer = (int(decision.error), 0)
            return
        record = decision.records[0]
        assert isinstance(record, ProducerIdsRecord), "a block is one record"
        self._journal.mark(self._next_offset)
        self._control.replay(record)
        self._uncommitted.append((self._next_offset, number, broker.asked, decision.result))
        self._next_offset += 1

    def _commit(self) -> None:
        offset, number, asked, block = self._uncommitted.pop(0)
        self._journal.commit_through(offset)
        self._committed_next = block.next_producer_id
        if self._is_awaited(number, asked):
            self._brokers[number].answer = (0, block.first_producer_id)

    def _fail_over(self, *, keeps: bool) -> None:
        """No request is answered; every channel times out, and retries."""
        self._failovers += 1
        if keeps:
            offset, _, _, block = self._uncommitted[-1]
            self._journal.commit_through(offset)
            self._committed_next = block.next_producer_id
        elif self._uncommitted:
            self._journal.revert_to(self._uncommitted[0][0])
        self._uncommitted.clear()

    def _notify(self, number: int) -> None:
        broker = self._brokers[number]
        assert broker.answer is not None, "it was answered"
        (error, first_producer_id), broker.answer = broker.answer, None
        broker.awaits = False
        effects = broker.client.on_response(
            ErrorCode(error), first_producer_id, 0 if error else 1000, self._now_ms
        )
        self._carry_out(number, effects)

    def _carry_out(self, number: int, effects: list[Effect]) -> None:
        broker = self._brokers[number]
        for effect in effects:
            match effect:
                case SendAllocate(epoch):
                    assert broker.request is None and broker.answer is None, (
                        f"broker {number} asks twice at a time"
                    )
                    broker.request, broker.awaits, broker.asked = epoch, True, broker.asked + 1
                case CompleteRequest(_, got) if isinstance(got, int):
                    self._hand_out(broker, got)

    def _check(self) -> None:
        runs = sorted(run for broker in self._brokers.values() for run in broker.handed_out)
        for (_, last), (first, _) in pairwise(runs):
            assert first > last, f"{first} was allocated twice"
        assert not runs or runs[-1][1] < self._committed_next, (
            f"{runs[-1][1]} was allocated, but only ids below {self._committed_next} are committed"
        )
        assert self._control.next_producer_id >= self._committed_next, (
            "the next id is below the committed one"
        )

    def _is_awaited(self, number: int, asked: int) -> bool:
        broker = self._brokers[number]
        return (
            broker.awaits
            and broker.asked == asked
            and broker.request is None
            and broker.answer is None
        )

    def _new_client(self, broker_id: int) -> ProducerIdSource:
        def epoch() -> int:
            return self._brokers[broker_id].epoch

        if self._waits:
            return WaitingBlockClient(
                broker_epoch=epoch,
                emit=lambda event: None,
                max_wait_ms=30_000,
                surfaces_timeouts=False,
            )
        return PrefetchingBlockClient(broker_epoch=epoch, emit=lambda event: None)


def _remembered(client: ProducerIdSource, now_ms: int) -> Hashable:
    """Return the state of a client, with deadlines relative to now."""
    found: list[tuple[str, Hashable]] = []
    for name, value in sorted(vars(client).items()):
        if name.endswith("_ms") and isinstance(value, int) and name != "_max_wait_ms":
            found.append((name, max(0, value - now_ms)))
        elif not callable(value):
            found.append((name, repr(value)))
    return tuple(found)

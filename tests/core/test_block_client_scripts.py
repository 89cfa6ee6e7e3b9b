"""Scripts of how a broker obtains and uses blocks of producer ids (tests/core/scripts).

Source: KIP-730, KAFKA-14694, KAFKA-14417.
"""

from collections.abc import Callable

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.producer_ids.rules_block_clients import (
    CompleteRequest,
    EagerBlockClient,
    Effect,
    EndBroker,
    OnDemandBlockClient,
    PrefetchingBlockClient,
    ProducerIdSource,
    SendAllocate,
    TerminatingBlockClient,
    UncoordinatedSource,
    WaitingBlockClient,
    WaitingRequest,
    WakeAt,
    ZnodeBlockClient,
)
from protocol.errors import ErrorCode


class ScriptDriver:
    """A block client of one kind, driven by lines such as "claim 3" or "answer 0 1000"."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.notes: list[Event] = []
        self.stored: list[int] = []
        self.effects: list[Effect] = []
        self.client: ProducerIdSource = self._prefetching()

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        said: list[str] = getattr(self, f"do_{verb}")(*words) or []
        notes = [f"event {_event_line(emit)}" for emit in self.notes]
        self.notes.clear()
        effects, self.effects = self.effects, []
        return "\n".join([*said, *notes, *(_effect(effect) for effect in effects)])

    def do_prefetching(self) -> None:
        self.client = self._prefetching()

    def do_waiting(self, surfaces_timeouts: str = "") -> None:
        self.client = WaitingBlockClient(
            broker_epoch=lambda: 5,
            emit=self.notes.append,
            max_wait_ms=30_000,
            surfaces_timeouts=bool(surfaces_timeouts),
        )

    def do_znode(self) -> None:
        self.client = ZnodeBlockClient(broker_epoch=lambda: 5, emit=self.notes.append)

    def do_variant(self, name: str) -> None:
        """Variants that KIP-730's text requires or rejects: `terminating`, `on-demand`, `eager`."""
        kind = {
            "terminating": TerminatingBlockClient,
            "on-demand": OnDemandBlockClient,
            "eager": EagerBlockClient,
        }[name]
        self.client = kind(broker_epoch=lambda: 5, emit=self.notes.append)

    def do_uncoordinated(self, broker_id: str, counted: str) -> None:
        """A broker that allocates without a controller; the disk stores its counter."""
        self.client = UncoordinatedSource(
            broker_id=int(broker_id),
            counted=int(counted),
            store=self.stored.append,
            emit=self.notes.append,
        )

    def do_stored(self) -> list[str]:
        stored, self.stored[:] = list(self.stored), []
        return [f"stored {each}" for each in stored]

    def do_at(self, now_ms: str) -> None:
        self.now_ms = int(now_ms)

    def do_claim(self, count: str = "1") -> list[str]:
        claims = [self.client.claim(self.now_ms) for _ in range(int(count))]
        self.effects = [effect for claim in claims for effect in claim.effects]
        return _in_runs([claim.result for claim in claims])

    def do_answer(self, first_producer_id: str, size: str) -> None:
        self.effects = self.client.on_response(
            ErrorCode.NONE, int(first_producer_id), int(size), self.now_ms
        )

    def do_refuse(self, error: str) -> None:
        self.effects = self.client.on_response(
            int(error) if error.isdigit() else ErrorCode[error], 0, 0, self.now_ms
        )

    def do_timeout(self) -> None:
        self.effects = self.client.on_timeout(self.now_ms)

    def do_wake(self) -> None:
        self.effects = self.client.on_wake(self.now_ms)

    def _prefetching(self) -> PrefetchingBlockClient:
        return PrefetchingBlockClient(broker_epoch=lambda: 5, emit=self.notes.append)


def _event_line(emit: Event) -> str:
    fields = (
        f"{name}={getattr(emit, name)}" for name in emit.__struct_fields__ if name != "reason"
    )
    return f"{type(emit).__name__} {' '.join(fields)}"


def _effect(effect: Effect) -> str:
    match effect:
        case SendAllocate(broker_epoch):
            return f"send AllocateProducerIds broker_epoch={broker_epoch}"
        case CompleteRequest(waiter, result):
            return f"complete waiter {waiter}: {_result(result)}"
        case WakeAt(at_ms):
            return f"wake at {at_ms}"
        case EndBroker(why):
            return f"end: {why}"


def _result(result: int | Refusal | WaitingRequest) -> str:
    match result:
        case Refusal(error):
            return f"rejected {error.name}"
        case WaitingRequest(waiter):
            return f"waiter {waiter} waits"
        case _:
            return f"id {result}"


def _in_runs(results: list[int | Refusal | WaitingRequest]) -> list[str]:
    """Merge consecutive ids, and equal rejections."""
    lines: list[str] = []
    first = last = -1
    for result in [*results, None]:
        if isinstance(result, int) and last >= 0 and result == last + 1:
            last = result
            continue
        if last >= 0:
            lines.append(f"id {first}" if first == last else f"ids {first} .. {last}")
        first = last = result if isinstance(result, int) else -1
        if result is not None and not isinstance(result, int):
            lines.append(_result(result))
    return [
        line if lines.count(line) == 1 else f"{line} x{lines.count(line)}"
        for line in dict.fromkeys(lines)
    ]


@pytest.mark.parametrize(
    "script",
    [
        "prefetching_block_client",
        "prefetching_failures",
        "waiting_block_client",
        "waiting_failures",
        "waiting_before_kafka_14417",
        "zookeeper_block_client",
        "block_client_variants",
    ],
)
def test_block_client_scripts(
    script: str, run_script: Callable[[str, Callable[[str], str]], None]
) -> None:
    """The comments of each script name the rule that it covers."""
    run_script(script, ScriptDriver().answer)

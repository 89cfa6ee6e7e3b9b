"""Faults that the schedules of several scenarios draw: failures of brokers, lost and doubled
Produce requests, and clocks that jump.

Each function draws from the given stream in a fixed order: a change of that order changes what the
seeds of all these scenarios mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftsim.lab.faults.fault import AT_THE_TRIGGER, AtTime, Fault, OnFrame, Trigger, Value

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

PRODUCE = 0
FAILURES = ("restart", "restart", "stop", "pause", "partition")
"""Kills are drawn twice as often as each of the others."""
CLOCK_JUMPS_MS = (50, 3000, 3_600_000)
CUT_AFTER_BYTES = (0, 5, 30)
LATE_BY_MS = (0, 10, 200, 1000)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failures:
    """Failures of nodes: how long a killed and a stopped node is down at most, and the range of how
    long one is paused or isolated.

    A node that is named is isolated from one of its `peers`, in one direction or both; without
    peers, and where the trigger names the node, it is isolated from all.
    """

    peers: tuple[str, ...] = ()
    kinds: tuple[str, ...] = FAILURES
    restart_ms: int = 4000
    stop_ms: int = 2000
    duration_ms: tuple[int, int] = (300, 5000)

    def draw(
        self, random: "Random", target: str, trigger: Trigger, kinds: Sequence[str] | None = None
    ) -> Fault:
        """Draw one failure of a node."""
        kind = random.choice(kinds or self.kinds)
        params: dict[str, Value]
        if kind == "restart":
            params = {"power_loss": False, "after_ms": random.randint(20, self.restart_ms)}
        elif kind == "stop":
            params = {"after_ms": random.randint(20, self.stop_ms)}
        else:
            if kind == "partition" and target != AT_THE_TRIGGER and self.peers:
                other = random.choice([each for each in self.peers if each != target])
                target = f"{target}{random.choice(('>', '<>'))}{other}"
            params = {"duration_ms": random.randint(*self.duration_ms)}
        return Fault(kind=kind, target=target, trigger=trigger, params=params)


def peers_of(brokers: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes from which a broker can be isolated: brokers and the first controller."""
    return (*brokers, "controller-101")


def drawn_time(random: "Random", seconds: float, *, from_ms: int = 200) -> AtTime:
    """Draw a time in the part of a run in which faults are injected."""
    return AtTime(at_ms=random.randint(from_ms, int(seconds * 1000)))


def produce_response(random: "Random", times: int = 150) -> OnFrame:
    """Draw one of the first Produce responses: its batch is in the broker's log."""
    return OnFrame(api_key=PRODUCE, is_response=True, nth=random.randint(1, times), moment="before")


def lost_produce_response(random: "Random") -> Fault:
    """Draw a Produce response that is lost, alone or with its connection."""
    trigger = produce_response(random)
    kind = random.choice(("lost-reply", "cut-connection"))
    return Fault(kind=kind, target=AT_THE_TRIGGER, trigger=trigger)


def produce_mishap(
    random: "Random", kinds: Sequence[tuple[str, bool]], times: tuple[int, int]
) -> Fault:
    """Draw what happens to one Produce frame, out of kinds of faults, each with whether it hits
    responses, and out of a range of frames.
    """
    kind, is_response = random.choice(kinds)
    trigger = OnFrame(
        api_key=PRODUCE, is_response=is_response, nth=random.randint(*times), moment="before"
    )
    params: dict[str, Value] = {}
    if kind == "cut-connection":
        params["after_bytes"] = random.choice(CUT_AFTER_BYTES)
    if kind == "duplicate-request":
        params["after_ms"] = random.choice(LATE_BY_MS)
    return Fault(kind=kind, target=AT_THE_TRIGGER, trigger=trigger, params=params)


def clock_jump(random: "Random", brokers: Sequence[str], seconds: float) -> Fault:
    """Draw a jump of a broker's clock: by an instant, by seconds, or by an hour."""
    params: dict[str, Value] = {
        "by_ms": random.choice(CLOCK_JUMPS_MS),
        "duration_ms": random.randint(200, 5000),
    }
    kind = random.choice(("clock-jump-forward", "clock-jump-back"))
    target = random.choice(brokers)
    return Fault(
        kind=kind, target=target, trigger=drawn_time(random, seconds, from_ms=100), params=params
    )

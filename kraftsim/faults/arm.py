"""Arms faults: ties their triggers to a simulation, and counts per kind what was armed, what fired and what changed an outcome."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

from kraftsim.events.runs import FaultArmed
from kraftsim.faults.fault import Fault, FaultKind, fault_kind
from kraftsim.faults.standing import occasion_at, standing_of
from kraftsim.faults.strike import NANOSECONDS_PER_MILLISECOND, Strike
from kraftsim.faults.trigger import AtTime, OnDisk, OnEvent, OnFrame, OnState
from kraftsim.world.simulated import Simulation

Moment = Literal["before", "after"]


@dataclass(kw_only=True, slots=True)
class Tally:
    """What came of the faults of one kind. A campaign in which a kind never bites does not test it."""

    armed: int = 0
    fired: int = 0
    bit: int = 0


def arm(fault: Fault, simulation: Simulation, key: str | None = None) -> Strike:
    """Tie a fault to a simulation. Its random numbers are keyed by the seed and `key`; without one, by what the fault is.

    Raises KeyError for a kind or a state that does not exist and ValueError for a parameter that its kind does not have.
    """
    kind = fault_kind(fault.kind)
    _require_known_params(fault, kind)
    strike = Strike(fault, kind, simulation, key)
    simulation.world_of(simulation.harness).note(FaultArmed(fault=fault.kind, target=fault.target, trigger=str(fault.trigger)))
    if kind.prepare is not None:
        kind.prepare(strike)
    _tie(strike, simulation)
    return strike


def tally(strikes: Iterable[Strike]) -> dict[str, Tally]:
    """Count strikes per kind, in the order of the kinds' names."""
    counts: dict[str, Tally] = {}
    for strike in sorted(strikes, key=lambda strike: strike.fault.kind):
        count = counts.setdefault(strike.fault.kind, Tally())
        count.armed += 1
        count.fired += strike.has_fired
        count.bit += strike.has_bitten
    return counts


def _require_known_params(fault: Fault, kind: FaultKind) -> None:
    for name in fault.params:
        if name not in kind.params:
            raise ValueError(f"a fault of kind {kind.name} has no parameter {name} (it has: {', '.join(kind.params) or 'none'})")


def _tie(strike: Strike, simulation: Simulation) -> None:
    triggers = simulation.triggers
    match strike.fault.trigger:
        case AtTime(at_ms=at_ms):
            triggers.at(at_ms * NANOSECONDS_PER_MILLISECOND, strike.go_off)
        case OnDisk() as disk:
            triggers.on_disk(
                strike.go_off,
                operation=cast(Literal["write", "flush", "rename"], disk.operation),
                file_class=disk.file_class,
                host=disk.host,
                nth=disk.nth,
                moment=cast(Moment, disk.moment),
            )
        case OnFrame() as frame:
            triggers.on_frame(
                strike.go_off,
                api_key=frame.api_key,
                is_response=frame.is_response,
                client=frame.client,
                server=frame.server,
                nth=frame.nth,
                moment=cast(Moment, frame.moment),
            )
        case OnEvent() as event:
            triggers.on_event(strike.go_off, kind=event.kind, host=event.host, nth=event.nth, fields=event.fields)
        case OnState() as state:
            strike.finally_(
                standing_of(simulation).when(state.states, lambda node: strike.go_off(occasion_at(simulation, node)), host=state.host, nth=state.nth)
            )

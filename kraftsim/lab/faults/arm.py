"""Arms faults: registers their triggers in a simulation, and counts per kind how many were armed,
fired and effective.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

from kraftsim.events.runs import FaultArmed
from kraftsim.lab.faults.fault import Fault, FaultKind, fault_kind
from kraftsim.lab.faults.injection import NANOSECONDS_PER_MILLISECOND, Injection
from kraftsim.lab.faults.state_tracker import state_tracker_of, trigger_context_at
from kraftsim.lab.faults.trigger import AtTime, OnDisk, OnEvent, OnFrame, OnState
from kraftsim.world.simulated import Simulation

Moment = Literal["before", "after"]


@dataclass(kw_only=True, slots=True)
class EffectTally:
    """Counts for one kind of fault.

    A campaign in which a kind is never effective does not test it.
    """

    armed: int = 0
    fired: int = 0
    bit: int = 0


def arm(fault: Fault, simulation: Simulation, key: str | None = None) -> Injection:
    """Arm a fault in a simulation.

    Its random numbers are keyed by the seed and `key`; without one, by the fault itself.

    Raises KeyError for an unknown kind or state, and ValueError for a parameter that its kind does
    not have.
    """
    kind = fault_kind(fault.kind)
    _require_known_params(fault, kind)
    injection = Injection(fault, kind, simulation, key)
    simulation.world_of(simulation.harness).emit(
        FaultArmed(fault=fault.kind, target=fault.target, trigger=str(fault.trigger))
    )
    if kind.prepare is not None:
        kind.prepare(injection)
    _tie(injection, simulation)
    return injection


def tally(injections: Iterable[Injection]) -> dict[str, EffectTally]:
    """Count armed faults per kind, sorted by kind."""
    counts: dict[str, EffectTally] = {}
    for injection in sorted(injections, key=lambda injection: injection.fault.kind):
        count = counts.setdefault(injection.fault.kind, EffectTally())
        count.armed += 1
        count.fired += injection.has_fired
        count.bit += injection.is_effective
    return counts


def _require_known_params(fault: Fault, kind: FaultKind) -> None:
    for name in fault.params:
        if name not in kind.params:
            raise ValueError(
                f"a fault of kind {kind.name} has no parameter {name} (it has: "
                f"{', '.join(kind.params) or 'none'})"
            )


def _tie(injection: Injection, simulation: Simulation) -> None:
    triggers = simulation.triggers
    match injection.fault.trigger:
        case AtTime(at_ms=at_ms):
            triggers.at(at_ms * NANOSECONDS_PER_MILLISECOND, injection.go_off)
        case OnDisk() as disk:
            triggers.on_disk(
                injection.go_off,
                operation=cast(Literal["write", "flush", "rename"], disk.operation),
                file_class=disk.file_class,
                host=disk.host,
                nth=disk.nth,
                moment=cast(Moment, disk.moment),
            )
        case OnFrame() as frame:
            triggers.on_frame(
                injection.go_off,
                api_key=frame.api_key,
                is_response=frame.is_response,
                client=frame.client,
                server=frame.server,
                nth=frame.nth,
                moment=cast(Moment, frame.moment),
            )
        case OnEvent() as event:
            triggers.on_event(
                injection.go_off,
                kind=event.kind,
                host=event.host,
                nth=event.nth,
                fields=event.fields,
            )
        case OnState() as state:
            injection.finally_(
                state_tracker_of(simulation).when(
                    state.states,
                    lambda node: injection.go_off(trigger_context_at(simulation, node)),
                    host=state.host,
                    nth=state.nth,
                )
            )

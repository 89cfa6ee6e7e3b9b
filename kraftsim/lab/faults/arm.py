"""Arms faults: registers their triggers in a simulation, and counts per kind how many were armed,
fired and effective.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import msgspec

from kraftsim.events.runs import FaultArmed
from kraftsim.lab.faults.coverage import exercised_by
from kraftsim.lab.faults.fault import (
    AtTime,
    Fault,
    FaultKind,
    OnContact,
    OnDisk,
    OnEvent,
    OnFrame,
    OnState,
    fault_kind,
    is_in_group,
)
from kraftsim.lab.faults.injection import NANOSECONDS_PER_MILLISECOND, Injection
from kraftsim.lab.faults.state_tracker import state_tracker_of, trigger_context_at
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
        case OnContact() as contact:
            triggers.on_contact(
                injection.go_off,
                is_client=lambda name: contact.client is None or is_in_group(name, contact.client),
                is_service=lambda name: is_in_group(name, contact.service),
                api_key=contact.api_key,
                request=contact.request,
                nth=contact.nth,
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


# --------------------------------------------------------------------------------------------------
# All faults of one run together: armed at one moment, healed at another, counted at the end


class FaultSchedule:
    """The faults of a run. Their times count from the moment they are armed."""

    def __init__(self, simulation: Simulation, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        self._simulation = simulation
        self._strikes: list[Injection] = []
        self._by_hand: list[Injection] = []
        if any(isinstance(fault.trigger, OnContact) for fault in self.faults):
            simulation.triggers.watch_contacts()

    @property
    def injections(self) -> tuple[Injection, ...]:
        """The state of each fault, in the order of `faults`; empty before they are armed."""
        return tuple(self._strikes)

    def arm(self) -> None:
        """Arm every fault in the simulation."""
        now_ms = self._simulation.now_ns // NANOSECONDS_PER_MILLISECOND
        keys = keys_of(self.faults)
        self._strikes += [
            arm(_counted_from(fault, now_ms), self._simulation, key)
            for fault, key in zip(self.faults, keys, strict=True)
        ]

    def add(self, fault: Fault) -> None:
        """Arm one more fault, which is not of the schedule; its times count from the beginning of
        the run.
        """
        self._by_hand.append(arm(fault, self._simulation, f"by hand {len(self._by_hand)}"))

    def heal(self) -> None:
        """End every fault that lasts, and disarm the others."""
        for injection in (*self._strikes, *self._by_hand):
            injection.end()

    def counts(self) -> dict[str, tuple[int, int, int]]:
        """Return armed, fired and effective counts, sorted by kind."""
        return {
            kind: (count.armed, count.fired, count.bit)
            for kind, count in tally((*self._strikes, *self._by_hand)).items()
        }

    def exercised(self) -> dict[str, tuple[int, int, int]]:
        """Return the same counts by what each fault of the schedule exercises, sorted."""
        return exercised_by(self._strikes)


def keys_of(faults: Sequence[Fault]) -> list[str]:
    """Return the keys of each fault's random numbers: the fault itself, and its number among equal
    faults.

    So leaving out a fault changes no other fault's random numbers: it makes no difference which of
    several equal ones is left out.
    """
    counts: dict[str, int] = {}
    keys = []
    for fault in faults:
        text = msgspec.json.encode(fault, order="sorted").decode()
        counts[text] = counts.get(text, 0) + 1
        keys.append(f"{text}#{counts[text]}")
    return keys


def _counted_from(fault: Fault, now_ms: int) -> Fault:
    if not isinstance(fault.trigger, AtTime):
        return fault
    return msgspec.structs.replace(fault, trigger=AtTime(at_ms=fault.trigger.at_ms + now_ms))

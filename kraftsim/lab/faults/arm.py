"""Arms faults: registers their triggers in a simulation, and counts per kind how many were armed,
fired and effective.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
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
from kraftsim.world.simulated import Simulation, TriggerContext

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
    injection = _unarmed(fault, simulation, key)
    _arm(injection)
    return injection


def _unarmed(fault: Fault, simulation: Simulation, key: str | None) -> Injection:
    kind = fault_kind(fault.kind)
    _require_known_params(fault, kind)
    return Injection(fault, kind, simulation, key)


def _arm(injection: Injection) -> None:
    fault, simulation = injection.fault, injection.simulation
    simulation.world_of(simulation.harness).emit(
        FaultArmed(fault=fault.kind, target=fault.target, trigger=str(fault.trigger))
    )
    prepare = fault_kind(fault.kind).prepare
    if prepare is not None:
        prepare(injection)
    _tie(injection, simulation)


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
        self._armed_at_ms = 0
        self._branching: tuple[int, Callable[[], Sequence[Fault]]] | None = None
        self._is_healed = False
        if any(isinstance(fault.trigger, OnContact) for fault in self.faults):
            simulation.triggers.watch_contacts()

    @property
    def injections(self) -> tuple[Injection, ...]:
        """The state of each fault, in the order of `faults`; empty before they are armed."""
        return tuple(self._strikes)

    def branch_after(self, after_ms: int, branch: Callable[[], Sequence[Fault]]) -> None:
        """Let `branch` return the rest of the schedule, so long after it is armed: faults with this
        `armed_after_ms`. The run is then the same as one with all of them from the beginning.
        """
        assert after_ms > 0, "the schedule is armed before it branches"
        self._simulation.triggers.watch_contacts()
        self._branching = after_ms, branch

    def arm(self) -> None:
        """Arm every fault in the simulation, now or later."""
        self._armed_at_ms = self._simulation.now_ns // NANOSECONDS_PER_MILLISECOND
        self._strikes += self._unarmed(0)
        later = {fault.armed_after_ms for fault in self.faults}
        if self._branching is not None:
            later.add(self._branching[0])
        for after_ms in sorted(later - {0}):
            self._simulation.triggers.at(
                (self._armed_at_ms + after_ms) * NANOSECONDS_PER_MILLISECOND,
                partial(self._arm_later, after_ms),
            )
        for injection in self._strikes:
            if not injection.fault.armed_after_ms:
                _arm(injection)

    def _unarmed(self, first: int) -> list[Injection]:
        keys = keys_of(self.faults)
        return [
            _unarmed(_counted_from(fault, self._armed_at_ms), self._simulation, key)
            for fault, key in list(zip(self.faults, keys, strict=True))[first:]
        ]

    def _arm_later(self, after_ms: int, trigger_context: TriggerContext) -> None:
        if self._branching is not None and self._branching[0] == after_ms:
            self.faults = (*self.faults, *self._branching[1]())
            self._strikes += self._unarmed(len(self._strikes))
        for injection in self._strikes:
            if injection.fault.armed_after_ms == after_ms and not self._is_healed:
                _arm(injection)

    def add(self, fault: Fault) -> None:
        """Arm one more fault, which is not of the schedule; its times count from the beginning of
        the run.
        """
        self._by_hand.append(arm(fault, self._simulation, f"by hand {len(self._by_hand)}"))

    def heal(self) -> None:
        """End every fault that lasts, and disarm the others."""
        self._is_healed = True
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
    at_ms = fault.trigger.at_ms + fault.armed_after_ms + now_ms
    return msgspec.structs.replace(fault, trigger=AtTime(at_ms=at_ms))

"""Varies a run that reached something new: its faults, their moments and targets, its settings, its
workload, its speeds, or only its seed.

A variation stays within what the random fault generator could have drawn for the scenario: faults
are drawn from its fault space, and the data-loss budget holds (`clashes`). The seed stays the same
in most variations, so that the run is the same, byte for byte, up to the first fault that differs:
what led to the new feature is kept, and what comes after it changes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random  # noqa: TID251  (variations are drawn from seeds, outside of simulations)
from typing import Final

import msgspec
from msgspec.structs import replace

from kraftsim.lab.campaign.coverage import FeaturePlace
from kraftsim.lab.explore.request import (
    RunEnvironment,
    draw_run_environment,
    settings_of_kinds,
)
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    FAULTS,
    SIM,
    Aim,
    AtTime,
    Fault,
    FaultKind,
    OnContact,
    OnDisk,
    OnEvent,
    OnFrame,
    OnState,
    Trigger,
)
from kraftsim.lab.faults.fault_space import FaultSpace
from kraftsim.lab.faults.random_faults import clashes, draw_faults, draw_settings

BRANCHES: Final = 4
"""How many runs part from one run at one moment."""
TRIES: Final = 8
"""How often a change is drawn again that does not change anything, or loses too much data."""
FAULTS_MAX: Final = 80
ADDED_MAX: Final = 4
KINDS_TRIED: Final = 4
SOON: Final = 3
AROUND_MS: Final = 40
"""How far before or after a moment of interest a fault is put; most are closer."""


class Variation(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has instead of what its seed draws: the whole schedule; settings and workload
    parameters on top of those of the seed; speeds, None if those of the seed.
    """

    faults: tuple[Fault, ...]
    settings: Mapping[str, str] = {}
    workload: Mapping[str, int] = {}
    surroundings: RunEnvironment | None = None


class Interesting(msgspec.Struct, frozen=True, kw_only=True):
    """A run that reached new features, to be varied; `places` are where it first reached them."""

    seed: int
    variation: Variation
    places: tuple[FeaturePlace, ...]
    feature_count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """What variations of one scenario may use: its fault space, its workload, the weight of each
    kind of fault, and another interesting run of it.
    """

    fault_space: FaultSpace
    workload: Mapping[str, int]
    weights: Mapping[str, float]
    other: Interesting | None = None


Operator = Callable[[Random, Interesting, Ground], Interesting | None]
"""Returns the changed run; None if there is nothing to change in this way."""


def vary(
    random: Random, parent: Interesting, ground: Ground, names: Sequence[str]
) -> Interesting | None:
    """Return a run that differs from an interesting one by the operators named, one after the
    other; None if none of them could change anything.
    """
    found = parent
    for name in names:
        for _ in range(TRIES):
            changed = OPERATORS[name](random, found, ground)
            if changed is not None and _is_allowed(changed, found, ground):
                found = changed
                break
    return None if found is parent else found


def branches(random: Random, parent: Interesting, ground: Ground) -> tuple[Interesting, ...]:
    """Return runs that part from an interesting one at a moment at which it reached something new,
    each by a few faults that are armed then; fewer than two are none.

    None needs another setting than the run has: they are alike from its start.
    """
    end_ms = ground.fault_space.fault_ms
    moments = [place.at_ms for place in parent.places if 0 < place.at_ms < end_ms]
    if not moments or any(fault.armed_after_ms for fault in parent.variation.faults):
        return ()
    after_ms = random.choice(moments)
    kinds = {fault.kind for fault in parent.variation.faults}  # for membership only
    found: list[Interesting] = []
    for _ in range(BRANCHES * TRIES):
        drawn = _drawn(random, ground)[: random.randint(1, ADDED_MAX)]
        later = tuple(_soon(random, fault, after_ms) for fault in drawn)
        changed = _with_faults(parent, (*parent.variation.faults, *later))
        added = [fault for fault in later if fault.kind not in kinds]
        is_alike = not settings_of_kinds(added, ground.fault_space)
        if later and is_alike and changed not in found and _is_allowed(changed, parent, ground):
            found.append(changed)
        if len(found) == BRANCHES:
            break
    return tuple(found) if len(found) > 1 else ()


def _soon(random: Random, fault: Fault, after_ms: int) -> Fault:
    """Return a fault that is armed at a moment, and happens soon after it."""
    match fault.trigger:
        case AtTime():
            trigger: Trigger = AtTime(at_ms=random.randint(0, random.choice((5, AROUND_MS, 500))))
        case (
            OnDisk(nth=nth)
            | OnEvent(nth=nth)
            | OnFrame(nth=nth)
            | OnState(nth=nth)
            | OnContact(nth=nth)
        ):
            trigger = replace(fault.trigger, nth=random.randint(1, min(nth, SOON)))
    return replace(fault, trigger=trigger, armed_after_ms=after_ms)


def _is_allowed(changed: Interesting, before: Interesting, ground: Ground) -> bool:
    """Return whether a change changes something, and loses no more data than the run before: a
    scenario's own schedule may exceed the budget of random faults.
    """
    faults, former = changed.variation.faults, before.variation.faults
    if changed == before or len(faults) > FAULTS_MAX:
        return False
    if faults == former:
        return True
    known = clashes(former, ground.fault_space)
    return all(each in known for each in clashes(faults, ground.fault_space))


def possible_kinds() -> tuple[FaultKind, ...]:
    """Return the kinds that random schedules have, in the order of their names."""
    return tuple(kind for kind in FAULTS.all() if SIM in kind.modes and not kind.is_drawn_apart)


# --------------------------------------------------------------------------------------------------
# Operators


def _add(random: Random, run: Interesting, ground: Ground) -> Interesting | None:
    """Add a few faults of the kinds that have paid."""
    drawn = _drawn(random, ground)[: random.randint(1, ADDED_MAX)]
    return _with_faults(run, (*run.variation.faults, *drawn)) if drawn else None


def _aim(random: Random, run: Interesting, ground: Ground) -> Interesting | None:
    """Add a fault at a moment at which the run reached something new."""
    drawn = _drawn(random, ground)
    if not drawn or not run.places:
        return None
    aimed = _aimed(random, drawn[0], random.choice(run.places), ground)
    return _with_faults(run, (*run.variation.faults, aimed))


def _move(random: Random, run: Interesting, ground: Ground) -> Interesting | None:
    """Let a fault of the schedule happen at such a moment instead."""
    faults = run.variation.faults
    if not faults or not run.places:
        return None
    place = random.randrange(len(faults))
    aimed = _aimed(random, faults[place], random.choice(run.places), ground)
    return _with_faults(run, (*faults[:place], aimed, *faults[place + 1 :]))


def _remove(random: Random, run: Interesting, ground: Ground) -> Interesting | None:
    """Remove one fault, or half of them: what else happened may have hidden something."""
    faults = run.variation.faults
    if not faults:
        return None
    if random.random() < 0.5:
        place = random.randrange(len(faults))
        return _with_faults(run, (*faults[:place], *faults[place + 1 :]))
    return _with_faults(run, tuple(each for each in faults if random.random() < 0.5))


def _retime(random: Random, run: Interesting, ground: Ground) -> Interesting | None:
    """Let a fault happen a little earlier or later, or at another occurrence of its trigger."""
    faults = run.variation.faults
    if not faults:
        return None
    place = random.randrange(len(faults))
    fault = faults[place]
    match fault.trigger:
        case AtTime(at_ms=at_ms):
            near = int(at_ms * random.choice((0.5, 0.9, 1.1, 1.5))) + random.randint(-5, 5)
            trigger = AtTime(at_ms=min(max(1, near), ground.fault_space.fault_ms))
            later = replace(fault, trigger=trigger)
        case (
            OnDisk(nth=nth)
            | OnEvent(nth=nth)
            | OnFrame(nth=nth)
            | OnState(nth=nth)
            | OnContact(nth=nth)
        ):
            other = max(1, random.choice((nth - 1, nth + 1, nth * 2, nth // 2, 1)))
            later = replace(fault, trigger=replace(fault.trigger, nth=other))
    return _with_faults(run, (*faults[:place], later, *faults[place + 1 :]))


def _retarget(random: Random, run: Interesting, ground: Ground) -> Interesting | None:
    """Draw a fault again: of the same kind, with another target, trigger or parameters."""
    faults = run.variation.faults
    if not faults:
        return None
    place = random.randrange(len(faults))
    kinds = [kind for kind in possible_kinds() if kind.name == faults[place].kind]
    drawn = draw_faults(random, ground.fault_space, kinds)
    return _with_faults(run, (*faults[:place], drawn[0], *faults[place + 1 :])) if drawn else None


def _splice(random: Random, run: Interesting, ground: Ground) -> Interesting | None:
    """Join the beginning of this schedule and the end of another one."""
    if ground.other is None:
        return None
    mine, others = run.variation.faults, ground.other.variation.faults
    joined = (
        *mine[: random.randint(0, len(mine))],
        *others[random.randint(0, len(others)) :],
    )
    return _with_faults(run, joined)


def _settings(random: Random, run: Interesting, ground: Ground) -> Interesting | None:
    """Draw settings again."""
    drawn = draw_settings(random, ground.fault_space)
    settings = {**run.variation.settings, **drawn}
    return replace(run, variation=replace(run.variation, settings=settings)) if drawn else None


def _work(random: Random, run: Interesting, ground: Ground) -> Interesting | None:
    """Reduce a workload parameter by half. More than its default is not tried: the time that a
    scenario allows for its workload belongs to that.
    """
    names = [name for name, value in ground.workload.items() if value > 1]
    if not names:
        return None
    name = random.choice(names)
    value = run.variation.workload.get(name, ground.workload[name])
    workload = {**run.variation.workload, name: max(1, value // 2)}
    return replace(run, variation=replace(run.variation, workload=workload))


def _speeds(random: Random, run: Interesting, ground: Ground) -> Interesting | None:
    """Draw the speeds of network and disks again."""
    around = draw_run_environment(random, random)
    return replace(run, variation=replace(run.variation, surroundings=around))


def _reseed(random: Random, run: Interesting, ground: Ground) -> Interesting | None:
    """Change the seed: the same faults, other interleavings and other settings."""
    return replace(run, seed=random.randrange(1, 1 << 31))


OPERATORS: Final[Mapping[str, Operator]] = {
    "add": _add,
    "aim": _aim,
    "move": _move,
    "remove": _remove,
    "retime": _retime,
    "retarget": _retarget,
    "splice": _splice,
    "settings": _settings,
    "work": _work,
    "speeds": _speeds,
    "reseed": _reseed,
}


def _with_faults(run: Interesting, faults: tuple[Fault, ...]) -> Interesting:
    return replace(run, variation=replace(run.variation, faults=faults))


def _drawn(random: Random, ground: Ground) -> tuple[Fault, ...]:
    """Draw faults of a few kinds, by weight; none if the scenario can have none of these."""
    kinds = possible_kinds()
    weights = [ground.weights.get(kind.name, 1.0) for kind in kinds]
    chosen = random.choices(kinds, weights, k=KINDS_TRIED)
    unlike = list({kind.name: kind for kind in chosen}.values())
    return draw_faults(random, ground.fault_space, unlike)


def _aimed(random: Random, fault: Fault, place: FeaturePlace, ground: Ground) -> Fault:
    """Return a fault at a moment of interest, mostly at the node of that moment."""
    kind = FAULTS.named(fault.kind)
    fault_space = ground.fault_space
    target = fault.target
    may_hit = (
        kind.aim is Aim.HOST
        and place.node in fault_space.nodes
        and fault_space.role_of(place.node) not in kind.spares
    )
    if may_hit and (target == AT_THE_TRIGGER or random.random() < 0.7):
        target = place.node
    if target == AT_THE_TRIGGER and kind.aim is not Aim.ALL:
        return fault
    if isinstance(fault.trigger, OnContact) and target == fault.target:
        return fault  # its target is known at a first contact only
    if "event" in kind.triggers_on and random.random() < 0.7:
        trigger: AtTime | OnEvent = OnEvent(kind=place.kind, host=place.node, nth=place.nth)
    elif "time" in kind.triggers_on:
        spread = random.choice((1, 5, AROUND_MS))
        trigger = AtTime(at_ms=max(1, place.at_ms + random.randint(-spread, spread)))
    else:
        return fault
    return replace(fault, target=target, trigger=trigger)

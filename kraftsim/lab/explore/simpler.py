"""Simpler forms of a fault, a workload parameter or a number of nodes: the candidates that
shrinking tries, the simplest first.

Shorter is simpler than longer, the default of a parameter than another value, the first time than
the nth, a round number than another one.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from kraftsim.lab.faults.fault import FAULTS, Fault, Value
from kraftsim.lab.faults.trigger import AtTime, OnDisk, OnEvent, OnFrame, OnState, Trigger

SHORT_MS: Final = 100
FEW: Final = 8
"""Numbers up to this one are tried one by one."""
MILLISECONDS: Final = "_ms"


def simpler_faults(fault: Fault) -> Iterator[Fault]:
    """Yield faults that are simpler in one respect."""
    for trigger in _simpler_triggers(fault.trigger):
        yield msgspec.structs.replace(fault, trigger=trigger)
    usual = FAULTS.named(fault.kind).params
    for name, value in fault.params.items():
        for simpler in _simpler_values(name, value, usual[name]):
            params = {**fault.params, name: simpler}
            yield msgspec.structs.replace(fault, params=params)


def fewer(value: int, *, least: int = 0) -> Iterator[int]:
    """Yield smaller numbers, the smallest first: none, a tenth, half, a little less, and round
    ones.
    """
    tried = {value}  # for membership only, never iterated
    nearly = value - 1 if value <= FEW else value * 3 // 4
    for candidate in (
        least,
        rounded(value // 10),
        rounded(value // 2),
        rounded(nearly),
        rounded(value),
    ):
        if least <= candidate < value and candidate not in tried:
            tried.add(candidate)
            yield candidate


def rounded(value: int) -> int:
    """Return a number with its first digit kept: 1985 is 1000."""
    scale = int(10 ** (len(str(value)) - 1))
    return value // scale * scale


def _simpler_values(name: str, value: Value, usual: Value) -> Iterator[Value]:
    if isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int) and name.endswith(MILLISECONDS):
        tried = {value}  # for membership only, never iterated
        for candidate in (SHORT_MS, rounded(value // 2), rounded(value)):
            if 0 < candidate < value and candidate not in tried:
                tried.add(candidate)
                yield candidate
    elif value != usual:
        yield usual


def _simpler_triggers(trigger: Trigger) -> Iterator[Trigger]:
    match trigger:
        case AtTime():
            at_ms = rounded(trigger.at_ms) if trigger.at_ms else 0
            for candidate in (at_ms, trigger.at_ms // SHORT_MS * SHORT_MS):
                if candidate < trigger.at_ms:
                    yield AtTime(at_ms=candidate)
        case OnEvent():
            if trigger.fields:
                yield msgspec.structs.replace(trigger, fields={})
            yield from (
                msgspec.structs.replace(trigger, nth=nth) for nth in _fewer_times(trigger.nth)
            )
        case OnDisk() | OnFrame() | OnState():
            yield from (
                msgspec.structs.replace(trigger, nth=nth) for nth in _fewer_times(trigger.nth)
            )


def _fewer_times(nth: int) -> Iterator[int]:
    tried = {nth}  # for membership only, never iterated
    for candidate in (1, nth // 2, rounded(nth)):
        if 1 <= candidate < nth and candidate not in tried:
            tried.add(candidate)
            yield candidate

"""Describes a small failing run in words: the nodes, each fault with its target and time, and the
violation.
"""

from pathlib import Path
from typing import Final

from kraftsim.lab.explore.record import REPLAY_FILE
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.lab.explore.shrink import Shrunken
from kraftsim.lab.explore.trace import api_name
from kraftsim.lab.faults.fault import (
    FAULTS,
    AtTime,
    Family,
    Fault,
    OnContact,
    OnDisk,
    OnEvent,
    OnFrame,
    Trigger,
)

DESCRIPTION_FILE: Final = "description.md"
NANOSECONDS: Final = 1e9
MILLISECONDS: Final = 1000
FILES: Final = {
    "metadata-log": "the metadata log",
    "partition-log": "a partition's log",
    "quorum-state": "quorum-state",
    "checkpoint": "a checkpoint",
    "offset-index": "an offset index",
    "time-index": "a time index",
    "transaction-index": "a transaction index",
    "producer-snapshot": "a producer snapshot",
    "leader-epochs": "a leader-epoch-checkpoint",
    "high-watermarks": "replication-offset-checkpoint",
    "log-starts": "log-start-offset-checkpoint",
    "other": "another file",
}


def scenario(
    shrunken: Shrunken, *, scenario: str, seed: int, bugs: tuple[str, ...], replay: str
) -> str:
    """Return the description of a shrunken run, as Markdown."""
    candidate = shrunken.candidate
    parameters = ", ".join(
        f"{parameter} {value}" for parameter, value in candidate.workload.items()
    )
    with_bugs = f", with {' and '.join(bugs)}" if bugs else ""
    lines = [
        f"# {scenario}, seed {seed}{with_bugs}",
        "",
        (
            f"{_count(candidate.controllers, 'controller')} and "
            f"{_count(candidate.brokers, 'broker')}; workload: {parameters or 'defaults'}."
        ),
        "",
        *(_numbered(shrunken) or ["No fault is needed."]),
        "",
        (
            f"At {shrunken.found_at_ns / NANOSECONDS:.3f} s **{shrunken.finding}**: "
            f"{shrunken.message}."
        ),
        "",
        f"Of {shrunken.faults_before} faults {_count(len(candidate.faults), 'fault')} "
        f"{'is' if len(candidate.faults) == 1 else 'are'} left, after {shrunken.runs} runs and "
        f"{shrunken.cpu_seconds:.1f} CPU seconds. "
        + (
            "No single step makes it smaller."
            if shrunken.is_smallest
            else "The budget was spent before the run was minimal."
        ),
        "",
        f"Replay: `{replay}`",
    ]
    return "\n".join(lines) + "\n"


def fault_text(fault: Fault, affected: str | None = None) -> str:
    """Return a fault, its target and its time as a phrase.

    `affected` is the target that was resolved in the run.
    """
    target = fault.target if affected is None else affected
    kind = FAULTS.named(fault.kind)
    details = [
        text
        for name, value in sorted({**kind.params, **fault.params}.items())
        if (text := _param_text(kind.family, name, value))
    ]
    what = f"{fault.kind} of {target}" if target else fault.kind
    later = f", armed {_time(fault.armed_after_ms)} later" if fault.armed_after_ms else ""
    when = trigger_text(fault.trigger, target)
    return f"{what}{' ' if details else ''}{', '.join(details)}, {when}{later}"


def trigger_text(trigger: Trigger, target: str) -> str:
    """Return the time as a phrase; events at the target itself are "its"."""
    match trigger:
        case AtTime(at_ms=at_ms):
            return f"{_time(at_ms)} after faults begin"
        case OnDisk():
            what = "any file" if trigger.file_class is None else FILES[trigger.file_class]
            return (
                f"{trigger.moment} {_whose(trigger.host, target)} {_nth(trigger.nth)} "
                f"{trigger.operation} of {what}"
            )
        case OnEvent():
            wanted = "".join(f" with {name} {value}" for name, value in trigger.fields.items())
            return (
                f"right after {_whose(trigger.host, target)} {_nth(trigger.nth)} "
                f"{trigger.kind}{wanted}"
            )
        case OnFrame():
            what = (
                f"{_nth(trigger.nth)} {api_name(trigger.api_key)} "
                f"{'answer' if trigger.is_response else 'request'}"
            )
            source, end = (
                (trigger.server, trigger.client)
                if trigger.is_response
                else (trigger.client, trigger.server)
            )
            end_text = f" to {end}" if end else ""
            return f"{trigger.moment} {_whose(source, target)} {what}{end_text} is sent"
        case OnContact():
            what = (
                "connects"
                if trigger.request == 0
                else f"sends its {_nth(trigger.request)} "
                + ("" if trigger.api_key is None else f"{api_name(trigger.api_key)} ")
                + "request"
            )
            return (
                f"before the {_nth(trigger.nth)} process of {trigger.client or 'any host'} {what} "
                f"to {trigger.service}"
            )
        case _:
            return str(trigger)


def _numbered(shrunken: Shrunken) -> list[str]:
    seen, faults = shrunken.seen, shrunken.candidate.faults
    lines = []
    for number, (place, affected, at_ns) in enumerate(
        zip(seen.fired, seen.affected, seen.fired_at_ns, strict=True), 1
    ):
        lines.append(
            f"{number}. {at_ns / NANOSECONDS:.3f} s: {fault_text(faults[place], affected)}"
        )
    return lines


def _param_text(family: Family, name: str, value: object) -> str:
    match name, value:
        case "power_loss", True:
            return "with power loss"
        case "power_loss", _:
            return ""
        case "duration_ms", 0:
            return "until all faults are healed"
        case "duration_ms", int():
            return f"for {_time(value)}"
        case "after_ms", int() if family is Family.PROCESS:
            return f"back after {_time(value)}"
        case _, None:
            return ""
        case _, int() if name.endswith("_ms"):
            return f"{name.removesuffix('_ms').replace('_', ' ')} {_time(value)}"
        case _:
            return f"{name.replace('_', ' ')} {value}"


def _whose(host: str | None, target: str) -> str:
    if host is None:
        return "any node's" if not target else "the"
    return "its" if host == target else f"{host}'s"


def _nth(nth: int) -> str:
    ending = "th" if nth % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(nth % 10, "th")
    return f"{nth}{ending}"


def _time(milliseconds: int) -> str:
    return (
        f"{milliseconds} ms"
        if abs(milliseconds) < MILLISECONDS
        else f"{milliseconds / MILLISECONDS:g} s"
    )


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


# --------------------------------------------------------------------------------------------------
# Saves the result of shrinking: the small run, executed in full, and its description


def keep(shrunken: Shrunken, request: RunRequest, out: Path) -> str:
    """Execute the small run in full into a directory, write its description there, and return
    that.
    """
    result = run_request(shrunken.candidate.request(request), out)
    shows_it = (
        shrunken.finding.invariant is None
        or shrunken.finding.invariant in result.invariants_violated
    )
    assert shows_it and result.outcome != "ok", (
        f"the small run must fail as the large one did, not: {result.outcome} {result.trouble}"
    )
    replay = f"kraftsim replay {out / REPLAY_FILE}"
    text = scenario(
        shrunken,
        scenario=request.scenario.name,
        seed=request.seed,
        bugs=request.bugs,
        replay=replay,
    )
    (out / DESCRIPTION_FILE).write_text(text)
    return text

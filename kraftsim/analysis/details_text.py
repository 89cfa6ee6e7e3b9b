"""A violation as text: what broke, its witnesses, what lies between them, the replicas, and how to
reproduce it. Every line is safe for a terminal.
"""

from collections.abc import Iterator
from typing import Final

from kraftsim.analysis.incident import EventsBetween, Incident
from kraftsim.analysis.replica_states import ReplicaState
from kraftsim.analysis.reproduction import Reproduction
from kraftsim.analysis.sentences import printable
from kraftsim.analysis.witnesses import Witness

AROUND_PRINTED_MAX: Final = 8
FAULTS_PRINTED_MAX: Final = 4
FAULT: Final = "FaultInjected"


def incident_lines(incident: Incident) -> Iterator[str]:
    """Return a violation as text, at most a screen of it."""
    yield f"  what broke: {incident.invariant} ({incident.source})"
    yield f"    {incident.rule}"
    yield f"    {printable(incident.message)}"
    for number, witness in enumerate(incident.witnesses, 1):
        yield f"    {number}. {_line(witness)}"
    shown = _shown(incident.around)
    if shown:
        left_out = incident.around_count - len(shown)
        notes = ["> leads to it"] if any(each.leads for each in shown) else []
        notes += [f"{left_out:,} more in the report or the event log"] if left_out > 0 else []
        note = f" ({', '.join(notes)})" if notes else ""
        yield f"    {where(incident)}, on {printable(incident.subject)}{note}:"
        for each in shown:
            yield f"     {'>' if each.leads else ' '} {_line(each.event)}"
    if incident.replicas:
        yield f"    replicas of {printable(incident.log)} at that moment:"
        for replica in incident.replicas:
            yield f"      {_replica(replica)}"


def where(incident: Incident) -> str:
    """Return where the events of an incident lie."""
    places = {each.place for each in incident.around}
    return "between" if places <= {"between"} else "around"


def reproduction_lines(found: Reproduction) -> Iterator[str]:
    """Return how to reproduce a violation as text."""
    if found.shrunk:
        few = "1 fault" if found.fault_count == 1 else f"{found.fault_count} faults"
        yield f"  shrunk to {few} in {printable(found.shrunk)}:"
        for fault in found.faults[:FAULTS_PRINTED_MAX]:
            yield f"    {printable(fault)}"
    if found.difference:
        yield f"  first difference to the sound run {printable(found.sound)}:"
        for sentence in found.difference:
            yield f"    {printable(sentence)}"
    for step in found.steps:
        yield f"  next: {printable(step)}"
    if found.command:
        yield f"  replay: {printable(found.command)}"


def _shown(around: tuple[EventsBetween, ...]) -> tuple[EventsBetween, ...]:
    """Return faults and the events that lead to the violation, the latest, in the order of time;
    then others.
    """
    ordered = sorted(
        around,
        key=lambda each: (not each.leads and each.event.kind != FAULT, -each.event.position),
    )
    return tuple(sorted(ordered[:AROUND_PRINTED_MAX], key=lambda each: each.event.position))


def _line(event: Witness) -> str:
    return f"{event.t_ns / 1e9:.6f} s  {event.sentence}  [{printable(event.event_id)}]"


def _replica(replica: ReplicaState) -> str:
    figures = (
        ("leader epoch", replica.leader_epoch),
        ("end", replica.log_end_offset),
        ("flushed", replica.flushed_offset),
        ("high watermark", replica.high_watermark),
    )
    text = ", ".join(f"{name} {'-' if value is None else f'{value:,}'}" for name, value in figures)
    role = f" ({printable(replica.role)})" if replica.role else ""
    return f"{printable(replica.node)}{role}: {text}"

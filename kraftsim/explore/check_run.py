"""Feeds a run's events to the invariants, while it happens (simulation) or afterwards from the files (the other modes)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kraftsim.events.catalogue import KINDS
from kraftsim.events.event import ENVELOPE_FIELDS, Event
from kraftsim.invariants.oracle import Envelope, Oracle
from kraftsim.invariants.verdict import Verdict

Noted = tuple[Envelope, Event]


def read_events(events_dir: Path) -> list[Noted]:
    """Return every event of a run in order of time; a torn last line and lines of unknown kinds are skipped."""
    entries: list[Noted] = []
    for path in sorted(events_dir.glob("*.jsonl")):
        entries += _events_of(path)
    entries.sort(key=lambda each: (each[0].t_ns, each[0].node, each[0].incarnation, each[0].n))
    return entries


def check_run(entries: Sequence[Noted], must_exercise: Sequence[str]) -> tuple[Verdict, ...]:
    """Return the result of every invariant over a finished run."""
    oracle = Oracle(must_exercise=must_exercise)
    for envelope, event in entries:
        oracle.examine(envelope, event)
    return oracle.finish()


def _events_of(path: Path) -> Iterator[Noted]:
    for line in path.read_bytes().split(b"\n"):
        try:
            fields: dict[str, Any] = msgspec.json.decode(line) if line else {}
        except msgspec.DecodeError:
            continue
        kind = KINDS.get(fields.get("kind", ""))
        if kind is not None:
            envelope = Envelope(node=fields["node"], incarnation=fields["incarnation"], n=fields["n"], t_ns=fields["t_ns"])
            own = {name: value for name, value in fields.items() if name not in ENVELOPE_FIELDS}
            yield envelope, msgspec.convert(own, kind, str_keys=True)

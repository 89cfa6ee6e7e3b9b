"""Histories of events that a test writes by hand, for an invariant of its own: checked online, and
written as a run for the SQL.

    verdict = check_events(INVARIANT, [("broker-1", returned(1000)), ("broker-2", returned(1000))])
    run = kraftsim.open_run(write_events(history, tmp_path / "run"))
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from kraftsim.events.event import Event, LineEncoder, event_file_name
from kraftsim.invariants.invariant import Envelope, Invariant
from kraftsim.invariants.verdict import Verdict

STEP_NS = 1_000_000
"""Events are a millisecond apart."""


def check_events(invariant: Invariant, history: Iterable[tuple[str, Event]]) -> Verdict:
    """Return the verdict of an invariant on events in the order of time, each with the name of its
    node.
    """
    check = invariant.check()
    for envelope, event in _logged(history):
        if isinstance(event, invariant.watches):
            check.examine(envelope, event)
    return check.finish()


def write_events(history: Iterable[tuple[str, Event]], run: Path) -> Path:
    """Write events in the order of time, each with the name of its node, as the event logs of a run
    into its directory, and return that: for `kraftsim.open_run` and `kraftsim analyze`.
    """
    events = run / "events"
    events.mkdir(parents=True)
    for envelope, event in _logged(history):
        encoder = LineEncoder(run.name, envelope.node, envelope.incarnation)
        line = encoder.line(envelope.n, envelope.t_ns, envelope.t_ns // STEP_NS, event)
        with (events / event_file_name(envelope.node, envelope.incarnation)).open("ab") as log:
            log.write(line)
    return run


def _logged(history: Iterable[tuple[str, Event]]) -> Iterator[tuple[Envelope, Event]]:
    lines: Counter[str] = Counter()
    for number, (node, event) in enumerate(history):
        yield Envelope(node=node, incarnation=1, n=lines[node], t_ns=number * STEP_NS), event
        lines[node] += 1

"""Builds histories for tests: events on nodes, with the envelopes of a real run, in memory or
written as the event log of a run.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kraftsim.events.event import Event, LineEncoder, event_file_name
from kraftsim.invariants.invariant import Envelope, Oracle
from kraftsim.invariants.verdict import Outcome, Verdict

STEP_NS = 1_000
LoggedEvent = tuple[str, Event] | tuple[str, int, Event]
"""A node, its incarnation if it is not the first one, and the event."""
Row = (
    tuple[str, str, Sequence[LoggedEvent], Outcome, int]
    | tuple[str, str, Sequence[LoggedEvent], Outcome, int, tuple[str, ...]]
    | tuple[
        str, str, Sequence[LoggedEvent], Outcome, int, tuple[str, ...], tuple[tuple[str, ...], ...]
    ]
)
"""A row of the table in `cases.py`, as the arguments of a `Case`: violations and evidence may be
missing.
"""


class History:
    """Events in the order in which they are logged, a microsecond apart."""

    def __init__(self, run: str = "run") -> None:
        self.run = run
        self.events: list[tuple[Envelope, Event]] = []
        self._next_n: Counter[tuple[str, int]] = Counter()
        self._now_ns = 0

    def emit(
        self, node: str, event: Event, *, incarnation: int = 1, after_ns: int = STEP_NS
    ) -> str:
        """Add an event and return its id."""
        self._now_ns += after_ns
        n = self._next_n[node, incarnation]
        self._next_n[node, incarnation] += 1
        envelope = Envelope(node=node, incarnation=incarnation, n=n, t_ns=self._now_ns)
        self.events.append((envelope, event))
        return envelope.event_id

    def lose(self, node: str, incarnation: int = 1) -> None:
        """Skip a line number, as if its line were lost."""
        self._next_n[node, incarnation] += 1

    def write(self, run: Path) -> None:
        """Write RUN/events/*.jsonl."""
        (run / "events").mkdir(parents=True, exist_ok=True)
        lines: dict[str, list[bytes]] = {}
        for envelope, event in self.events:
            encoder = LineEncoder(self.run, envelope.node, envelope.incarnation)
            lines.setdefault(event_file_name(envelope.node, envelope.incarnation), []).append(
                encoder.line(envelope.n, envelope.t_ns, 0, event)
            )
        for name, content in lines.items():
            (run / "events" / name).write_bytes(b"".join(content))

    def check_results(self, must_exercise: tuple[str, ...] = ()) -> dict[str, Verdict]:
        """Return the results of the online checks, by invariant."""
        oracle = Oracle(must_exercise)
        for envelope, event in self.events:
            oracle.examine(envelope, event)
        return {verdict.invariant: verdict for verdict in oracle.finish()}

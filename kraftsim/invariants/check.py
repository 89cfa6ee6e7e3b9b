"""What a check of an invariant is, and what it receives beside each event."""

from typing import Protocol

import msgspec

from kraftsim.events.event import Event
from kraftsim.invariants.verdict import Verdict, Violation


class Envelope(msgspec.Struct, gc=False):
    """Where and when an event was emitted; its line in the event log has the same fields.

    Not frozen: several invariants note the id of one event, and it is built once.
    """

    node: str
    incarnation: int
    n: int
    t_ns: int
    _event_id: str = ""

    @property
    def event_id(self) -> str:
        """Return the id of the event, unique within its run."""
        known = self._event_id
        if not known:
            known = self._event_id = f"{self.node}.{self.incarnation}.{self.n}"
        return known


class Check(Protocol):
    """Checks one run.

    It receives every event of the kinds it watches, in order of time; `finish` returns its verdict.
    """

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process one event; return a violation if this event is the first to show it."""
        ...

    def finish(self) -> Verdict:
        """Return the verdict over everything examined, with the violations that only the end of the
        run shows.
        """
        ...

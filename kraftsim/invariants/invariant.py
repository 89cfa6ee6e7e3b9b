"""What an invariant is: one rule in two forms that must agree, a check that is fed events as they happen, and SQL over the event log.

The check stops a simulation at the first breach; the SQL judges any run of any size afterwards. Tests hold the two to each other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from kraftsim.catalogue import Catalogue
from kraftsim.events.event import Event
from kraftsim.invariants.verdict import VIOLATIONS_KEPT_MAX, Verdict, Violation, judge


class Envelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where and when an event was noted; its line in the event log carries the same."""

    node: str
    incarnation: int
    n: int
    t_ns: int

    @property
    def event_id(self) -> str:
        """Name the event within its run."""
        return f"{self.node}.{self.incarnation}.{self.n}"


class Check(Protocol):
    """Watches one run. It is fed every event of the kinds it watches, in order of time, then asked for its verdict."""

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Take in one event; return a violation if this event is the first to show it."""
        ...

    def finish(self) -> Verdict:
        """Return the verdict over everything examined, with the violations that only the end of the run shows."""
        ...


class Findings:
    """What a check has found so far: it counts what was examined and keeps each breach once, by its key."""

    def __init__(self, invariant: str) -> None:
        self._invariant = invariant
        self._violations: list[Violation] = []
        self._keys: set[str] = set()  # for membership only, never iterated
        self.examined = 0

    def violation(self, key: str, message: str, *witnesses: str) -> Violation | None:
        """Record a breach and return it, or None if that key was breached before."""
        if key in self._keys:
            return None
        self._keys.add(key)
        violation = Violation(invariant=self._invariant, key=key, message=message, witnesses=witnesses)
        if len(self._violations) < VIOLATIONS_KEPT_MAX:
            self._violations.append(violation)
        return violation

    def verdict(self, undecidable: str = "") -> Verdict:
        """Return the verdict over what was found; `undecidable` says why nothing can be concluded from finding no breach."""
        return judge(
            self._invariant,
            examined=self.examined,
            violation_count=len(self._keys),
            violations=tuple(self._violations),
            undecidable=undecidable,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Invariant:
    """One rule.

    The SQL texts read one view per event kind, called as the kind in snake_case, with the event's fields, the envelope's columns, and `position`:
    the event's place in its run's order of time. The views may hold many runs at once, told apart by `run`: every join, partition and group is
    by run, too. They keep to what Spark SQL and DuckDB share; `offset` must be qualified, it is a word of SQL.
    - `examined`: run and how many events the rule was applied to; no row where there were none.
    - `violations`: one row per breach: `run`, `key`, `message`, `first_witness`, `second_witness` (positions; the second may be null).
    - `undecidable`: rows with `run` and `reason`; any row makes "found nothing" mean unknown. Empty where that cannot happen.
    """

    name: str
    rule: str
    source: str
    watches: tuple[type[Event], ...]
    check: Callable[[], Check]
    examined: str
    violations: str
    undecidable: str = ""
    ends_run: bool = True
    """Whether a simulation stops at the first breach. Not where that harms nobody yet: then the run goes on and shows what comes of it."""


APART = (
    "oracle",
    "unclean_elections",
    "overtaken_beginnings",
    "cleaned_logs",
    "spoilt_disks",
    "verdict",
)
INVARIANTS: Catalogue[Invariant] = Catalogue("kraftsim.invariants", "INVARIANT", Invariant, apart=APART)

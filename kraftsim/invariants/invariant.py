"""Defines an invariant: one property in two equivalent forms, a check that receives events as they
happen, and SQL over the event log.

The check stops a simulation at the first violation; the SQL checks a finished run of any size.
Tests verify that both give the same result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kraftsim import former_names
from kraftsim.catalogue import Catalogue
from kraftsim.events.event import Event
from kraftsim.events.runs import MetadataLogBegun
from kraftsim.invariants.check import Check, Envelope
from kraftsim.invariants.metadata_log import WithinMetadataLog
from kraftsim.invariants.permitted_losses import TopicNames
from kraftsim.invariants.verdict import VIOLATIONS_KEPT_MAX, Verdict, Violation, verdict_of
from kraftsim.metadata.events import TopicDeleted


class Findings:
    """The results of a check so far: the number of events examined, and each violation once, by its
    key.
    """

    def __init__(self, invariant: str) -> None:
        self._invariant = invariant
        self._violations: list[Violation] = []
        self._keys: set[str] = set()  # for membership only, never iterated
        self.examined = 0

    def violation(self, key: str, message: str, *witnesses: str) -> Violation | None:
        """Record a violation and return it, or None if one with that key was recorded before."""
        if key in self._keys:
            return None
        self._keys.add(key)
        violation = Violation(
            invariant=self._invariant, key=key, message=message, witnesses=witnesses
        )
        if len(self._violations) < VIOLATIONS_KEPT_MAX:
            self._violations.append(violation)
        return violation

    def verdict(self, undecidable: str = "") -> Verdict:
        """Return the verdict; `undecidable` is the reason why the absence of violations proves
        nothing, if any.
        """
        return verdict_of(
            self._invariant,
            examined=self.examined,
            violation_count=len(self._keys),
            violations=tuple(self._violations),
            undecidable=undecidable,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Invariant:
    """One property that every run must have.

    The SQL texts read one view per event kind, called as the kind in snake_case, with the event's
    fields, the envelope's columns, and `position`: the event's place in its run's order of time.
    The views may hold many runs at once, distinguished by `run`: every join, partition and group is
    by run, too. They use only what Spark SQL and DuckDB have in common; `offset` must be qualified,
    it is an SQL keyword.
    - `examined`: run and the number of events that were checked; no row for a run with none.
    - `violations`: one row per violation: `run`, `key`, `message`, `first_witness`,
      `second_witness` (positions; the second may be null).
    - `undecidable`: rows with `run` and `reason`; any row turns a result without violations into
      unknown. Empty if that cannot happen.
    """

    name: str
    rule: str
    source: str
    watches: tuple[type[Event], ...]
    check: Callable[[], Check]
    examined: str
    violations: str
    undecidable: str = ""
    needs_examined: bool = True
    """Whether every violation is shown by an event that was examined: then the SQL for violations
    is only run where something was.
    """
    ends_run: bool = True
    """Whether a simulation stops at the first violation.

    False where a violation has no effect yet: the run continues and shows its consequences.
    """
    within_metadata_log: bool = False
    """Whether it holds for each metadata log by itself, because it compares offsets, epochs,
    snapshots or records of one: see `kraftsim.invariants.metadata_log`. What must hold from one log
    to the next does not have it.
    """
    decides_without_nodes: bool = False
    """Whether what clients, the harness and the disks say is enough: events of nodes, if it watches
    any, add evidence, or excuse what a disk shows, too.

    An invariant that watches no event of a node needs no True: see
    `kraftsim.invariants.without_nodes`.
    """

    @property
    def kinds(self) -> tuple[type[Event], ...]:
        """The kinds of events that its check and its SQL read: those that it watches, and what
        separates metadata logs.
        """
        return (*self.watches, MetadataLogBegun) if self.within_metadata_log else self.watches

    def new_check(self) -> Check:
        """Return a check for one run."""
        return WithinMetadataLog(self.check) if self.within_metadata_log else self.check()

    def for_run(self, verdict: Verdict, *, must_exercise: bool) -> Verdict:
        """Return a verdict of the check or of the SQL as that of a run; see `Verdict.for_run`."""
        return verdict.for_run(rule=self.rule, source=self.source, must_exercise=must_exercise)


INVARIANTS: Catalogue[Invariant] = Catalogue(
    "kraftsim.*.invariants", "INVARIANT", Invariant, former=former_names.INVARIANTS
)


# --------------------------------------------------------------------------------------------------
# Runs the checks of all invariants over one run; a simulation passes its events here
#
# It never raises: it returns violations, so that the harness, outside every node's task, decides
# whether to stop.

__all__ = ["Check", "Envelope", "Oracle"]

Examine = Callable[[Envelope, Event], Violation | None]


class Oracle:
    """Passes events to the checks that watch them, but those about a topic that was deleted:
    see `TopicNames`.

    `must_exercise` names the invariants that must examine at least one event.
    """

    def __init__(
        self, must_exercise: Sequence[str] = (), invariants: Sequence[Invariant] | None = None
    ) -> None:
        watched = INVARIANTS.all() if invariants is None else tuple(invariants)
        unknown = sorted(set(must_exercise) - {invariant.name for invariant in watched})
        if unknown:
            raise KeyError(
                f"no invariant is called {unknown[0]} (there are: "
                f"{', '.join(invariant.name for invariant in watched)})"
            )
        self._must_exercise = frozenset(must_exercise)
        self._names = TopicNames()
        self._ends_run = {invariant.name: invariant.ends_run for invariant in watched}
        self._checks: list[tuple[Invariant, Check]] = [
            (invariant, invariant.new_check()) for invariant in watched
        ]
        self._by_kind: dict[type[Event], list[Check]] = {TopicDeleted: []}
        self._direct: dict[type[Event], list[Examine]] = {}
        """The functions of the checks of a kind, for `examiner`."""
        for invariant, check in self._checks:
            for kind in invariant.kinds:
                self._by_kind.setdefault(kind, []).append(check)

    def watches(self, event: Event) -> bool:
        """Return whether any invariant watches events of this kind."""
        return type(event) in self._by_kind

    @property
    def kinds(self) -> tuple[type[Event], ...]:
        """The kinds of events that any invariant watches."""
        return tuple(self._by_kind)

    def examine(self, envelope: Envelope, event: Event) -> tuple[Violation, ...]:
        """Pass one event to its checks, in order of time; return the violations."""
        checks = self._by_kind.get(type(event))
        if checks is None or self._names.is_ambiguous(event):
            return ()
        found = None
        for check in checks:
            violation = check.examine(envelope, event)
            if violation is not None:
                found = (*(found or ()), violation)
        return found or ()

    def examiner(
        self, kind: type[Event], report: Callable[[Violation], object]
    ) -> Callable[[str, int, int, int, Event], None]:
        """Return a function of (node, incarnation, n, t_ns, event) that passes an event of a kind
        to its checks, and reports the violations at which a simulation stops.

        The checks of the kind are looked up once: this runs for every event of a simulation.
        """
        examines = self._direct[kind] = self._examines_of(kind)
        names = self._names
        is_ambiguous = names.is_ambiguous

        def examine(node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
            if (names.has_deleted or kind is TopicDeleted) and is_ambiguous(event):
                return
            envelope = Envelope(node, incarnation, n, t_ns)
            found: tuple[Violation, ...] | None = None
            for each in examines:
                violation = each(envelope, event)
                if violation is not None:
                    found = (*(found or ()), violation)
            if kind is MetadataLogBegun:
                for each_kind, direct in self._direct.items():
                    direct[:] = self._examines_of(each_kind)
            if found is None:
                return
            for violation in found:
                if self._ends_run[violation.invariant]:
                    report(violation)

        return examine

    def _examines_of(self, kind: type[Event]) -> list[Examine]:
        checks = self._by_kind[kind]
        if kind is MetadataLogBegun:
            return [check.examine for check in checks]
        return [
            check.direct if isinstance(check, WithinMetadataLog) else check.examine
            for check in checks
        ]

    def is_final(self, violation: Violation) -> bool:
        """Return whether a simulation stops at a violation."""
        return self._ends_run[violation.invariant]

    def finish(self) -> tuple[Verdict, ...]:
        """Return the verdict of every invariant, in the order of their names."""
        verdicts = (
            invariant.for_run(check.finish(), must_exercise=invariant.name in self._must_exercise)
            for invariant, check in self._checks
        )
        return tuple(sorted(verdicts, key=lambda verdict: verdict.invariant))

"""Runs the checks of all invariants over one run; a simulation passes its events here.

It never raises: it returns violations, so that the harness, outside every node's task, decides
whether to stop.
"""

from collections.abc import Sequence

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import INVARIANTS, Check, Envelope, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

__all__ = ["Envelope", "Oracle"]


class Oracle:
    """Passes events to the checks that watch them.

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
        self._ends_run = {invariant.name: invariant.ends_run for invariant in watched}
        self._checks: list[tuple[Invariant, Check]] = [
            (invariant, invariant.check()) for invariant in watched
        ]
        self._by_kind: dict[type[Event], list[Check]] = {}
        for invariant, check in self._checks:
            for kind in invariant.watches:
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
        if checks is None:
            return ()
        found = None
        for check in checks:
            violation = check.examine(envelope, event)
            if violation is not None:
                found = (*(found or ()), violation)
        return found or ()

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

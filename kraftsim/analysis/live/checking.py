"""Passes ordered lines to the checks of the invariants, and turns their results into the verdicts
that `kraftsim analyze` gives for the same run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Union

import msgspec

from kraftsim.analysis.live.ordering import Line
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Check, Envelope, Invariant
from kraftsim.invariants.permitted_losses import TopicNames
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.invariants.without_nodes import verdict_not_evaluated
from kraftsim.metadata.events import TopicDeleted

VERDICT_KEY = tuple[str, str]


def key_of(violation: Violation) -> VERDICT_KEY:
    """Return what identifies a violation within a run."""
    return violation.invariant, violation.key


class LiveChecks:
    """One pass of the checks over the events of a run, in order of time."""

    def __init__(self, invariants: Sequence[Invariant], others: Sequence[type[Event]] = ()) -> None:
        """`others` are kinds that `examine` decodes for the caller alone."""
        self._checks: Final[list[tuple[Invariant, Check]]] = [
            (invariant, invariant.new_check()) for invariant in invariants
        ]
        by_kind: dict[type[Event], list[Check]] = {TopicDeleted: []}
        for invariant, check in self._checks:
            for kind in invariant.kinds:
                by_kind.setdefault(kind, []).append(check)
        self._by_kind = by_kind
        self._names = TopicNames()
        self._decode = decoder_of((*by_kind, *others)).decode
        self.unfit_count = 0
        """Lines whose fields are not those of their kind."""

    def examine(self, line: Line) -> tuple[Event | None, list[Violation]]:
        """Pass a line to its checks; return its event and the violations that it shows."""
        try:
            event: Event = self._decode(line.content)
        except msgspec.DecodeError:
            self.unfit_count += 1
            return None, []
        envelope = Envelope(node=line.node, incarnation=line.incarnation, n=line.n, t_ns=line.t_ns)
        found: list[Violation] = []
        if self._names.is_ambiguous(event):
            return event, found
        for check in self._by_kind.get(type(event), ()):
            violation = check.examine(envelope, event)
            if violation is not None:
                found.append(violation)
        return event, found

    def finish(
        self,
        must_exercise: Sequence[str],
        lost_lines: str,
        not_evaluated: Mapping[str, str] | None = None,
    ) -> tuple[Verdict, ...]:
        """Return the verdict of every invariant for the run; call it once.

        `lost_lines` says what the logs lack: then no verdict is ok. `not_evaluated` are invariants
        that the run cannot decide, with the reasons.
        """
        verdicts = []
        for invariant, check in self._checks:
            reason = (not_evaluated or {}).get(invariant.name)
            if reason is not None:
                verdicts.append(verdict_not_evaluated(invariant, reason))
                continue
            verdict = check.finish()
            if lost_lines:
                verdict = verdict.without_lost_lines(f"the event log is not whole: {lost_lines}")
            verdicts.append(
                invariant.for_run(verdict, must_exercise=invariant.name in must_exercise)
            )
        return tuple(verdicts)


def decoder_of(kinds: Iterable[type[Event]]) -> "msgspec.json.Decoder[Event]":
    """Return a decoder for lines of these kinds; it skips the envelope."""
    return msgspec.json.Decoder(_union(sorted(set(kinds), key=lambda kind: kind.__name__)))


def _union(kinds: Sequence[type[Event]]) -> type[Event]:
    # return-value: a union of classes is no class, but msgspec decodes to one of them
    return Union[tuple(kinds)]  # type: ignore[return-value]  # noqa: UP007  (of many, at run time)


def lost_lines_text(missing: int, unreadable: int, repeated: int) -> str:
    """Return what the logs lack, as an analysis words it; '' if nothing."""
    found = (
        (missing, "lines are missing"),
        (unreadable, "lines are unreadable"),
        (repeated, "lines are there more than once"),
    )
    return ", ".join(f"{count} {what}" for count, what in found if count)


def in_order_of_time(verdict: Verdict, times: Mapping[str, tuple[int, str, int, int]]) -> Verdict:
    """Return a verdict whose violations are in the order of their first witness, as those of an
    analysis; `times` has the order of each event by its id.
    """
    nowhere = (-1, "", 0, 0)

    def place(violation: Violation) -> tuple[tuple[int, str, int, int], str]:
        first = violation.witnesses[0] if violation.witnesses else ""
        return times.get(first, nowhere), violation.key

    return replace(verdict, violations=tuple(sorted(verdict.violations, key=place)))

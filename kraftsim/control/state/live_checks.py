"""The invariants of a running cluster, checked while its event logs are written.

Each line goes to the same online checks that `kraftsim watch` runs, in the order of time
(`kraftsim.analysis.live.ordering`). When events come late, after later ones were checked, the
result is withdrawn and everything is checked again from the beginning, with twice the slack.
What only the end of a run shows (a check that examined nothing, or a property of the final state)
is left to `kraftsim analyze`.
"""

from collections.abc import Sequence
from typing import Final

from kraftsim.analysis.live.checking import LiveChecks
from kraftsim.analysis.live.ordering import SLACK_NS, EventOrder, Line
from kraftsim.control.state.cluster_snapshot import LiveCheckStatus, SeenInvariantViolation
from kraftsim.control.state.event_logs import EventEnvelope, LogPart
from kraftsim.invariants.invariant import INVARIANTS, Invariant
from kraftsim.invariants.verdict import Violation

VIOLATIONS_MAX: Final = 200
NANOSECONDS_PER_MS: Final = 1_000_000


class LiveInvariantChecks:
    """The checks of one cluster; `invariants` None: all of the catalogue."""

    def __init__(self, invariants: Sequence[Invariant] | None = None) -> None:
        self._invariants = tuple(INVARIANTS.all() if invariants is None else invariants)
        self._by_name = {each.name: each for each in self._invariants}
        self._kinds = frozenset(kind.__name__ for each in self._invariants for kind in each.watches)
        self.slack_ns = SLACK_NS
        """Events may come so much later than those of other nodes."""
        self.late_count = 0
        self._begin()

    def _begin(self, origin_ns: int | None = None) -> None:
        self._order = EventOrder(self.slack_ns, origin_ns)
        # without invariants there is no kind of events that a decoder could be made for
        self._checks = LiveChecks(self._invariants) if self._invariants else None
        self._seen_kinds: set[str] = set()  # for membership only, never iterated
        self._found: dict[tuple[str, str], SeenInvariantViolation] = {}
        self._event_count = 0

    def begin_again(self) -> None:
        """Forget everything: the caller reads the logs from the beginning."""
        self._begin()

    def take(self, parts: Sequence[LogPart], now_ns: int) -> bool:
        """Check the next lines; `now_ns` is the machine's monotonic clock before they were read.

        Return False if events were late: then the caller must read everything again.
        """
        if self._checks is None:
            self._event_count += sum(len(part.lines) for part in parts)
            return True
        self._order.scanned(now_ns, {part.file: part.readable for part in parts})
        for part in parts:
            self._event_count += len(part.lines)
            self._order.add(
                part.file,
                [self._line(*each) for each in part.lines if each[0].kind in self._kinds],
                position=part.position,
                last_t_ns=part.lines[-1][0].t_ns if part.lines else -1,
                now_ns=now_ns,
                not_before_ns=part.not_before_ns,
            )
        if self._order.late_count:
            self.late_count += self._order.late_count
            self.slack_ns *= 2
            # with the origin known, lines of files that grow no more wait for none
            self._begin(self._order.origin_ns)
            return False
        for line in self._order.ready():
            self._examine(self._checks, line)
        return True

    def _line(self, envelope: EventEnvelope, content: bytes) -> Line:
        self._seen_kinds.add(envelope.kind)
        return Line(envelope.t_ns, envelope.node, envelope.incarnation, envelope.n, content)

    def _examine(self, checks: LiveChecks, line: Line) -> None:
        _, violations = checks.examine(line)
        for violation in violations:
            self._found.setdefault(
                (violation.invariant, violation.key), self._seen(violation, line.t_ns)
            )

    def _seen(self, violation: Violation, t_ns: int) -> SeenInvariantViolation:
        invariant = self._by_name[violation.invariant]
        return SeenInvariantViolation(
            invariant=violation.invariant,
            rule=invariant.rule,
            source=invariant.source,
            message=violation.message,
            witnesses=violation.witnesses,
            t_ns=t_ns,
        )

    def status(self, now_ns: int, unreadable_count: int) -> LiveCheckStatus:
        """Return what is known so far."""
        checked = [
            each.name
            for each in self._invariants
            if any(kind.__name__ in self._seen_kinds for kind in each.watches)
        ]
        present_ns = self._order.now_t_ns(now_ns)
        passed_ns = self._order.watermark_ns()
        return LiveCheckStatus(
            violations=tuple(self._found.values())[-VIOLATIONS_MAX:],
            violation_count=len(self._found),
            checked=tuple(sorted(checked)),
            idle=tuple(sorted(self._by_name.keys() - set(checked))),
            event_count=self._event_count,
            behind_ms=None
            if present_ns is None or passed_ns is None
            else max(0, present_ns - passed_ns) // NANOSECONDS_PER_MS,
            late_count=self.late_count,
            unreadable_count=unreadable_count
            + (0 if self._checks is None else self._checks.unfit_count),
        )

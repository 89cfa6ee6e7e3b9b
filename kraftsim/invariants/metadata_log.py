"""Which metadata log an event is about: offsets, epochs, snapshots and records of two metadata logs
are never compared.

A run has one metadata log, until its operator formats a new quorum of controllers (after a
migration that was rolled back): a log that begins at offset 0 again, in epochs that begin again.
`MetadataLogBegun` separates them. An invariant that holds for each metadata log by itself declares
`within_metadata_log`, and neither its check nor its SQL sees more than one: the check is made again
for each log, and to the SQL each log is a run of its own. The keys of violations in a later log
have a suffix.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from kraftsim.events.event import Event
from kraftsim.events.runs import MetadataLogBegun
from kraftsim.invariants.check import Check, Envelope
from kraftsim.invariants.verdict import VIOLATIONS_KEPT_MAX, Verdict, Violation, verdict_of

SUFFIX: Final = "/metadata-log-"
"""Followed by the number of the log, from the second one on."""
_SUFFIX_SQL: Final = f"'{SUFFIX}[0-9]+$'"
_SPANS: Final = "metadata_log_span"


class WithinMetadataLog:
    """A check that is made again for each metadata log of a run; its verdict is that of all."""

    def __init__(self, new_check: Callable[[], Check]) -> None:
        self._new_check = new_check
        self._check = new_check()
        self._suffix = ""
        self._former: list[Verdict] = []

    @property
    def direct(self) -> Callable[[Envelope, Event], Violation | None]:
        """The function that processes events until the next `MetadataLogBegun`: in the first log,
        which mostly is the only one, that of the check itself.
        """
        return self.examine if self._suffix else self._check.examine

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process one event, or the beginning of another metadata log."""
        if isinstance(event, MetadataLogBegun):
            self._former.append(self._finished())
            self._check, self._suffix = self._new_check(), f"{SUFFIX}{event.metadata_log}"
            return None
        violation = self._check.examine(envelope, event)
        if violation is None or not self._suffix:
            return violation
        return replace(violation, key=violation.key + self._suffix)

    def finish(self) -> Verdict:
        """Return the verdict."""
        last = self._finished()
        if not self._former:
            return last
        every = (*self._former, last)
        return verdict_of(
            last.invariant,
            examined=sum(verdict.examined for verdict in every),
            violation_count=sum(verdict.violation_count for verdict in every),
            violations=tuple(each for verdict in every for each in verdict.violations)[
                :VIOLATIONS_KEPT_MAX
            ],
            undecidable="; ".join(sorted(each.reason for each in every if each.reason)),
        )

    def _finished(self) -> Verdict:
        verdict = self._check.finish()
        if not self._suffix:
            return verdict
        violations = tuple(
            replace(each, key=each.key + self._suffix) for each in verdict.violations
        )
        return replace(verdict, violations=violations)


def sql_within_metadata_log(sql: str, columns: Mapping[str, Iterable[str]]) -> str:
    """Return a query over views in which each metadata log is a run of its own; `columns` are those
    of the views that it reads, by view, beside `run`.

    `run_of_log` and `key_in_log` turn its results into those of the runs.
    """
    spans = (
        f"{_SPANS} AS (SELECT run, position AS from_position, lead(position) OVER "
        f"(PARTITION BY run ORDER BY position) AS to_position, concat('{SUFFIX}', metadata_log) "
        "AS suffix FROM metadata_log_begun)"
    )
    views = [
        f"{view} AS (SELECT concat(e.run, coalesce(s.suffix, '')) AS run, "
        f"{', '.join(f'e.{name}' for name in names)} FROM {view} AS e LEFT JOIN {_SPANS} AS s "
        "ON s.run = e.run AND s.from_position < e.position "
        "AND (s.to_position IS NULL OR e.position < s.to_position))"
        for view, names in columns.items()
    ]
    return f"WITH {', '.join((spans, *views))} SELECT * FROM ({sql}) AS of_one_log"


def run_of_log(run: str = "run") -> str:
    """Return the SQL for the run of a metadata log."""
    return f"regexp_replace({run}, {_SUFFIX_SQL}, '')"


def key_in_log(key: str = "key", run: str = "run") -> str:
    """Return the SQL for the key of a violation in a metadata log, as the check has it."""
    return f"concat({key}, regexp_extract({run}, {_SUFFIX_SQL}, 0))"

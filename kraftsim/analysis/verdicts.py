"""Checks ingested runs against every invariant, by two queries of each for any number of runs.

Source: `kraftsim.invariants.invariant.Invariant` specifies the columns of an invariant's SQL.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from kraftsim.analysis.columns import own_fields, view_name
from kraftsim.analysis.ingest import Report, no_report
from kraftsim.analysis.queries import Queries, Query
from kraftsim.analysis.views import Runs, columns_of_view
from kraftsim.analysis.witnesses import Witness
from kraftsim.events.runs import MetadataLogBegun
from kraftsim.invariants.invariant import Invariant
from kraftsim.invariants.metadata_log import key_in_log, run_of_log, sql_within_metadata_log
from kraftsim.invariants.verdict import VIOLATIONS_KEPT_MAX, Verdict, Violation, verdict_of

EXAMINED: Final = "examined"
UNDECIDABLE: Final = "undecidable"
VIOLATION: Final = "violation"


class Row(NamedTuple):
    """One row of the query.

    `number` is the count examined, or that of all violations; `text` a message or reason; positions
    may be absent.
    """

    run: str
    invariant: str
    what: str
    number: int
    key: str | None
    text: str | None
    first_witness: int | None
    second_witness: int | None

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions of the events that show the violation of this row."""
        both = (self.first_witness, self.second_witness)
        return tuple(position for position in both if position is not None)


def find_rows(
    queries: Queries,
    runs: Runs,
    invariants: Sequence[Invariant],
    report: Report = no_report,
) -> list[Row]:
    """Return the rows about some runs; `verdicts_of` makes verdicts of those of one.

    What was examined is counted first, and violations are only looked for where something was: an
    event that shows a violation was examined. An invariant is not asked at all unless an event of a
    kind that it watches occurs. `report` gets the stages `count` and `judge`, in invariants.
    """
    asked = [
        _of_each_log(invariant) if MetadataLogBegun.__name__ in runs.kinds else invariant
        for invariant in invariants
        if any(kind.__name__ in runs.kinds for kind in invariant.watches)
    ]
    counted = _rows(queries, asked, _counts, partial(report, "count"))
    has_examined = {row.invariant for row in counted if row.what == EXAMINED and row.number}
    violable = [each for each in asked if each.name in has_examined or not each.needs_examined]
    return counted + _rows(queries, violable, _violations, partial(report, "judge"))


def _of_each_log(invariant: Invariant) -> Invariant:
    """Return an invariant with SQL to which each metadata log is a run of its own, if it holds for
    each metadata log by itself: the rows name the run again.
    """
    if not invariant.within_metadata_log:
        return invariant
    own = own_fields(invariant.watches)
    columns = {
        view_name(kind): columns_of_view(kind, own)
        for kind in sorted(each.__name__ for each in invariant.watches)
    }

    def counted(sql: str, what: str) -> str:
        logs = sql_within_metadata_log(f"SELECT * FROM ({sql}) AS every(run, {what})", columns)
        return f"SELECT {run_of_log()} AS run, {what} FROM ({logs}) AS log"

    violations = (
        f"SELECT {run_of_log()} AS run, {key_in_log()} AS key, message, first_witness, "
        f"second_witness FROM ({sql_within_metadata_log(invariant.violations, columns)}) AS log"
    )
    return replace(
        invariant,
        examined=counted(invariant.examined, "number"),
        violations=violations,
        undecidable=counted(invariant.undecidable, "reason") if invariant.undecidable else "",
    )


def _rows(
    queries: Queries,
    invariants: Sequence[Invariant],
    sql_of: Callable[[Invariant], str],
    report: Callable[[int, int], None],
) -> list[Row]:
    asked = [
        Query(
            sql_of(each),
            tuple(sorted(kind.__name__ for kind in each.kinds)),
            own_fields(each.kinds),
        )
        for each in invariants
    ]
    done = 0

    def answered() -> None:
        nonlocal done
        done += 1
        report(done, len(asked))

    return [Row(*row) for row in queries.ask(asked, answered)]


def by_run(rows: Iterable[Row]) -> Mapping[str, list[Row]]:
    """Return the rows about each of many runs, by run; runs without examined events are absent."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.run, []).append(row)
    return dict(sorted(found.items()))


def verdicts_of(
    rows: Iterable[Row],
    invariants: Sequence[Invariant],
    witnesses: Mapping[int, Witness] | None = None,
) -> dict[str, Verdict]:
    """Return the verdict of each invariant by the rows of one run; violations in the order of their
    first event.

    `witnesses` are the events at the positions of the rows; without them the violations have no
    evidence.
    """
    by_name: dict[str, dict[str, list[Row]]] = {
        invariant.name: {EXAMINED: [], UNDECIDABLE: [], VIOLATION: []} for invariant in invariants
    }
    for row in rows:
        by_name[row.invariant][row.what].append(row)
    return {name: _verdict(name, by_what, witnesses) for name, by_what in by_name.items()}


def violation_of(row: Row, witnesses: Mapping[int, Witness] | None) -> Violation:
    """Return the violation of a row."""
    ids = () if witnesses is None else tuple(witnesses[place].event_id for place in row.positions)
    return Violation(
        invariant=row.invariant, key=row.key or "", message=row.text or "", witnesses=ids
    )


def _verdict(
    name: str, by_what: Mapping[str, list[Row]], witnesses: Mapping[int, Witness] | None
) -> Verdict:
    violations = sorted(
        by_what[VIOLATION],
        key=lambda row: (-1 if row.first_witness is None else row.first_witness, row.key or ""),
    )
    return verdict_of(
        name,
        examined=sum(row.number for row in by_what[EXAMINED]),
        violation_count=violations[0].number if violations else 0,
        violations=tuple(violation_of(row, witnesses) for row in violations),
        undecidable="; ".join(sorted(row.text or "" for row in by_what[UNDECIDABLE])),
    )


_NOTHING: Final = "CAST(NULL AS BIGINT) AS first_witness, CAST(NULL AS BIGINT) AS second_witness"
_NO_KEY: Final = "CAST(NULL AS VARCHAR(1)) AS key"


def _counts(invariant: Invariant) -> str:
    """Return the query for what was examined, and for reasons why the rest is undecided."""
    name = f"'{invariant.name}' AS invariant"
    examined = (
        f"SELECT run, {name}, '{EXAMINED}' AS what, CAST(number AS BIGINT) AS number, {_NO_KEY}, "
        f"CAST(NULL AS VARCHAR(1)) AS text, {_NOTHING}\nFROM ({invariant.examined}) AS "
        "counted(run, number)"
    )
    if not invariant.undecidable:
        return examined
    return (
        f"{examined}\nUNION ALL\nSELECT run, {name}, '{UNDECIDABLE}' AS what, "
        f"CAST(0 AS BIGINT) AS number, {_NO_KEY}, reason AS text, {_NOTHING}\n"
        f"FROM ({invariant.undecidable}) AS undecidable"
    )


def _violations(invariant: Invariant) -> str:
    """Return the query for the first violations, each with their total number."""
    return (
        f"SELECT run, '{invariant.name}' AS invariant, '{VIOLATION}' AS what, "
        "CAST(total AS BIGINT) AS number, key, "
        "message AS text, first_witness, second_witness\nFROM (SELECT *, count(*) OVER "
        "(PARTITION BY run) AS total, row_number() OVER (PARTITION BY run ORDER BY "
        f"first_witness, key) AS place FROM ({invariant.violations}) AS violation) AS numbered "
        f"WHERE place <= {VIOLATIONS_KEPT_MAX}"
    )

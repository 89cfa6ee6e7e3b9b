"""A voter emits an event for every metadata record that it makes durable, appended as leader or
replicated, in order and without gaps.

Elections and commits are checked, and faults are triggered, by the events that report how a voter
obtained each record. An event log that reported a record twice, not at all, or without the record
existing would go unnoticed. Observers need not report; for a new voter the check starts at the log
that it has then.
Source: KIP-595: a voter's log grows by what it appends as leader, and by what its Fetch brings.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import MetadataAppended
from kraftsim.raft.events import (
    MetadataFlushed,
    MetadataReplicated,
    MetadataTruncated,
    SnapshotLoaded,
)

NAME = "flushed-metadata-has-origin"


class ReportedEnds:
    """Tracks the end offset up to which each process has reported how it obtained its records."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._ends: dict[tuple[str, int], int] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an append, a replicated batch, a truncation or a flush."""
        process = (envelope.node, envelope.incarnation)
        before = self._ends.get(process)
        match event:
            case MetadataAppended() | MetadataReplicated():
                self._findings.examined += 1
                self._ends[process] = event.last_offset + 1
                if before is not None and event.first_offset != before:
                    message = (
                        f"{envelope.node} goes on at {event.first_offset}, and had reported of "
                        f"everything before {before}"
                    )
                    return self._findings.violation(envelope.event_id, message, envelope.event_id)
            case MetadataTruncated() | SnapshotLoaded():
                self._ends[process] = event.end_offset
            case MetadataFlushed(is_voter=True):
                self._findings.examined += 1
                self._ends[process] = (
                    event.end_offset if before is None else max(before, event.end_offset)
                )
                if before is not None and event.end_offset > before:
                    message = (
                        f"{envelope.node} has made everything before {event.end_offset} durable, "
                        f"and reported only of what is before {before}"
                    )
                    return self._findings.violation(envelope.event_id, message, envelope.event_id)
            case _:
                self._ends.pop(process, None)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A voter emits an event for every metadata record that it makes durable, appended as "
    "leader or replicated, without gaps.",
    source="KIP-595",
    watches=(
        MetadataAppended,
        MetadataReplicated,
        MetadataTruncated,
        SnapshotLoaded,
        MetadataFlushed,
    ),
    check=ReportedEnds,
    examined="""
        SELECT run, count(*)
        FROM (
            SELECT run FROM metadata_appended
            UNION ALL SELECT run FROM metadata_replicated
            UNION ALL SELECT run FROM metadata_flushed WHERE is_voter
        ) AS reported
        GROUP BY run
    """,
    # A flush by a voter only raises the reported end; every other event sets it, or makes it
    # unknown.
    violations="""
        WITH step AS (
            SELECT run, node, incarnation, n, position, first_offset, last_offset + 1 AS end_offset,
                1 AS is_restart, 'goes' AS kind
            FROM metadata_appended
            UNION ALL
            SELECT run, node, incarnation, n, position, first_offset, last_offset + 1 AS end_offset,
                1 AS is_restart, 'goes' AS kind
            FROM metadata_replicated
            UNION ALL
            SELECT run, node, incarnation, n, position, CAST(NULL AS BIGINT) AS first_offset,
                end_offset, 1 AS is_restart, 'set' AS kind
            FROM metadata_truncated
            UNION ALL
            SELECT run, node, incarnation, n, position, CAST(NULL AS BIGINT) AS first_offset,
                end_offset, 1 AS is_restart, 'set' AS kind
            FROM snapshot_loaded
            UNION ALL
            SELECT
                run, node, incarnation, n, position, CAST(NULL AS BIGINT) AS first_offset, CASE
                    WHEN is_voter THEN end_offset END AS end_offset,
                CASE WHEN is_voter THEN 0 ELSE 1 END AS is_restart, CASE WHEN is_voter THEN 'flush'
                    ELSE 'set' END AS kind
            FROM metadata_flushed
        ), staged AS (
            SELECT *, sum(is_restart) OVER (PARTITION BY run, node, incarnation
                ORDER BY position) AS stage FROM step
        ), known AS (
            SELECT *, max(end_offset) OVER (PARTITION BY run, node, incarnation, stage
                ORDER BY position) AS reported FROM staged
        ), ordered AS (
            SELECT *, lag(reported) OVER (PARTITION BY run, node, incarnation
                ORDER BY position) AS reported_before FROM known
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            CASE
                WHEN kind = 'goes' THEN concat(node, ' goes on at ', first_offset,
                    ', and had reported of everything before ', reported_before)
                ELSE concat(node, ' has made everything before ', end_offset,
                    ' durable, and reported only of what is before ', reported_before)
            END AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM ordered WHERE (kind = 'goes' AND first_offset <> reported_before) OR (kind = 'flush'
            AND end_offset > reported_before)
    """,
)

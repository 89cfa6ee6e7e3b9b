"""Whatever a voter makes durable of the metadata log it appended as leader or copied from one, record after record, and said so.

How a record came to a voter is what elections and commits are judged by, and what faults wait for: an event log that told it twice, not at all, or of
records that are not there would be believed all the same. Who reads along need not tell; what it has once it votes is where it begins.
Source: KIP-595: a voter's log grows by what it appends as leader, and by what its Fetch brings.
"""

from kraftsim.events.event import Event
from kraftsim.events.metadata import MetadataAppended
from kraftsim.events.raft import MetadataFlushed, MetadataReplicated, MetadataTruncated, SnapshotLoaded
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

NAME = "metadata-copies-noted"


class ToldUntil:
    """Remembers up to where each process has told how it came to what it has."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._told: dict[tuple[str, int], int] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Take in what was appended, copied, cut or flushed."""
        process = (envelope.node, envelope.incarnation)
        before = self._told.get(process)
        match event:
            case MetadataAppended() | MetadataReplicated():
                self._findings.examined += 1
                self._told[process] = event.last_offset + 1
                if before is not None and event.first_offset != before:
                    message = f"{envelope.node} goes on at {event.first_offset}, and had told of everything before {before}"
                    return self._findings.violation(envelope.event_id, message, envelope.event_id)
            case MetadataTruncated() | SnapshotLoaded():
                self._told[process] = event.end_offset
            case MetadataFlushed(is_voter=True):
                self._findings.examined += 1
                self._told[process] = event.end_offset if before is None else max(before, event.end_offset)
                if before is not None and event.end_offset > before:
                    message = f"{envelope.node} has made everything before {event.end_offset} durable, and told only of what is before {before}"
                    return self._findings.violation(envelope.event_id, message, envelope.event_id)
            case _:
                self._told.pop(process, None)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="Whatever a voter makes durable of the metadata log it appended as leader or copied from one, record after record.",
    source="KIP-595",
    watches=(MetadataAppended, MetadataReplicated, MetadataTruncated, SnapshotLoaded, MetadataFlushed),
    check=ToldUntil,
    examined="""
        SELECT run, count(*)
        FROM (
            SELECT run FROM metadata_appended
            UNION ALL SELECT run FROM metadata_replicated
            UNION ALL SELECT run FROM metadata_flushed WHERE is_voter
        ) AS told
        GROUP BY run
    """,
    # A flush by a voter only adds to what is known; everything else says it anew, or that nothing is known.
    violations="""
        WITH step AS (
            SELECT run, node, incarnation, n, position, first_offset, last_offset + 1 AS end_offset, 1 AS is_anew, 'goes' AS kind
            FROM metadata_appended
            UNION ALL
            SELECT run, node, incarnation, n, position, first_offset, last_offset + 1 AS end_offset, 1 AS is_anew, 'goes' AS kind
            FROM metadata_replicated
            UNION ALL
            SELECT run, node, incarnation, n, position, CAST(NULL AS BIGINT) AS first_offset, end_offset, 1 AS is_anew, 'set' AS kind
            FROM metadata_truncated
            UNION ALL
            SELECT run, node, incarnation, n, position, CAST(NULL AS BIGINT) AS first_offset, end_offset, 1 AS is_anew, 'set' AS kind
            FROM snapshot_loaded
            UNION ALL
            SELECT
                run, node, incarnation, n, position, CAST(NULL AS BIGINT) AS first_offset, CASE WHEN is_voter THEN end_offset END AS end_offset,
                CASE WHEN is_voter THEN 0 ELSE 1 END AS is_anew, CASE WHEN is_voter THEN 'flush' ELSE 'set' END AS kind
            FROM metadata_flushed
        ), staged AS (
            SELECT *, sum(is_anew) OVER (PARTITION BY run, node, incarnation ORDER BY position) AS stage FROM step
        ), known AS (
            SELECT *, max(end_offset) OVER (PARTITION BY run, node, incarnation, stage ORDER BY position) AS told FROM staged
        ), ordered AS (
            SELECT *, lag(told) OVER (PARTITION BY run, node, incarnation ORDER BY position) AS told_before FROM known
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            CASE
                WHEN kind = 'goes' THEN concat(node, ' goes on at ', first_offset, ', and had told of everything before ', told_before)
                ELSE concat(node, ' has made everything before ', end_offset, ' durable, and told only of what is before ', told_before)
            END AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM ordered WHERE (kind = 'goes' AND first_offset <> told_before) OR (kind = 'flush' AND end_offset > told_before)
    """,
)

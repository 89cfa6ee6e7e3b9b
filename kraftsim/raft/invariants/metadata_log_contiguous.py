"""A replica appends to its metadata log at the end offset, and a truncation removes at least one
record.

A leader sends a truncation offset because it does not have the follower's last record. A follower
that truncates nothing would receive the same offset forever. The end offset from before a restart
is not compared: a power loss may have removed the tail of the log.
Source: KIP-595 (diverging epochs), the consistency check of Raft's AppendEntries (Ongaro and
Ousterhout 2014, section 5.3).
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import MetadataTruncated, MetadataWritten, SnapshotLoaded

NAME = "metadata-log-contiguous"


class WhereItEnds:
    """Tracks the log end offset of each process, once it is known."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._ends: dict[tuple[str, int], tuple[int, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a batch that was written, a truncation, or a snapshot that replaces the log."""
        process = (envelope.node, envelope.incarnation)
        before = self._ends.get(process)
        if isinstance(event, SnapshotLoaded):
            self._ends[process] = (event.end_offset, envelope.event_id)
            return None
        self._findings.examined += 1
        if isinstance(event, MetadataWritten):
            self._ends[process] = (event.last_offset + 1, envelope.event_id)
            is_wrong = before is not None and event.first_offset != before[0]
            message = f"{envelope.node} wrote a batch at {event.first_offset}"
        else:
            assert isinstance(event, MetadataTruncated)
            self._ends[process] = (event.end_offset, envelope.event_id)
            is_wrong = before is not None and event.end_offset >= before[0]
            message = f"{envelope.node} was to cut its log at {event.end_offset}"
        if before is None or not is_wrong:
            return None
        return self._findings.violation(
            envelope.event_id,
            f"{message}, and it ended at {before[0]}",
            before[1],
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A replica appends to its metadata log at the end offset, and a truncation removes at "
    "least one record.",
    source="KIP-595",
    watches=(MetadataWritten, MetadataTruncated, SnapshotLoaded),
    check=WhereItEnds,
    examined="""
        SELECT run, count(*) FROM (SELECT run FROM metadata_written UNION ALL SELECT run
            FROM metadata_truncated) AS step GROUP BY run
    """,
    violations="""
        WITH step AS (
            SELECT run, node, incarnation, n, position, first_offset AS from_offset,
                last_offset + 1 AS end_offset, 'written' AS kind
            FROM metadata_written
            UNION ALL SELECT run, node, incarnation, n, position, end_offset AS from_offset,
                end_offset, 'cut' AS kind FROM metadata_truncated
            UNION ALL SELECT run, node, incarnation, n, position, end_offset AS from_offset,
                end_offset, 'begun' AS kind FROM snapshot_loaded
        ), ordered AS (
            SELECT
                run, node, incarnation, n, position, from_offset, kind,
                lag(end_offset) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS previous_end,
                lag(position) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS previous_position
            FROM step
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                node, CASE WHEN kind = 'written' THEN ' wrote a batch at '
                    ELSE ' was to cut its log at ' END, from_offset,
                ', and it ended at ', previous_end
            ) AS message,
            previous_position AS first_witness,
            position AS second_witness
        FROM ordered WHERE (kind = 'written' AND from_offset <> previous_end) OR (kind = 'cut'
            AND from_offset >= previous_end)
    """,
)

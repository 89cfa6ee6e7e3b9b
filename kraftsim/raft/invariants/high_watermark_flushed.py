"""A leader's high watermark is durable on a majority of the voters; its own log counts only as far
as it is flushed.

A power loss, even of all nodes at once, then loses nothing that was reported as committed. A
replica that has been a voter counts even while it does not know that it is a voter again: the
leader that added it knows first.
Source: KIP-595, KIP-853, KAFKA-10533; stricter than Apache Kafka, where the leader counts what it
has written (docs/deviations.md).
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import (
    HighWatermarkMoved,
    MetadataFlushed,
    MetadataTruncated,
    SnapshotLoaded,
)

NAME = "high-watermark-flushed"


class FlushedEnds:
    """Tracks the durable end offset of each voter's log.

    It is a property of the disk and survives a restart of the process.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._flushed: dict[str, int] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a flush, a truncation, or a new high watermark."""
        match event:
            case MetadataFlushed(end_offset=end_offset) if (
                event.is_voter or envelope.node in self._flushed
            ):
                self._flushed[envelope.node] = end_offset
            case SnapshotLoaded(end_offset=end_offset) if envelope.node in self._flushed:
                self._flushed[envelope.node] = end_offset
            case MetadataTruncated(end_offset=end_offset) if envelope.node in self._flushed:
                self._flushed[envelope.node] = min(end_offset, self._flushed[envelope.node])
            case HighWatermarkMoved(is_leader=True):
                return self._examine_commit(envelope, event)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _examine_commit(self, envelope: Envelope, moved: HighWatermarkMoved) -> Violation | None:
        self._findings.examined += 1
        count = sum(end_offset >= moved.high_watermark for end_offset in self._flushed.values())
        if count > moved.voter_count // 2:
            return None
        message = (
            f"{envelope.node} counts {moved.high_watermark} as committed, which is durable on "
            f"{count} of {moved.voter_count} voters"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)


INVARIANT = Invariant(
    name=NAME,
    rule="A leader's high watermark is durable on a majority of the voters.",
    source="KIP-595, KAFKA-10533",
    watches=(HighWatermarkMoved, MetadataFlushed, MetadataTruncated, SnapshotLoaded),
    check=FlushedEnds,
    examined="SELECT run, count(*) FROM high_watermark_moved WHERE is_leader GROUP BY run",
    # A truncation lowers the durable end offset; a flush or a snapshot sets it. Between two of the
    # latter, the lowest truncation applies.
    violations="""
        WITH reported AS (
            SELECT run, node, position, end_offset, 1 AS is_restart, CASE WHEN is_voter THEN 1
                ELSE 0 END AS is_flush FROM metadata_flushed
            UNION ALL SELECT run, node, position, end_offset, 1 AS is_restart, 0 AS is_flush
                FROM snapshot_loaded
            UNION ALL SELECT run, node, position, end_offset, 0 AS is_restart, 0 AS is_flush
                FROM metadata_truncated
        ), staged AS (
            SELECT
                run, node, position, end_offset,
                sum(is_restart) OVER (PARTITION BY run, node ORDER BY position) AS stage,
                sum(is_flush) OVER (PARTITION BY run, node ORDER BY position) AS flush_count
            FROM reported
        ), state AS (
            SELECT run, node, position, min(end_offset) OVER (PARTITION BY run, node, stage
                ORDER BY position) AS flushed_end_offset
            FROM staged WHERE flush_count > 0
        ), span AS (
            SELECT
                run, node, flushed_end_offset, position AS from_position,
                lead(position) OVER (PARTITION BY run, node ORDER BY position) AS to_position
            FROM state
        ), counted AS (
            SELECT c.run, c.position, count(s.node) AS durable_count
            FROM high_watermark_moved AS c LEFT JOIN span AS s
                ON s.run = c.run AND s.from_position < c.position AND (s.to_position IS NULL
                    OR c.position < s.to_position)
                AND s.flushed_end_offset >= c.high_watermark
            WHERE c.is_leader GROUP BY c.run, c.position
        )
        SELECT
            c.run,
            concat(c.node, '.', c.incarnation, '.', c.n) AS key,
            concat(
                c.node, ' counts ', c.high_watermark, ' as committed, which is durable on ',
                    counted.durable_count, ' of ', c.voter_count, ' voters'
            ) AS message,
            c.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM counted JOIN high_watermark_moved AS c ON c.run = counted.run
            AND c.position = counted.position
        WHERE 2 * counted.durable_count <= c.voter_count
    """,
    ends_run=False,
)

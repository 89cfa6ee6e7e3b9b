"""A replica of the metadata log is never truncated below its high watermark, nor replaced by a
snapshot that ends below it.

For a truncation, the high watermark known before a restart counts as well. For a snapshot it does
not: a replica that lost records in a power loss may receive an older one.
Source: KIP-595, KAFKA-12460, org.apache.kafka.raft.ReplicatedLog.truncateTo.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import HighWatermarkMoved, MetadataTruncated, SnapshotLoaded

NAME = "no-truncation-below-high-watermark"


class HighestKnown:
    """Tracks the highest high watermark of each node."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._highest: dict[tuple[str, int | None], int] = {}
        """By node (None), and by incarnation."""

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a high watermark, a truncation, or a snapshot that replaces the log."""
        if isinstance(event, HighWatermarkMoved):
            for whose in ((envelope.node, None), (envelope.node, envelope.incarnation)):
                self._highest[whose] = max(
                    self._highest.get(whose, event.high_watermark), event.high_watermark
                )
            return None
        assert isinstance(event, MetadataTruncated | SnapshotLoaded)
        self._findings.examined += 1
        highest = self._highest.get(
            (envelope.node, envelope.incarnation if isinstance(event, SnapshotLoaded) else None)
        )
        if highest is None or event.end_offset >= highest:
            return None
        message = (
            f"the log of {envelope.node} was cut at {event.end_offset}, though it knew that "
            f"everything before {highest} is committed"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A replica of the metadata log is never truncated below its high watermark, nor replaced "
    "by a snapshot that ends below it.",
    source="KIP-595, KAFKA-12460",
    watches=(HighWatermarkMoved, MetadataTruncated, SnapshotLoaded),
    check=HighestKnown,
    examined="""
        SELECT run, count(*) FROM (SELECT run FROM metadata_truncated UNION ALL SELECT run
            FROM snapshot_loaded) AS cut GROUP BY run
    """,
    violations="""
        WITH step AS (
            SELECT run, node, incarnation, n, position, end_offset,
                CAST(NULL AS BIGINT) AS high_watermark, 0 AS is_snapshot FROM metadata_truncated
            UNION ALL
            SELECT run, node, incarnation, n, position, end_offset,
                CAST(NULL AS BIGINT) AS high_watermark, 1 AS is_snapshot FROM snapshot_loaded
            UNION ALL
            SELECT run, node, incarnation, n, position, CAST(NULL AS BIGINT) AS end_offset,
                high_watermark, 0 AS is_snapshot FROM high_watermark_moved
        ), swept AS (
            SELECT
                run, node, incarnation, n, position, end_offset, is_snapshot,
                max(high_watermark) OVER (PARTITION BY run, node ORDER BY position) AS known_ever,
                max(high_watermark) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS known_now
            FROM step
        ), judged AS (
            SELECT run, node, incarnation, n, position, end_offset, CASE WHEN is_snapshot = 1
                THEN known_now ELSE known_ever END AS highest
            FROM swept
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                'the log of ', node, ' was cut at ', end_offset,
                    ', though it knew that everything before ', highest, ' is committed'
            ) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM judged WHERE end_offset < highest
    """,
)

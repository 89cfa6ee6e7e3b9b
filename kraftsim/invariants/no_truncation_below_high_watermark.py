"""A replica of the metadata log never gives up what it knows to be committed: it is neither cut below its high watermark nor set back by a snapshot.

What it knew before a restart counts, too.   Source: KIP-595, KAFKA-12460, org.apache.kafka.raft.ReplicatedLog.truncateTo.
"""

from kraftsim.events.event import Event
from kraftsim.events.raft import HighWatermarkMoved, MetadataTruncated, SnapshotLoaded
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

NAME = "no-truncation-below-high-watermark"


class HighestKnown:
    """Remembers the highest high watermark that each node has known."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._highest: dict[str, int] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Take in a high watermark, a cut, or a snapshot in the log's place."""
        highest = self._highest.get(envelope.node)
        if isinstance(event, HighWatermarkMoved):
            self._highest[envelope.node] = event.high_watermark if highest is None else max(highest, event.high_watermark)
            return None
        assert isinstance(event, MetadataTruncated | SnapshotLoaded)
        self._findings.examined += 1
        if highest is None or event.end_offset >= highest:
            return None
        message = f"the log of {envelope.node} was cut at {event.end_offset}, though it knew that everything before {highest} is committed"
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A replica of the metadata log is never cut below what it knows to be committed.",
    source="KIP-595, KAFKA-12460",
    watches=(HighWatermarkMoved, MetadataTruncated, SnapshotLoaded),
    check=HighestKnown,
    examined="SELECT (SELECT count(*) FROM metadata_truncated) + (SELECT count(*) FROM snapshot_loaded)",
    violations="""
        WITH step AS (
            SELECT node, incarnation, n, position, end_offset, CAST(NULL AS BIGINT) AS high_watermark FROM metadata_truncated
            UNION ALL
            SELECT node, incarnation, n, position, end_offset, CAST(NULL AS BIGINT) AS high_watermark FROM snapshot_loaded
            UNION ALL
            SELECT node, incarnation, n, position, CAST(NULL AS BIGINT) AS end_offset, high_watermark FROM high_watermark_moved
        ), swept AS (
            SELECT node, incarnation, n, position, end_offset, max(high_watermark) OVER (PARTITION BY node ORDER BY position) AS highest FROM step
        )
        SELECT
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                'the log of ', node, ' was cut at ', end_offset, ', though it knew that everything before ', highest, ' is committed'
            ) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM swept WHERE end_offset < highest
    """,
)

"""The high watermark of a running replica of the metadata log never decreases.

A client of the log must never see a committed offset revoked, nor the same offset reported as new
twice. Everything in a snapshot is committed.
Source: KIP-595, KIP-630, org.apache.kafka.raft.LogOffsetMetadata,
RaftEventSimulationTest.MonotonicHighWatermark.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import MetadataCommitted
from kraftsim.raft.events import HighWatermarkMoved, SnapshotLoaded

NAME = "high-watermark-monotonic"
KINDS = (HighWatermarkMoved, MetadataCommitted)


class AlwaysHigher:
    """Tracks the latest high watermark of each process, and the last one it reported as leader.

    A restart clears both.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._latest: dict[tuple[str, int, type[Event]], tuple[int, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a high watermark, or a snapshot that replaces the log."""
        if isinstance(event, SnapshotLoaded):
            for kind in KINDS:
                self._latest[envelope.node, envelope.incarnation, kind] = (
                    event.end_offset,
                    envelope.event_id,
                )
            return None
        assert isinstance(event, KINDS)
        self._findings.examined += 1
        key = (envelope.node, envelope.incarnation, type(event))
        before, self._latest[key] = self._latest.get(key), (event.high_watermark, envelope.event_id)
        if before is None or event.high_watermark > before[0]:
            return None
        message = (
            f"the high watermark of {envelope.node} went from {before[0]} to {event.high_watermark}"
        )
        return self._findings.violation(envelope.event_id, message, before[1], envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="The high watermark of a running replica of the metadata log never decreases.",
    source="KIP-595, KIP-630",
    watches=(*KINDS, SnapshotLoaded),
    check=AlwaysHigher,
    examined="""
        SELECT run, count(*) FROM (SELECT run FROM high_watermark_moved UNION ALL SELECT run
            FROM metadata_committed) AS moved GROUP BY run
    """,
    violations="""
        WITH known AS (
            SELECT run, node, incarnation, n, position, high_watermark, 1 AS is_news,
                'moved' AS reported FROM high_watermark_moved
            UNION ALL SELECT run, node, incarnation, n, position, high_watermark, 1 AS is_news,
                'committed' AS reported FROM metadata_committed
            UNION ALL SELECT run, node, incarnation, n, position, end_offset AS high_watermark,
                0 AS is_news, 'moved' AS reported FROM snapshot_loaded
            UNION ALL SELECT run, node, incarnation, n, position, end_offset AS high_watermark,
                0 AS is_news, 'committed' AS reported
                FROM snapshot_loaded
        ), ordered AS (
            SELECT
                run, node, incarnation, n, position, high_watermark, is_news,
                lag(high_watermark) OVER (PARTITION BY run, node, incarnation, reported
                    ORDER BY position) AS previous_high_watermark,
                lag(position) OVER (PARTITION BY run, node, incarnation, reported
                    ORDER BY position) AS previous_position
            FROM known
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat('the high watermark of ', node, ' went from ', previous_high_watermark, ' to ',
                high_watermark) AS message,
            previous_position AS first_witness,
            position AS second_witness
        FROM ordered WHERE is_news = 1 AND high_watermark <= previous_high_watermark
    """,
)

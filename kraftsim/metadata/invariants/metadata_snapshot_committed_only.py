"""A replica writes a snapshot only of records that it knows to be committed.

A snapshot cannot be truncated: a record that its leader loses would survive on every replica that
starts from the snapshot.
Source: KIP-630, org.apache.kafka.raft.KafkaRaftClient.createSnapshot.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import HighWatermarkMoved, SnapshotLoaded, SnapshotWritten

NAME = "metadata-snapshot-committed-only"


class BelowHighWatermark:
    """Tracks the highest high watermark of each incarnation of a replica."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._known: dict[tuple[str, int], int] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a high watermark, or a snapshot."""
        assert isinstance(event, HighWatermarkMoved | SnapshotLoaded | SnapshotWritten)
        replica = (envelope.node, envelope.incarnation)
        if not isinstance(event, SnapshotWritten):
            offset = (
                event.high_watermark if isinstance(event, HighWatermarkMoved) else event.end_offset
            )
            self._known[replica] = max(offset, self._known.get(replica, 0))
            return None
        self._findings.examined += 1
        known = self._known.get(replica, 0)
        if event.end_offset <= known:
            return None
        message = (
            f"{envelope.node} wrote a snapshot up to offset {event.end_offset}, and knew of "
            f"{known} to be committed"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A replica writes a snapshot only of records that it knows to be committed.",
    source="KIP-630",
    watches=(HighWatermarkMoved, SnapshotLoaded, SnapshotWritten),
    check=BelowHighWatermark,
    examined="SELECT run, count(*) FROM snapshot_written GROUP BY run",
    violations="""
        WITH known AS (
            SELECT run, node, incarnation, position, high_watermark AS end_offset
                FROM high_watermark_moved
            UNION ALL
            SELECT run, node, incarnation, position, end_offset FROM snapshot_loaded
        ), compared AS (
            SELECT s.run, s.node, s.incarnation, s.n, s.position, s.end_offset,
                coalesce(max(k.end_offset), 0) AS known
            FROM snapshot_written AS s LEFT JOIN known AS k
                ON k.run = s.run AND k.node = s.node AND k.incarnation = s.incarnation
                    AND k.position < s.position
            GROUP BY s.run, s.node, s.incarnation, s.n, s.position, s.end_offset
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(node, ' wrote a snapshot up to offset ', end_offset, ', and knew of ', known,
                ' to be committed') AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM compared WHERE end_offset > known
    """,
)

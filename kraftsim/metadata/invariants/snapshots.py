"""A snapshot of the metadata log says what its records say, of committed records only.

A replica that is far behind gets the snapshot instead of the records: it cannot notice a
difference.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import FinalMetadata, HighWatermarkMoved, SnapshotLoaded, SnapshotWritten


class SameDigest:
    """A snapshot and the metadata log after it give the same metadata as the log from its
    beginning.

    Read from the disks at the end of the run: every snapshot, and every log after one, is compared
    at the same offset, on all controllers. The epoch of the last record is compared with the
    offset, because only then is it the same log.

    Tracks the first digest for each offset and epoch.

    Source: KIP-630, KAFKA-13357, KAFKA-14618.
    """

    def __init__(self) -> None:
        self._findings = Findings("snapshot-equals-log")
        self._first: dict[tuple[int, int], tuple[FinalMetadata, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process the metadata on a disk at an offset."""
        assert isinstance(event, FinalMetadata)
        self._findings.examined += event.from_offset > 0
        first, witness = self._first.setdefault(
            (event.end_offset, event.epoch), (event, envelope.event_id)
        )
        if first.digest == event.digest:
            return None
        message = (
            f"at offset {event.end_offset} {event.controller} (from {event.from_offset} on) and "
            f"{first.controller} (from {first.from_offset} on) say different things of the "
            "cluster"
        )
        return self._findings.violation(
            f"{event.end_offset}/{event.epoch}", message, witness, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


SNAPSHOT_EQUALS_LOG = Invariant(
    name="snapshot-equals-log",
    within_metadata_log=True,
    rule="A snapshot and the metadata log after it give the same metadata as the log from its "
    "beginning.",
    source="KIP-630, KAFKA-13357, KAFKA-14618",
    watches=(FinalMetadata,),
    check=SameDigest,
    examined="SELECT run, count(*) FROM final_metadata WHERE from_offset > 0 GROUP BY run",
    violations="""
        WITH first_position AS (
            SELECT run, end_offset, epoch, min(position) AS position FROM final_metadata
                GROUP BY run, end_offset, epoch
        ), first_digest AS (
            SELECT m.* FROM first_position AS f JOIN final_metadata AS m ON m.run = f.run
                AND m.position = f.position
        ), other AS (
            SELECT m.run, m.end_offset, m.epoch, min(m.position) AS position
            FROM final_metadata AS m JOIN first_digest AS f
                ON m.run = f.run AND m.end_offset = f.end_offset AND m.epoch = f.epoch
                    AND m.digest <> f.digest
            GROUP BY m.run, m.end_offset, m.epoch
        )
        SELECT
            f.run,
            concat(f.end_offset, '/', f.epoch) AS key,
            concat(
                'at offset ', f.end_offset, ' ', m.controller, ' (from ', m.from_offset,
                    ' on) and ', f.controller, ' (from ', f.from_offset,
                ' on) say different things of the cluster'
            ) AS message,
            f.position AS first_witness,
            m.position AS second_witness
        FROM other AS o
        JOIN first_digest AS f ON f.run = o.run AND f.end_offset = o.end_offset
            AND f.epoch = o.epoch
        JOIN final_metadata AS m ON m.run = o.run AND m.position = o.position
    """,
)


class BelowHighWatermark:
    """A replica writes a snapshot only of records that it knows to be committed.

    A snapshot cannot be truncated: a record that its leader loses would survive on every replica
    that starts from the snapshot.

    Tracks the highest high watermark of each incarnation of a replica.

    Source: KIP-630, org.apache.kafka.raft.KafkaRaftClient.createSnapshot.
    """

    def __init__(self) -> None:
        self._findings = Findings("metadata-snapshot-committed-only")
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


METADATA_SNAPSHOT_COMMITTED_ONLY = Invariant(
    name="metadata-snapshot-committed-only",
    within_metadata_log=True,
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


INVARIANTS = (
    SNAPSHOT_EQUALS_LOG,
    METADATA_SNAPSHOT_COMMITTED_ONLY,
)

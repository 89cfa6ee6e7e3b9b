"""The high watermark of the metadata log: what is below it is committed, and stays.

It is durable on a majority, it never decreases, neither within an epoch nor from one to the next,
and no replica truncates below it.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import MetadataCommitted
from kraftsim.raft.events import (
    HighWatermarkMoved,
    HighWatermarkReported,
    MetadataFlushed,
    MetadataTruncated,
    SnapshotLoaded,
)


class FlushedEnds:
    """A leader's high watermark is durable on a majority of the voters; its own log counts only as
    far as it is flushed.

    A power loss, even of all nodes at once, then loses nothing that was reported as committed. A
    replica that has been a voter counts even while it does not know that it is a voter again: the
    leader that added it knows first.

    Tracks the durable end offset of each voter's log.

    It is a property of the disk and survives a restart of the process.

    Source: KIP-595, KIP-853, KAFKA-10533; stricter than Apache Kafka, where the leader counts what
    it has written (docs/deviations.md).
    """

    def __init__(self) -> None:
        self._findings = Findings("high-watermark-flushed")
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


HIGH_WATERMARK_FLUSHED = Invariant(
    name="high-watermark-flushed",
    within_metadata_log=True,
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


KINDS = (HighWatermarkMoved, MetadataCommitted)


class AlwaysHigher:
    """The high watermark of a running replica of the metadata log never decreases.

    A client of the log must never see a committed offset revoked, nor the same offset reported as
    new twice. Everything in a snapshot is committed.

    Tracks the latest high watermark of each process, and the last one it reported as leader.

    A restart clears both.

    Source: KIP-595, KIP-630, org.apache.kafka.raft.LogOffsetMetadata,
    RaftEventSimulationTest.MonotonicHighWatermark.
    """

    def __init__(self) -> None:
        self._findings = Findings("high-watermark-monotonic")
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


HIGH_WATERMARK_MONOTONIC = Invariant(
    name="high-watermark-monotonic",
    within_metadata_log=True,
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


class SentInOrder:
    """The high watermark that a leader sends is never below one that a leader of an earlier epoch
    sent before.

    A new leader may know a lower high watermark than its predecessor sent. It must not send one
    until the record that starts its epoch is committed. Apache Kafka's replicas fail on a high
    watermark below their own.

    Compares the first high watermark that is sent in each epoch with all that were sent in earlier
    epochs.

    Source: KIP-595, org.apache.kafka.raft.LeaderState.updateHighWatermark and
    FollowerState.updateHighWatermark.
    """

    def __init__(self) -> None:
        self._findings = Findings("high-watermark-monotonic-across-epochs")
        self._sent: list[tuple[int, int, str]] = []
        self._epochs: set[int] = set()  # for membership only, never iterated

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a high watermark that a leader sent."""
        assert isinstance(event, HighWatermarkReported)
        self._findings.examined += 1
        higher = None
        if event.leader_epoch not in self._epochs:
            higher = next(
                (
                    each
                    for each in self._sent
                    if each[0] < event.leader_epoch and each[1] > event.high_watermark
                ),
                None,
            )
        self._epochs.add(event.leader_epoch)
        self._sent.append((event.leader_epoch, event.high_watermark, envelope.event_id))
        if higher is None:
            return None
        message = (
            f"{envelope.node} reported {event.high_watermark} in epoch {event.leader_epoch}, and "
            f"{higher[1]} had been reported in epoch {higher[0]}"
        )
        return self._findings.violation(
            str(event.leader_epoch), message, higher[2], envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


HIGH_WATERMARK_MONOTONIC_ACROSS_EPOCHS = Invariant(
    name="high-watermark-monotonic-across-epochs",
    within_metadata_log=True,
    rule="The high watermark that a leader sends is never below one that a leader of an earlier "
    "epoch sent before.",
    source="KIP-595",
    watches=(HighWatermarkReported,),
    check=SentInOrder,
    examined="SELECT run, count(*) FROM high_watermark_reported GROUP BY run",
    violations="""
        WITH beginning AS (
            SELECT run, leader_epoch, min(position) AS position FROM high_watermark_reported
                GROUP BY run, leader_epoch
        ), breach AS (
            SELECT f.run, f.position, min(h.position) AS higher_position
            FROM beginning AS b
            JOIN high_watermark_reported AS f ON f.run = b.run AND f.position = b.position
            JOIN high_watermark_reported AS h
                ON h.run = f.run AND h.position < f.position AND h.leader_epoch < f.leader_epoch
                    AND h.high_watermark > f.high_watermark
            GROUP BY f.run, f.position
        )
        SELECT
            f.run,
            CAST(f.leader_epoch AS STRING) AS key,
            concat(
                f.node, ' reported ', f.high_watermark, ' in epoch ', f.leader_epoch,
                ', and ', h.high_watermark, ' had been reported in epoch ', h.leader_epoch
            ) AS message,
            h.position AS first_witness,
            f.position AS second_witness
        FROM breach AS b
        JOIN high_watermark_reported AS f ON f.run = b.run AND f.position = b.position
        JOIN high_watermark_reported AS h ON h.run = b.run AND h.position = b.higher_position
    """,
)


class HighestKnown:
    """A replica of the metadata log is never truncated below its high watermark, nor replaced by a
    snapshot that ends below it.

    For a truncation, the high watermark known before a restart counts as well. For a snapshot it
    does not: a replica that lost records in a power loss may receive an older one.

    Tracks the highest high watermark of each node.

    Source: KIP-595, KAFKA-12460, org.apache.kafka.raft.ReplicatedLog.truncateTo.
    """

    def __init__(self) -> None:
        self._findings = Findings("no-truncation-below-high-watermark")
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


NO_TRUNCATION_BELOW_HIGH_WATERMARK = Invariant(
    name="no-truncation-below-high-watermark",
    within_metadata_log=True,
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


INVARIANTS = (
    HIGH_WATERMARK_FLUSHED,
    HIGH_WATERMARK_MONOTONIC,
    HIGH_WATERMARK_MONOTONIC_ACROSS_EPOCHS,
    NO_TRUNCATION_BELOW_HIGH_WATERMARK,
)

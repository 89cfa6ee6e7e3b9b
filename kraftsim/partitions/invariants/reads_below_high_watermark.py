"""A consumer returns no record that is at or above every high watermark that any replica of its
partition had by then.

Records above the high watermark may be truncated when a leader fails. A consumer that returns one
has shown its application a record that never existed. A read_committed consumer stops at the last
stable offset, which is not above the high watermark, so the same rule applies. A partition with one
replica is not checked: everything in its log is committed, and no event reports that. An unclean
election may lower the high watermark; reads below the earlier one are not reported.
Source: KIP-98, KIP-207; kafka.cluster.Partition.readRecords, kafka.log.UnifiedLog.read
(maxOffsetMetadata).
"""

from kraftsim.clients.events import RecordRead
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import PartitionChanged
from kraftsim.partitions.events import LeaderFollowed, PartitionHighWatermarkMoved

NAME = "reads-below-high-watermark"
Log = tuple[str, int]


class ReadsBelowHighWatermark:
    """Tracks the highest high watermark of each replicated partition."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._high_watermarks: dict[Log, int] = {}
        self._followed: dict[Log, None] = {}
        self._single: dict[Log, None] = {}
        """Partitions that have, or had, a single replica."""

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a high watermark or a partition's replicas, or check a record that was read."""
        match event:
            case RecordRead():
                log = (event.topic, event.partition)
                return (
                    self._check(envelope, event, log)
                    if log in self._followed and log not in self._single
                    else None
                )
            case PartitionHighWatermarkMoved():
                log = (event.topic, event.partition)
                if event.high_watermark > self._high_watermarks.get(log, 0):
                    self._high_watermarks[log] = event.high_watermark
            case LeaderFollowed() if event.leader_id >= 0:
                self._followed[event.topic, event.partition] = None
            case PartitionChanged() if "," not in event.replicas:
                self._single[event.topic, event.partition] = None
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _check(self, envelope: Envelope, event: RecordRead, log: Log) -> Violation | None:
        self._findings.examined += 1
        high_watermark = self._high_watermarks.get(log, 0)
        if event.offset < high_watermark:
            return None
        message = (
            f"{event.topic}-{event.partition}: {event.client_id} read offset {event.offset} "
            f"when the highest high watermark of any replica was {high_watermark}"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)


_LINE = "run, topic, partition, position"
_READ = f"""
    line AS (
        SELECT {_LINE}, CAST(high_watermark AS BIGINT) AS high_watermark,
            CAST(NULL AS BIGINT) AS at_offset, '' AS client_id, '' AS event_id
        FROM partition_high_watermark_moved
        UNION ALL
        SELECT {_LINE}, CAST(NULL AS BIGINT), r.offset, client_id, concat(node, '.', incarnation,
            '.', n) FROM record_read AS r
    ), bounded AS (
        SELECT *, coalesce(max(high_watermark) OVER (PARTITION BY run, topic, partition
            ORDER BY position), 0) AS bound FROM line
    ), followed AS (
        SELECT run, topic, partition, min(position) AS first_position FROM leader_followed
            WHERE leader_id >= 0 GROUP BY run, topic, partition
    ), single AS (
        SELECT run, topic, partition, min(position) AS first_position FROM partition_changed
            WHERE replicas NOT LIKE '%,%'
        GROUP BY run, topic, partition
    ), checked AS (
        SELECT b.* FROM bounded AS b
        JOIN followed AS f ON f.run = b.run AND f.topic = b.topic AND f.partition = b.partition
            AND f.first_position < b.position
        LEFT JOIN single AS s ON s.run = b.run AND s.topic = b.topic AND s.partition = b.partition
            AND s.first_position < b.position
        WHERE b.at_offset IS NOT NULL AND s.first_position IS NULL
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="A consumer returns no record that is at or above every high watermark that any replica "
    "of its partition had by then.",
    source="KIP-98, KIP-207",
    watches=(RecordRead, PartitionHighWatermarkMoved, LeaderFollowed, PartitionChanged),
    check=ReadsBelowHighWatermark,
    examined=f"WITH {_READ} SELECT run, count(*) FROM checked GROUP BY run",
    violations=f"""
        WITH {_READ}
        SELECT
            run,
            event_id AS key,
            concat(
                topic, '-', partition, ': ', client_id, ' read offset ', at_offset,
                    ' when the highest high watermark of any replica was ', bound
            ) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM checked WHERE at_offset >= bound
    """,
)

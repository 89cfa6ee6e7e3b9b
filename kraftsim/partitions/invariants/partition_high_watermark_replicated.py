"""A partition leader's high watermark is never above the log end offset of a replica that the
leader knows as in sync.

A replica's log is what it appended and replicated and did not truncate, or what it reports when it
becomes leader or follower, because a crash may come between a write and its event. Records that it
lost in a power loss count as present, because the loss may not be known yet. A leader from before
an unclean election that does not know of it is not checked: it may count truncated records as
replicated.
Source: kafka.cluster.Partition.maybeIncrementLeaderHW, KIP-497 (the ISR that a leader requested
counts, too), KIP-966.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.unclean_elections import RECOVERING, UncleanElections
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import PartitionChanged
from kraftsim.partitions.events import (
    BatchAppended,
    BatchReplicated,
    IsrChanged,
    LeaderElected,
    LeaderFollowed,
    PartitionHighWatermarkMoved,
    PartitionTruncated,
)

NAME = "partition-high-watermark-replicated"
BROKER = "broker-"
NEWEST_EPOCH = 2**31 - 1
Log = tuple[str, int]


class OnAllInSync:
    """Tracks each replica's log end offset, and the in-sync replicas of each leader."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._ends: dict[Log, dict[str, int]] = {}
        self._in_sync: dict[tuple[str, Log, int], tuple[str, ...]] = {}
        self._unclean = UncleanElections()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a change of a log end offset, of the in-sync replicas, or of a leader's high
        watermark.
        """
        match event:
            case (
                BatchAppended(topic=topic, partition=partition, last_offset=last)
                | BatchReplicated(topic=topic, partition=partition, last_offset=last)
            ):
                self._ends.setdefault((topic, partition), {})[envelope.node] = last + 1
            case PartitionTruncated():
                self._ends.setdefault((event.topic, event.partition), {})[envelope.node] = (
                    event.log_end_offset
                )
            case LeaderElected(next_offset=end) | LeaderFollowed(log_end_offset=end):
                ends = self._ends.setdefault((event.topic, event.partition), {})
                ends[envelope.node] = max(end, ends.get(envelope.node, 0))
            case IsrChanged():
                self._in_sync[envelope.node, (event.topic, event.partition), event.leader_epoch] = (
                    tuple(event.isr.split(","))
                )
            case PartitionChanged():
                self._unclean.learn(event)
            case PartitionHighWatermarkMoved() if event.is_leader:
                return self._check(envelope, event)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _check(self, envelope: Envelope, event: PartitionHighWatermarkMoved) -> Violation | None:
        log = (event.topic, event.partition)
        in_sync = self._in_sync.get((envelope.node, log, event.leader_epoch))
        if in_sync is None or self._unclean.has_been(
            log, after_epoch=event.leader_epoch, up_to_epoch=NEWEST_EPOCH
        ):
            return None
        self._findings.examined += 1
        first = None
        for node, end_offset in self._ends.get(log, {}).items():
            if node.replace(BROKER, "") in in_sync and end_offset < event.high_watermark:
                message = (
                    f"{event.topic}-{event.partition}: the high watermark of {envelope.node} is "
                    f"{event.high_watermark}, and the log of {node}, which is in sync, ends at "
                    f"{end_offset}"
                )
                first = (
                    self._findings.violation(
                        f"{envelope.event_id}/{node}", message, envelope.event_id
                    )
                    or first
                )
        return first


_LOG = "run, topic, partition, node, position"
_STEP = "run, topic, partition, node, incarnation, n, leader_epoch, position"
_LEADER_EPOCH = "PARTITION BY run, topic, partition, node, leader_epoch"
_MOVED = f"""
    step AS (
        SELECT {_STEP}, isr, CAST(NULL AS BIGINT) AS high_watermark FROM isr_changed
        UNION ALL
        SELECT {_STEP}, CAST(NULL AS STRING) AS isr,
            CAST(high_watermark AS BIGINT) AS high_watermark
        FROM partition_high_watermark_moved WHERE is_leader
    ), counted AS (
        SELECT *, count(isr) OVER ({_LEADER_EPOCH} ORDER BY position) AS change_number FROM step
    ), reported AS (
        SELECT *, max(isr) OVER ({_LEADER_EPOCH}, change_number) AS in_sync FROM counted
    ), moved AS (
        SELECT * FROM reported WHERE high_watermark IS NOT NULL AND in_sync IS NOT NULL
            AND NOT EXISTS (
            SELECT 1 FROM partition_changed AS c
            WHERE c.run = reported.run AND c.topic = reported.topic
                AND c.partition = reported.partition AND c.leader_recovery_state = {RECOVERING}
                AND c.leader_epoch > reported.leader_epoch AND c.position < reported.position
        )
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="A partition leader's high watermark is never above the log end offset of a replica that "
    "the leader knows as in sync.",
    source="KIP-497, KIP-966",
    watches=(
        BatchAppended,
        BatchReplicated,
        PartitionTruncated,
        LeaderElected,
        LeaderFollowed,
        IsrChanged,
        PartitionHighWatermarkMoved,
        PartitionChanged,
    ),
    check=OnAllInSync,
    examined=f"WITH {_MOVED} SELECT run, count(*) FROM moved GROUP BY run",
    violations=f"""
        WITH {_MOVED}, ending AS (
            SELECT {_LOG}, last_offset + 1 AS end_offset FROM batch_appended
            UNION ALL SELECT {_LOG}, last_offset + 1 AS end_offset FROM batch_replicated
            UNION ALL SELECT {_LOG}, log_end_offset AS end_offset FROM partition_truncated
        ), known AS (
            SELECT run, topic, partition, node, min(position) AS position
            FROM (
                SELECT {_LOG} FROM ending UNION ALL SELECT {_LOG} FROM leader_elected
                    UNION ALL SELECT {_LOG} FROM leader_followed
            ) AS noted GROUP BY run, topic, partition, node
        ), asked AS (
            SELECT
                moved.run, moved.topic, moved.partition, known.node, moved.position,
                    moved.high_watermark,
                concat(moved.node, '.', moved.incarnation, '.', moved.n) AS event_id,
                    moved.node AS leader
            FROM moved JOIN known
                ON known.run = moved.run AND known.topic = moved.topic
                    AND known.partition = moved.partition AND known.position < moved.position
                    AND concat(',', moved.in_sync, ',') LIKE concat('%,', replace(known.node,
                        '{BROKER}', ''), ',%')
        ), line AS (
            SELECT {_LOG}, end_offset, 0 AS said_offset, CAST(NULL AS BIGINT) AS high_watermark,
                '' AS event_id, '' AS leader FROM ending
            UNION ALL
            SELECT {_LOG}, CAST(NULL AS BIGINT) AS end_offset, 0 AS said_offset, high_watermark,
                event_id, leader FROM asked
            UNION ALL
            SELECT {_LOG}, CAST(NULL AS BIGINT) AS end_offset, next_offset AS said_offset,
                CAST(NULL AS BIGINT) AS high_watermark, '', ''
            FROM leader_elected
            UNION ALL
            SELECT {_LOG}, CAST(NULL AS BIGINT) AS end_offset, log_end_offset AS said_offset,
                CAST(NULL AS BIGINT) AS high_watermark, '', ''
            FROM leader_followed
        ), numbered AS (
            SELECT *, count(end_offset) OVER (PARTITION BY run, topic, partition, node
                ORDER BY position) AS end_number FROM line
        ), judged AS (
            SELECT
                *,
                greatest(
                    coalesce(max(end_offset) OVER (PARTITION BY run, topic, partition, node,
                        end_number), 0),
                    max(said_offset) OVER (PARTITION BY run, topic, partition, node, end_number
                        ORDER BY position)
                ) AS known_end
            FROM numbered
        )
        SELECT
            run,
            concat(event_id, '/', node) AS key,
            concat(
                topic, '-', partition, ': the high watermark of ', leader, ' is ', high_watermark,
                    ', and the log of ', node,
                ', which is in sync, ends at ', known_end
            ) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM judged WHERE known_end < high_watermark
    """,
)

"""The high watermark of a partition: what is below it is on all in-sync replicas, and readers see
nothing above.

It depends on which replicas are in sync. A replica joins the ISR only when it has all that the
leader's epoch began with, because the high watermark of a new leader lags behind what its
predecessor acknowledged.
"""

from kraftsim.clients.events import RecordRead
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.permitted_losses import RECOVERING, UNCLEAN, UncleanElections
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import PartitionChanged
from kraftsim.partitions.events import (
    BatchAppended,
    BatchReplicated,
    IsrChangeAsked,
    IsrChanged,
    LeaderElected,
    LeaderFollowed,
    PartitionHighWatermarkMoved,
    PartitionTruncated,
)


class PartitionAlwaysHigher:
    """Within one leader epoch the high watermark of a partition leader never decreases.

    A follower's high watermark may decrease under a leader that knows a lower one; but a client
    that reads from the leader must never see it decrease.

    Tracks the latest high watermark of each leader in each of its epochs.

    Source: kafka.cluster.Partition.maybeIncrementLeaderHW; KIP-207.
    """

    def __init__(self) -> None:
        self._findings = Findings("partition-high-watermark-monotonic")
        self._latest: dict[tuple[str, int, str, int, int], tuple[int, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a high watermark."""
        assert isinstance(event, PartitionHighWatermarkMoved)
        if not event.is_leader:
            return None
        self._findings.examined += 1
        leadership = (
            envelope.node,
            envelope.incarnation,
            event.topic,
            event.partition,
            event.leader_epoch,
        )
        before, self._latest[leadership] = (
            self._latest.get(leadership),
            (event.high_watermark, envelope.event_id),
        )
        if before is None or event.high_watermark > before[0]:
            return None
        message = (
            f"{event.topic}-{event.partition}: the high watermark of {envelope.node}, leader in "
            f"epoch {event.leader_epoch}, went from {before[0]} to {event.high_watermark}"
        )
        return self._findings.violation(envelope.event_id, message, before[1], envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_STEPS_OF_LEADER = (
    "PARTITION BY run, node, incarnation, topic, partition, leader_epoch ORDER BY position"
)

PARTITION_HIGH_WATERMARK_MONOTONIC = Invariant(
    name="partition-high-watermark-monotonic",
    rule="Within one leader epoch the high watermark of a partition leader never decreases.",
    source="KIP-207",
    watches=(PartitionHighWatermarkMoved,),
    check=PartitionAlwaysHigher,
    examined=(
        "SELECT run, count(*) FROM partition_high_watermark_moved WHERE is_leader GROUP BY run"
    ),
    violations=f"""
        WITH ordered AS (
            SELECT
                run, node, incarnation, n, position, topic, partition, leader_epoch, high_watermark,
                lag(high_watermark) OVER ({_STEPS_OF_LEADER}) AS previous_high_watermark,
                lag(position) OVER ({_STEPS_OF_LEADER}) AS previous_position
            FROM partition_high_watermark_moved WHERE is_leader
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                topic, '-', partition, ': the high watermark of ', node, ', leader in epoch ',
                    leader_epoch, ', went from ',
                previous_high_watermark, ' to ', high_watermark
            ) AS message,
            previous_position AS first_witness,
            position AS second_witness
        FROM ordered WHERE high_watermark <= previous_high_watermark
    """,
)


BROKER = "broker-"
NEWEST_EPOCH = 2**31 - 1
Log = tuple[str, int]


class OnAllInSync:
    """A partition leader's high watermark is never above the log end offset of a replica that the
    leader knows as in sync.

    A replica's log is what it appended and replicated and did not truncate, or what it reports when
    it becomes leader or follower, because a crash may come between a write and its event. Records
    that it lost in a power loss count as present, because the loss may not be known yet. A leader
    from before an unclean election that does not know of it is not checked: it may count truncated
    records as replicated.

    Tracks each replica's log end offset, and the in-sync replicas of each leader.

    Source: kafka.cluster.Partition.maybeIncrementLeaderHW, KIP-497 (the ISR that a leader requested
    counts, too), KIP-966.
    """

    def __init__(self) -> None:
        self._findings = Findings("partition-high-watermark-replicated")
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
_EVENT = "run, topic, partition, node, incarnation, n, leader_epoch, position"
_LEADER_EPOCH = "PARTITION BY run, topic, partition, node, leader_epoch"
_MOVED = f"""
    step AS (
        SELECT {_EVENT}, isr, CAST(NULL AS BIGINT) AS high_watermark FROM isr_changed
        UNION ALL
        SELECT {_EVENT}, CAST(NULL AS STRING) AS isr,
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

PARTITION_HIGH_WATERMARK_REPLICATED = Invariant(
    name="partition-high-watermark-replicated",
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
                    moved.high_watermark, moved.node AS leader, moved.incarnation, moved.n
            FROM moved JOIN known
                ON known.run = moved.run AND known.topic = moved.topic
                    AND known.partition = moved.partition AND known.position < moved.position
                    AND concat(',', moved.in_sync, ',') LIKE concat('%,', replace(known.node,
                        '{BROKER}', ''), ',%')
        ), line AS (
            SELECT {_LOG}, end_offset, 0 AS said_offset, CAST(NULL AS BIGINT) AS high_watermark,
                '' AS leader, CAST(0 AS BIGINT) AS incarnation, CAST(0 AS BIGINT) AS n FROM ending
            UNION ALL
            SELECT {_LOG}, CAST(NULL AS BIGINT) AS end_offset, 0 AS said_offset, high_watermark,
                leader, incarnation, n FROM asked
            UNION ALL
            SELECT {_LOG}, CAST(NULL AS BIGINT) AS end_offset, next_offset AS said_offset,
                CAST(NULL AS BIGINT) AS high_watermark, '', 0, 0
            FROM leader_elected
            UNION ALL
            SELECT {_LOG}, CAST(NULL AS BIGINT) AS end_offset, log_end_offset AS said_offset,
                CAST(NULL AS BIGINT) AS high_watermark, '', 0, 0
            FROM leader_followed
        ), numbered AS (
            SELECT *, count(end_offset) OVER (PARTITION BY run, topic, partition, node
                ORDER BY position) AS end_number FROM line
        ), judged AS (
            SELECT
                *,
                max(greatest(coalesce(end_offset, 0), said_offset)) OVER (PARTITION BY run, topic,
                    partition, node, end_number ORDER BY position) AS known_end
            FROM numbered
        )
        SELECT
            run,
            concat(leader, '.', incarnation, '.', n, '/', node) AS key,
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


class KeepsWhatIsReplicated:
    """A replica of a partition never truncates its log below its high watermark.

    Every possible next leader was in sync and has the records below it. Only an unclean election
    may remove them, on the followers in its epoch or a later one.

    Compares each truncation with the high watermark that the replica knew.

    Source: KIP-101, KIP-279; kafka.server.ReplicaFetcherThread.truncate.
    """

    def __init__(self) -> None:
        self._findings = Findings("no-partition-truncation-below-high-watermark")
        self._unclean = UncleanElections()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a truncation, or a change of leader."""
        assert isinstance(event, PartitionTruncated | PartitionChanged)
        if isinstance(event, PartitionChanged):
            self._unclean.learn(event)
            return None
        self._findings.examined += 1
        is_given_up = self._unclean.has_been(
            (event.topic, event.partition), after_epoch=-1, up_to_epoch=event.leader_epoch
        )
        if event.log_end_offset >= event.high_watermark or is_given_up:
            return None
        message = (
            f"{event.topic}-{event.partition}: {envelope.node} cut its log at "
            f"{event.log_end_offset}, though it knew that everything before "
            f"{event.high_watermark} is replicated"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


NO_PARTITION_TRUNCATION_BELOW_HIGH_WATERMARK = Invariant(
    name="no-partition-truncation-below-high-watermark",
    rule="A replica of a partition never truncates its log below its high watermark.",
    source="KIP-101, KIP-279",
    watches=(PartitionTruncated, PartitionChanged),
    check=KeepsWhatIsReplicated,
    examined="SELECT run, count(*) FROM partition_truncated GROUP BY run",
    violations=f"""
        WITH {UNCLEAN}
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                topic, '-', partition, ': ', node, ' cut its log at ', log_end_offset,
                    ', though it knew that everything before ', high_watermark,
                ' is replicated'
            ) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM partition_truncated AS t WHERE log_end_offset < high_watermark AND NOT EXISTS (
            SELECT 1 FROM unclean AS u WHERE u.run = t.run AND u.topic = t.topic
                AND u.partition = t.partition AND u.leader_epoch <= t.leader_epoch
        )
    """,
)


class ReadsBelowHighWatermark:
    """A consumer returns no record that is at or above every high watermark that any replica of its
    partition had by then.

    Records above the high watermark may be truncated when a leader fails. A consumer that returns
    one has shown its application a record that never existed. A read_committed consumer stops at
    the last stable offset, which is not above the high watermark, so the same rule applies. A
    partition with one replica is not checked: everything in its log is committed, and no event
    reports that. An unclean election may lower the high watermark; reads below the earlier one are
    not reported.

    Tracks the highest high watermark of each replicated partition.

    Source: KIP-98, KIP-207; kafka.cluster.Partition.readRecords, kafka.log.UnifiedLog.read
    (maxOffsetMetadata).
    """

    def __init__(self) -> None:
        self._findings = Findings("reads-below-high-watermark")
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

READS_BELOW_HIGH_WATERMARK = Invariant(
    name="reads-below-high-watermark",
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


class JoinsBeyondEpochStart:
    """A leader adds a replica to the ISR only if the replica has every record that the leader had
    when its epoch started.

    The leader's high watermark lags behind what its predecessor acknowledged: a replica that has
    only the records below the high watermark may lack acknowledged records, and would lose them as
    the next leader (KAFKA-7128). A replica's log is what it appended and replicated and did not
    truncate, or what it reports when it becomes leader or follower. Records that it lost in a power
    loss count as present, because its leader need not know of the loss yet. A request of a leader
    in an earlier epoch than the replica follows is not checked: the controller rejects it.

    Tracks each replica's log end offset, and the start offset of each leader's epoch.

    Source: KAFKA-7128, KIP-497; kafka.cluster.Partition.isFollowerInSync.
    """

    def __init__(self) -> None:
        self._findings = Findings("isr-joined-after-epoch-start")
        self._ends: dict[Log, dict[str, int]] = {}
        self._epochs: dict[tuple[str, Log], int] = {}
        """(node, log) -> the newest leader epoch in which the node leads or follows."""
        self._starts: dict[tuple[str, Log, int], int] = {}
        """(leader, log, leader epoch) -> the leader's log end offset when the epoch started."""
        self._in_sync: dict[tuple[str, Log, int], tuple[str, ...]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a change of a log end offset, a role or the ISR, and check each request to change
        the ISR.
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
                log = (event.topic, event.partition)
                ends = self._ends.setdefault(log, {})
                ends[envelope.node] = max(end, ends.get(envelope.node, 0))
                self._epochs[envelope.node, log] = max(
                    event.leader_epoch, self._epochs.get((envelope.node, log), -1)
                )
                if isinstance(event, LeaderElected):
                    self._starts[envelope.node, log, event.leader_epoch] = end
            case IsrChanged():
                self._in_sync[envelope.node, (event.topic, event.partition), event.leader_epoch] = (
                    tuple(event.isr.split(","))
                )
            case IsrChangeAsked():
                return self._check(envelope, event)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _check(self, envelope: Envelope, event: IsrChangeAsked) -> Violation | None:
        log = (event.topic, event.partition)
        start = self._starts.get((envelope.node, log, event.leader_epoch))
        agreed = self._in_sync.get((envelope.node, log, event.leader_epoch))
        if start is None or agreed is None:
            return None
        ends, first = self._ends[log], None
        for replica in event.isr.split(","):
            node = BROKER + replica
            if (
                replica in agreed
                or node not in ends
                or self._epochs.get((node, log), -1) > event.leader_epoch
            ):
                continue
            self._findings.examined += 1
            if ends[node] < start:
                message = (
                    f"{event.topic}-{event.partition}: {envelope.node} asks for {node} to join "
                    f"the replicas in sync, whose log ends at {ends[node]}; epoch "
                    f"{event.leader_epoch} began at {start}"
                )
                first = (
                    self._findings.violation(
                        f"{envelope.event_id}/{node}", message, envelope.event_id
                    )
                    or first
                )
        return first


_EPOCH_STEP = f"{_LOG}, leader_epoch"
_TERM = "PARTITION BY run, topic, partition, node, leader_epoch"
_JOINING = f"""
    step AS (
        SELECT {_EPOCH_STEP}, isr, CAST(NULL AS BIGINT) AS start, CAST(NULL AS STRING) AS asked,
            '' AS event_id FROM isr_changed
        UNION ALL
        SELECT {_EPOCH_STEP}, CAST(NULL AS STRING), next_offset, CAST(NULL AS STRING), ''
            FROM leader_elected
        UNION ALL
        SELECT {_EPOCH_STEP}, CAST(NULL AS STRING), CAST(NULL AS BIGINT), isr, concat(node, '.',
            incarnation, '.', n) FROM isr_change_asked
    ), counted AS (
        SELECT *, count(isr) OVER ({_TERM} ORDER BY position) AS set_number,
            count(start) OVER ({_TERM} ORDER BY position) AS start_number FROM step
    ), known_of AS (
        SELECT
            *,
            max(isr) OVER ({_TERM}, set_number) AS in_sync,
            max(start) OVER ({_TERM}, start_number) AS epoch_start
        FROM counted
    ), replica AS (
        SELECT run, topic, partition, node, min(position) AS first_position FROM (
            SELECT {_LOG} FROM batch_appended UNION ALL SELECT {_LOG} FROM batch_replicated
                UNION ALL SELECT {_LOG} FROM partition_truncated
            UNION ALL SELECT {_LOG} FROM leader_elected UNION ALL SELECT {_LOG} FROM leader_followed
        ) AS noted GROUP BY run, topic, partition, node
    ), role AS (
        SELECT {_EPOCH_STEP} FROM leader_elected UNION ALL SELECT {_EPOCH_STEP} FROM leader_followed
    ), joining AS (
        SELECT
            k.run, k.topic, k.partition, r.node, k.position, k.leader_epoch, k.epoch_start,
                k.event_id, k.node AS leader
        FROM known_of AS k JOIN replica AS r
            ON r.run = k.run AND r.topic = k.topic AND r.partition = k.partition
                AND r.first_position < k.position
                AND concat(',', k.asked, ',') LIKE concat('%,', replace(r.node, '{BROKER}', ''),
                    ',%')
                AND NOT concat(',', k.in_sync, ',') LIKE concat('%,', replace(r.node, '{BROKER}',
                    ''), ',%')
        WHERE k.asked IS NOT NULL AND k.in_sync IS NOT NULL AND k.epoch_start IS NOT NULL
            AND NOT EXISTS (
            SELECT 1 FROM role
            WHERE role.run = k.run AND role.topic = k.topic AND role.partition = k.partition
                AND role.node = r.node
                AND role.leader_epoch > k.leader_epoch AND role.position < k.position
        )
    )
"""

ISR_JOINED_AFTER_EPOCH_START = Invariant(
    name="isr-joined-after-epoch-start",
    rule="A leader adds a replica to the ISR only if the replica has every record that the leader "
    "had when its epoch started.",
    source="KAFKA-7128, KIP-497",
    watches=(
        BatchAppended,
        BatchReplicated,
        PartitionTruncated,
        LeaderElected,
        LeaderFollowed,
        IsrChanged,
        IsrChangeAsked,
    ),
    check=JoinsBeyondEpochStart,
    examined=f"WITH {_JOINING} SELECT run, count(*) FROM joining GROUP BY run",
    violations=f"""
        WITH {_JOINING}, line AS (
            SELECT {_LOG}, last_offset + 1 AS end_offset, 0 AS said_offset,
                CAST(NULL AS BIGINT) AS epoch_start, 0 AS leader_epoch,
                '' AS event_id, '' AS leader FROM batch_appended
            UNION ALL SELECT {_LOG}, last_offset + 1, 0, CAST(NULL AS BIGINT), 0, '', ''
                FROM batch_replicated
            UNION ALL SELECT {_LOG}, log_end_offset, 0, CAST(NULL AS BIGINT), 0, '', ''
                FROM partition_truncated
            UNION ALL SELECT {_LOG}, CAST(NULL AS BIGINT), next_offset, CAST(NULL AS BIGINT), 0, '',
                '' FROM leader_elected
            UNION ALL SELECT {_LOG}, CAST(NULL AS BIGINT), log_end_offset, CAST(NULL AS BIGINT), 0,
                '', '' FROM leader_followed
            UNION ALL SELECT {_LOG}, CAST(NULL AS BIGINT), 0, epoch_start, leader_epoch, event_id,
                leader FROM joining
        ), numbered AS (
            SELECT *, count(end_offset) OVER (PARTITION BY run, topic, partition, node
                ORDER BY position) AS end_number FROM line
        ), judged AS (
            SELECT
                *,
                max(greatest(coalesce(end_offset, 0), said_offset)) OVER (PARTITION BY run, topic,
                    partition, node, end_number ORDER BY position) AS known_end
            FROM numbered
        )
        SELECT
            run,
            concat(event_id, '/', node) AS key,
            concat(
                topic, '-', partition, ': ', leader, ' asks for ', node,
                    ' to join the replicas in sync, whose log ends at ', known_end,
                '; epoch ', leader_epoch, ' began at ', epoch_start
            ) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM judged WHERE known_end < epoch_start
    """,
)


INVARIANTS = (
    PARTITION_HIGH_WATERMARK_MONOTONIC,
    PARTITION_HIGH_WATERMARK_REPLICATED,
    NO_PARTITION_TRUNCATION_BELOW_HIGH_WATERMARK,
    READS_BELOW_HIGH_WATERMARK,
    ISR_JOINED_AFTER_EPOCH_START,
)

"""A leader adds a replica to the ISR only if the replica has every record that the leader had when
its epoch started.

The leader's high watermark lags behind what its predecessor acknowledged: a replica that has only
the records below the high watermark may lack acknowledged records, and would lose them as the next
leader (KAFKA-7128). A replica's log is what it appended and replicated and did not truncate, or
what it reports when it becomes leader or follower. Records that it lost in a power loss count as
present, because its leader need not know of the loss yet. A request of a leader in an earlier epoch
than the replica follows is not checked: the controller rejects it.
Source: KAFKA-7128, KIP-497; kafka.cluster.Partition.isFollowerInSync.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import (
    BatchAppended,
    BatchReplicated,
    IsrChangeAsked,
    IsrChanged,
    LeaderElected,
    LeaderFollowed,
    PartitionTruncated,
)

NAME = "isr-joined-after-epoch-start"
BROKER = "broker-"
Log = tuple[str, int]


class JoinsBeyondEpochStart:
    """Tracks each replica's log end offset, and the start offset of each leader's epoch."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
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


_LOG = "run, topic, partition, node, position"
_STEP = f"{_LOG}, leader_epoch"
_TERM = "PARTITION BY run, topic, partition, node, leader_epoch"
_JOINING = f"""
    step AS (
        SELECT {_STEP}, isr, CAST(NULL AS BIGINT) AS start, CAST(NULL AS STRING) AS asked,
            '' AS event_id FROM isr_changed
        UNION ALL
        SELECT {_STEP}, CAST(NULL AS STRING), next_offset, CAST(NULL AS STRING), ''
            FROM leader_elected
        UNION ALL
        SELECT {_STEP}, CAST(NULL AS STRING), CAST(NULL AS BIGINT), isr, concat(node, '.',
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
        SELECT {_STEP} FROM leader_elected UNION ALL SELECT {_STEP} FROM leader_followed
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

INVARIANT = Invariant(
    name=NAME,
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
                topic, '-', partition, ': ', leader, ' asks for ', node,
                    ' to join the replicas in sync, whose log ends at ', known_end,
                '; epoch ', leader_epoch, ' began at ', epoch_start
            ) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM judged WHERE known_end < epoch_start
    """,
)

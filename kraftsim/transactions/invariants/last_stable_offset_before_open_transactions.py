"""The last stable offset is never above the high watermark, nor past the first record of an open
transaction.

On each leader the last stable offset is compared with the transactions in that leader's own log,
through appends, replication, markers and truncations. A transaction is open from its first record
until its marker. Records that were truncated, or overwritten after a loss, no longer count.
Source: KIP-98; KAFKA-9807 (the high watermark was read twice);
kafka.log.UnifiedLog.fetchLastStableOffsetMetadata.
"""

from typing import NamedTuple

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import BatchAppended, BatchReplicated, PartitionTruncated
from kraftsim.partitions.events_transactions import LastStableOffsetMoved, MarkerAppended

NAME = "last-stable-offset-before-open-transactions"
LogName = tuple[str, str, int]
"""Node, topic, partition."""


class Open(NamedTuple):
    """A transaction of a producer in a log."""

    first_offset: int
    event_id: str


class OpenTransactions:
    """Tracks the open transactions in each replica's log, and checks every change of a last stable
    offset.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._open: dict[LogName, dict[int, Open]] = {}
        self._end: dict[LogName, int] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a change of a log, or of its last stable offset."""
        assert isinstance(
            event,
            LastStableOffsetMoved
            | MarkerAppended
            | BatchAppended
            | BatchReplicated
            | PartitionTruncated,
        )
        log = (envelope.node, event.topic, event.partition)
        match event:
            case LastStableOffsetMoved():
                return self._check(log, event, envelope.event_id)
            case MarkerAppended():
                self._written(log, event.offset, event.offset)
                self._open.get(log, {}).pop(event.producer_id, None)
            case PartitionTruncated():
                self._truncate(log, event.log_end_offset)
            case BatchAppended() | BatchReplicated():
                self._written(log, event.first_offset, event.last_offset)
                if event.is_transactional:
                    self._open.setdefault(log, {}).setdefault(
                        event.producer_id, Open(event.first_offset, envelope.event_id)
                    )
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _written(self, log: LogName, first_offset: int, last_offset: int) -> None:
        if first_offset < self._end.get(log, 0):
            self._truncate(log, first_offset)
        self._end[log] = last_offset + 1

    def _truncate(self, log: LogName, offset: int) -> None:
        self._end[log] = offset
        transactions = self._open.get(log, {})
        for producer_id in [
            each for each, found in transactions.items() if found.first_offset >= offset
        ]:
            del transactions[producer_id]

    def _check(self, log: LogName, event: LastStableOffsetMoved, event_id: str) -> Violation | None:
        self._findings.examined += 1
        topic, partition = event.topic, event.partition
        found = None
        if event.offset > event.high_watermark:
            message = (
                f"{topic}-{partition}: the last stable offset {event.offset} is above the high "
                f"watermark {event.high_watermark}"
            )
            found = self._findings.violation(
                f"{topic}/{partition}/{event.offset}", message, event_id
            )
        for producer_id, transaction in self._open.get(log, {}).items():
            if transaction.first_offset < event.offset:
                message = (
                    f"{topic}-{partition}: the last stable offset {event.offset} is past the "
                    f"open transaction of producer id {producer_id} at offset "
                    f"{transaction.first_offset}"
                )
                key = f"{topic}/{partition}/{producer_id}/{transaction.first_offset}"
                found = (
                    self._findings.violation(key, message, transaction.event_id, event_id) or found
                )
        return found


# A replica's log as it was written: `end_before` is its previous end offset, so a batch that starts
# below it overwrote something. A marker is a batch too (a follower emits both events for it, at one
# offset).
_LOG = """
    held AS (
        SELECT run, node, topic, partition, position, first_offset, last_offset, producer_id,
            is_transactional FROM batch_appended
        UNION ALL
        SELECT run, node, topic, partition, position, first_offset, last_offset, producer_id,
            is_transactional FROM batch_replicated
        UNION ALL
        SELECT run, node, topic, partition, position, m.offset, m.offset, producer_id, false
            FROM marker_appended AS m
    ), edge AS (
        SELECT run, node, topic, partition, position, first_offset, last_offset + 1 AS end_offset
            FROM held
        UNION ALL
        SELECT run, node, topic, partition, position, log_end_offset, log_end_offset
            FROM partition_truncated
    ), placed AS (
        SELECT *, lag(end_offset) OVER (PARTITION BY run, node, topic, partition
            ORDER BY position) AS end_before FROM edge
    ), cut AS (
        SELECT run, node, topic, partition, position, first_offset AS end_offset FROM placed
            WHERE first_offset < end_before
        UNION ALL
        SELECT run, node, topic, partition, position, log_end_offset FROM partition_truncated
    ), ended AS (
        SELECT b.run, b.node, b.topic, b.partition, b.position, min(m.position) AS until
        FROM held AS b
        JOIN marker_appended AS m
            ON m.run = b.run AND m.node = b.node AND m.topic = b.topic AND m.partition = b.partition
                AND m.producer_id = b.producer_id
            AND m.position > b.position
        WHERE b.is_transactional GROUP BY b.run, b.node, b.topic, b.partition, b.position
    ), lost AS (
        SELECT b.run, b.node, b.topic, b.partition, b.position, min(c.position) AS until
        FROM held AS b
        JOIN cut AS c
            ON c.run = b.run AND c.node = b.node AND c.topic = b.topic AND c.partition = b.partition
                AND c.position > b.position
            AND c.end_offset <= b.first_offset
        WHERE b.is_transactional GROUP BY b.run, b.node, b.topic, b.partition, b.position
    ), open AS (
        SELECT b.*, e.until AS ended_at, l.until AS lost_at FROM held AS b
        LEFT JOIN ended AS e
            ON e.run = b.run AND e.node = b.node AND e.topic = b.topic AND e.partition = b.partition
                AND e.position = b.position
        LEFT JOIN lost AS l
            ON l.run = b.run AND l.node = b.node AND l.topic = b.topic AND l.partition = b.partition
                AND l.position = b.position
        WHERE b.is_transactional
    ), past AS (
        SELECT s.run, s.topic, s.partition, o.producer_id, o.first_offset, s.offset AS stable,
            o.position AS opened, s.position,
            row_number() OVER (PARTITION BY s.run, s.node, s.topic, s.partition, s.position,
                o.producer_id ORDER BY o.position) AS oldest
        FROM last_stable_offset_moved AS s
        JOIN open AS o
            ON o.run = s.run AND o.node = s.node AND o.topic = s.topic AND o.partition = s.partition
                AND o.position < s.position
            AND o.first_offset < s.offset AND (o.ended_at IS NULL OR o.ended_at > s.position)
                AND (o.lost_at IS NULL OR o.lost_at > s.position)
    ), first_past AS (
        SELECT *, row_number() OVER (PARTITION BY run, topic, partition, producer_id, first_offset
            ORDER BY position) AS place
        FROM past WHERE oldest = 1
    ), above AS (
        SELECT run, topic, partition, s.offset AS stable, high_watermark, position,
            row_number() OVER (PARTITION BY run, topic, partition, s.offset
                ORDER BY position) AS place
        FROM last_stable_offset_moved AS s WHERE s.offset > high_watermark
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="The last stable offset is never above the high watermark, nor past the first record of "
    "an open transaction.",
    source="KIP-98",
    watches=(
        LastStableOffsetMoved,
        MarkerAppended,
        BatchAppended,
        BatchReplicated,
        PartitionTruncated,
    ),
    check=OpenTransactions,
    examined="SELECT run, count(*) FROM last_stable_offset_moved GROUP BY run",
    violations=f"""
        WITH {_LOG}
        SELECT
            run,
            concat(topic, '/', partition, '/', producer_id, '/', first_offset) AS key,
            concat(
                topic, '-', partition, ': the last stable offset ', stable,
                    ' is past the open transaction of producer id ', producer_id,
                ' at offset ', first_offset
            ) AS message,
            opened AS first_witness,
            position AS second_witness
        FROM first_past WHERE place = 1
        UNION ALL
        SELECT
            run,
            concat(topic, '/', partition, '/', stable),
            concat(topic, '-', partition, ': the last stable offset ', stable,
                ' is above the high watermark ', high_watermark),
            position,
            cast(NULL AS bigint)
        FROM above WHERE place = 1
    """,
)

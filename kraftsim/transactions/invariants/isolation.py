"""What read_committed consumers see: all of a committed transaction, and nothing of others.

The last stable offset holds back what is undecided, and the list of aborted transactions hides what
was aborted. With offsets committed in the same transaction an application processes each input
once.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from kraftsim.clients.events import RecordAcknowledged, RecordRead, RecordSent
from kraftsim.clients.events_transactions import (
    CopyExpected,
    CopyRead,
    TransactionEndAsked,
    TransactionEnded,
)
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.permitted_losses import (
    DELETED_WATCHES,
    REMOVED_WATCHES,
    DeletedTopics,
    RemovedRecords,
    not_deleted,
    not_removed,
)
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import (
    BatchAppended,
    BatchReplicated,
    LogStartMoved,
    PartitionTruncated,
)
from kraftsim.partitions.events_transactions import LastStableOffsetMoved, MarkerAppended

Place = tuple[str, int, int]
"""Topic, partition, offset."""
COMMITTED, ABORTED = "committed", "aborted"


@dataclass(slots=True)
class Sent:
    """What is known of one transaction."""

    places: dict[Place, None] = field(default_factory=dict)
    outcome: str = ""
    ended: str = ""


class Transactions:
    """A committed transaction is read completely, an aborted one not at all, and one with unknown
    outcome completely or not at all.

    The records of a transaction are those that were sent within it and acknowledged at an offset. A
    read_committed consumer that reached the end of the log determines which are visible. Deleted
    topics, and records below a log start offset, are not checked.

    Collects the records sent in transactions and the records read; compares them at the end of the
    run.

    Source: KIP-98, KIP-890; Jepsen's report on Bufstream 0.1.0 (aborted reads, lost writes, torn
    transactions).
    """

    def __init__(self) -> None:
        self._findings = Findings("transactions-atomic")
        self._transactions: dict[str, Sent] = {}
        self._latest: dict[tuple[str, str, int, str], str] = {}
        self._read: dict[str, set[Place]] = {}  # for membership only
        self._through: dict[tuple[str, str], None] = {}
        self._deleted = DeletedTopics()
        self._removed = RemovedRecords()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a record that was sent, acknowledged or read, or the end of a transaction."""
        if isinstance(event, RecordSent):
            self._latest[event.client_id, event.topic, event.partition, event.record_key] = (
                event.transaction
            )
        elif isinstance(event, RecordAcknowledged):
            transaction = self._latest.get(
                (event.client_id, event.topic, event.partition, event.record_key), ""
            )
            if transaction and event.offset >= 0:
                self._transactions.setdefault(transaction, Sent()).places[
                    event.topic, event.partition, event.offset
                ] = None
        elif isinstance(event, TransactionEnded):
            sent = self._transactions.setdefault(event.transaction, Sent())
            if not sent.ended:
                sent.outcome, sent.ended = event.outcome, envelope.event_id
        elif isinstance(event, RecordRead) and event.is_read_committed:
            self._read.setdefault(event.client_id, set()).add(
                (event.topic, event.partition, event.offset)
            )
        elif isinstance(event, CopyRead):
            self._through[event.topic, event.client_id] = None
        else:
            self._deleted.learn(event)
            self._removed.learn(event)
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict."""
        topics = {topic for topic, _ in self._through if not self._deleted.has(topic)}
        for transaction, sent in self._transactions.items():
            checked = [
                (topic, partition, offset)
                for topic, partition, offset in sent.places
                if topic in topics and not self._removed.has((topic, partition), offset)
            ]
            if not checked or not sent.ended:
                continue
            self._findings.examined += 1
            seen = sum(self._is_read(place) for place in checked)
            wanted = {COMMITTED: (len(checked),), ABORTED: (0,)}.get(
                sent.outcome, (0, len(checked))
            )
            if seen not in wanted:
                message = (
                    f"transaction {transaction}: {sent.outcome}, and {seen} of its "
                    f"{len(checked)} acknowledged records are read"
                )
                self._findings.violation(transaction, message, sent.ended)
        return self._findings.verdict()

    def _is_read(self, place: Place) -> bool:
        return any(
            place in self._read.get(client_id, ())
            for topic, client_id in self._through
            if topic == place[0]
        )


ACKNOWLEDGED_IN_TRANSACTIONS = """
    step AS (
        SELECT run, client_id, topic, partition, record_key, position, transaction,
            cast(NULL AS bigint) AS at_offset FROM record_sent
        UNION ALL
        SELECT run, client_id, topic, partition, record_key, position,
            cast(NULL AS string) AS transaction, a.offset AS at_offset
        FROM record_acknowledged AS a
    ), numbered_step AS (
        SELECT *, max(CASE WHEN at_offset IS NULL THEN position END)
            OVER (PARTITION BY run, client_id, topic, partition, record_key
                ORDER BY position ROWS UNBOUNDED PRECEDING) AS sent_position
        FROM step
    ), acknowledged AS (
        SELECT DISTINCT a.run, s.transaction, a.topic, a.partition, a.at_offset
        FROM numbered_step AS a JOIN record_sent AS s ON s.run = a.run
            AND s.position = a.sent_position
        WHERE a.at_offset >= 0 AND s.transaction <> ''
    )
"""
"""The offsets of each transaction's records: an acknowledgement belongs to the record that its
client last sent under that key.
"""

_CHECKED = f"""
    {ACKNOWLEDGED_IN_TRANSACTIONS}, through AS (SELECT DISTINCT run, topic, client_id
        FROM copy_read),
    seen AS (
        SELECT DISTINCT r.run, r.topic, r.partition, r.offset AS at_offset
        FROM record_read AS r JOIN through AS t ON t.run = r.run AND t.topic = r.topic
            AND t.client_id = r.client_id WHERE r.is_read_committed
    ), ended AS (
        SELECT run, transaction, outcome, position, row_number() OVER (PARTITION BY run, transaction
            ORDER BY position) AS place
        FROM transaction_ended
    ), judged AS (
        SELECT a.run, a.transaction, e.outcome, e.position, count(*) AS records,
            count(s.at_offset) AS seen
        FROM acknowledged AS a
        JOIN ended AS e ON e.run = a.run AND e.transaction = a.transaction AND e.place = 1
        LEFT JOIN seen AS s ON s.run = a.run AND s.topic = a.topic AND s.partition = a.partition
            AND s.at_offset = a.at_offset
        WHERE EXISTS (SELECT 1 FROM through AS t WHERE t.run = a.run AND t.topic = a.topic)
            AND {not_deleted("a")} AND {not_removed("a", "a.at_offset")}
        GROUP BY a.run, a.transaction, e.outcome, e.position
    )
"""

TRANSACTIONS_ATOMIC = Invariant(
    name="transactions-atomic",
    decides_without_nodes=True,
    rule="A committed transaction is read completely, an aborted one not at all, and any other "
    "completely or not at all.",
    source="KIP-98, KIP-890",
    watches=(
        RecordSent,
        RecordAcknowledged,
        TransactionEnded,
        RecordRead,
        CopyRead,
        *DELETED_WATCHES,
        *REMOVED_WATCHES,
    ),
    check=Transactions,
    examined=f"WITH {_CHECKED} SELECT run, count(*) FROM judged GROUP BY run",
    violations=f"""
        WITH {_CHECKED}
        SELECT
            run,
            transaction AS key,
            concat('transaction ', transaction, ': ', outcome, ', and ', seen, ' of its ', records,
                ' acknowledged records are read') AS message,
            position AS first_witness,
            cast(NULL AS bigint) AS second_witness
        FROM judged
        WHERE CASE outcome WHEN '{COMMITTED}' THEN seen < records WHEN '{ABORTED}' THEN seen > 0
            ELSE seen > 0 AND seen < records END
    """,
)


"""Topic, partition, offset."""


class CommittedReads:
    """A read_committed consumer returns no record of an aborted transaction, or of one whose commit
    was not yet requested.

    The transaction of a record is identified by the offset at which the record was acknowledged.
    Topics that were deleted are not checked.

    Collects reads and transactions; compares them at the end, because an acknowledgement may come
    after the read.

    Source: KIP-98; KAFKA-5376, KAFKA-9807.
    """

    def __init__(self) -> None:
        self._findings = Findings("read-committed-isolation")
        self._latest: dict[tuple[str, str, int, str], str] = {}
        self._transaction_at: dict[Place, dict[str, None]] = {}
        self._reads: dict[Place, tuple[int, str]] = {}
        self._commit_asked: dict[str, int] = {}
        self._aborted: dict[str, str] = {}
        self._deleted = DeletedTopics()
        self._position = 0

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a record that was sent, acknowledged or read, or the end of a transaction."""
        self._position += 1
        if isinstance(event, RecordSent):
            self._latest[event.client_id, event.topic, event.partition, event.record_key] = (
                event.transaction
            )
        elif isinstance(event, RecordAcknowledged):
            transaction = self._latest.get(
                (event.client_id, event.topic, event.partition, event.record_key), ""
            )
            if transaction and event.offset >= 0:
                self._transaction_at.setdefault((event.topic, event.partition, event.offset), {})[
                    transaction
                ] = None
        elif isinstance(event, RecordRead) and event.is_read_committed:
            place = (event.topic, event.partition, event.offset)
            self._reads.setdefault(place, (self._position, envelope.event_id))
        elif isinstance(event, TransactionEndAsked) and event.is_commit:
            self._commit_asked.setdefault(event.transaction, self._position)
        elif isinstance(event, TransactionEnded) and event.outcome == ABORTED:
            self._aborted.setdefault(event.transaction, envelope.event_id)
        else:
            self._deleted.learn(event)
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict."""
        for place, (position, event_id) in self._reads.items():
            if self._deleted.has(place[0]):
                continue
            for transaction in self._transaction_at.get(place, {}):
                self._findings.examined += 1
                asked = self._commit_asked.get(transaction)
                topic, partition, offset = place
                where, key = (
                    f"{topic}-{partition}: offset {offset}",
                    f"{transaction}/{topic}/{partition}/{offset}",
                )
                if transaction in self._aborted:
                    self._findings.violation(
                        key,
                        f"{where} was read, and transaction {transaction} was aborted",
                        event_id,
                    )
                elif asked is None or asked > position:
                    self._findings.violation(
                        key,
                        f"{where} was read before transaction {transaction} was to be committed",
                        event_id,
                    )
        return self._findings.verdict()


_READ = f"""
    {ACKNOWLEDGED_IN_TRANSACTIONS}, first_read AS (
        SELECT run, topic, partition, r.offset AS at_offset, min(position) AS position
            FROM record_read AS r
        WHERE is_read_committed GROUP BY run, topic, partition, r.offset
    ), read AS (
        SELECT r.run, r.topic, r.partition, r.at_offset, r.position, a.transaction
            FROM first_read AS r
        JOIN acknowledged AS a ON a.run = r.run AND a.topic = r.topic AND a.partition = r.partition
            AND a.at_offset = r.at_offset
        WHERE {not_deleted("r")}
    )
"""

READ_COMMITTED_ISOLATION = Invariant(
    name="read-committed-isolation",
    decides_without_nodes=True,
    rule="A read_committed consumer returns no record of an aborted transaction, or of one whose "
    "commit was not yet requested.",
    source="KIP-98",
    watches=(
        RecordSent,
        RecordAcknowledged,
        RecordRead,
        TransactionEndAsked,
        TransactionEnded,
        *DELETED_WATCHES,
    ),
    check=CommittedReads,
    examined=f"WITH {_READ} SELECT run, count(*) FROM read GROUP BY run",
    violations=f"""
        WITH {_READ}, asked AS (
            SELECT run, transaction, min(position) AS position FROM transaction_end_asked
                WHERE is_commit GROUP BY run, transaction
        ), aborted AS (
            SELECT DISTINCT run, transaction FROM transaction_ended WHERE outcome = '{ABORTED}'
        )
        SELECT
            r.run,
            concat(r.transaction, '/', r.topic, '/', r.partition, '/', r.at_offset) AS key,
            concat(
                r.topic, '-', r.partition, ': offset ', r.at_offset,
                CASE WHEN b.transaction IS NOT NULL THEN concat(' was read, and transaction ',
                    r.transaction, ' was aborted')
                ELSE concat(' was read before transaction ', r.transaction,
                    ' was to be committed') END
            ) AS message,
            r.position AS first_witness,
            cast(NULL AS bigint) AS second_witness
        FROM read AS r
        LEFT JOIN asked AS a ON a.run = r.run AND a.transaction = r.transaction
        LEFT JOIN aborted AS b ON b.run = r.run AND b.transaction = r.transaction
        WHERE b.transaction IS NOT NULL OR a.position IS NULL OR a.position > r.position
    """,
)


LogName = tuple[str, str, int]
"""Node, topic, partition."""


class Open(NamedTuple):
    """A transaction of a producer in a log."""

    first_offset: int
    event_id: str


class OpenTransactions:
    """The last stable offset is never above the high watermark, nor past the first record of an
    open transaction.

    On each leader the last stable offset is compared with the transactions in that leader's own
    log, through appends, replication, markers and truncations. A transaction is open from its first
    record until its marker. Records that were truncated, or overwritten after a loss, no longer
    count; nor do those below the log start offset, at which the last stable offset then is.

    Tracks the open transactions in each replica's log, and checks every change of a last stable
    offset.

    Source: KIP-98; KAFKA-9807 (the high watermark was read twice);
    kafka.log.UnifiedLog.fetchLastStableOffsetMetadata.
    """

    def __init__(self) -> None:
        self._findings = Findings("last-stable-offset-before-open-transactions")
        self._open: dict[LogName, dict[int, Open]] = {}
        self._end: dict[LogName, int] = {}
        self._removed: dict[str, RemovedRecords] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a change of a log, or of its last stable offset."""
        assert isinstance(
            event,
            LastStableOffsetMoved
            | MarkerAppended
            | BatchAppended
            | BatchReplicated
            | PartitionTruncated
            | LogStartMoved,
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
            case LogStartMoved():
                self._removed.setdefault(envelope.node, RemovedRecords()).learn(event)
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
        removed = self._removed.get(log[0])
        if removed is not None and removed.has((topic, partition), event.offset - 1):
            return found
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
        WHERE NOT EXISTS (
            SELECT 1 FROM log_start_moved AS m WHERE m.run = s.run AND m.node = s.node
                AND m.topic = s.topic AND m.partition = s.partition
                AND m.log_start_offset >= s.offset AND m.position < s.position
        )
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

LAST_STABLE_OFFSET_BEFORE_OPEN_TRANSACTIONS = Invariant(
    name="last-stable-offset-before-open-transactions",
    rule="The last stable offset is never above the high watermark, nor past the first record of "
    "an open transaction.",
    source="KIP-98",
    watches=(
        LastStableOffsetMoved,
        MarkerAppended,
        BatchAppended,
        BatchReplicated,
        PartitionTruncated,
        *REMOVED_WATCHES,
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


Input = tuple[int, int]
"""Partition and offset."""


class OutputsOnce:
    """Each input record of a consume-transform-produce app has exactly one record in the committed
    output, with the same key.

    Checked with a read_committed consumer that reached the end of the output topic after all work
    was done; before that, missing records may still arrive.

    Collects input records and the output records that were read; compares them at the end of the
    run.

    Source: KIP-98, KIP-447; org.apache.kafka.tools.TransactionalMessageCopier and its system test.
    """

    def __init__(self) -> None:
        self._findings = Findings("each-input-processed-once")
        self._expected: dict[tuple[str, str], None] = {}
        self._inputs: dict[str, dict[str, str]] = {}
        self._read: dict[tuple[str, str, str], dict[Input, str]] = {}
        self._through: dict[tuple[str, str], str] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an input record, an output record that was read, or the end of a reader."""
        if isinstance(event, CopyExpected):
            self._expected[event.input_topic, event.output_topic] = None
        elif isinstance(event, RecordAcknowledged):
            self._inputs.setdefault(event.topic, {}).setdefault(event.record_key, envelope.event_id)
        elif isinstance(event, RecordRead) and event.is_read_committed:
            places = self._read.setdefault((event.client_id, event.topic, event.record_key), {})
            places.setdefault((event.partition, event.offset), envelope.event_id)
        elif isinstance(event, CopyRead):
            self._through.setdefault((event.topic, event.client_id), envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict."""
        unread = sorted(
            {
                output
                for _, output in self._expected
                if not any(topic == output for topic, _ in self._through)
            }
        )
        for input_topic, output_topic in self._expected:
            readers = [
                (client_id, event_id)
                for (topic, client_id), event_id in self._through.items()
                if topic == output_topic
            ]
            for record_key, acknowledged in (
                self._inputs.get(input_topic, {}).items() if readers else ()
            ):
                self._findings.examined += 1
                for client_id, through in readers:
                    self._check(output_topic, client_id, record_key, acknowledged, through)
        return self._findings.verdict(f"no consumer has read all of {unread[0]}" if unread else "")

    def _check(
        self, topic: str, client_id: str, record_key: str, acknowledged: str, through: str
    ) -> None:
        found = list(self._read.get((client_id, topic, record_key), {}).values())
        if len(found) == 1:
            return
        message = f"{topic}: {client_id} has read {len(found)} copies of record {record_key}"
        witnesses = (found[0], found[-1]) if found else (acknowledged, through)
        self._findings.violation(f"{topic}/{client_id}/{record_key}", message, *witnesses)


_INPUTS = """
    expected AS (SELECT DISTINCT run, input_topic, output_topic FROM copy_expected),
    through AS (SELECT run, topic, client_id, min(position) AS position FROM copy_read GROUP BY run,
        topic, client_id),
    input AS (
        SELECT e.run, e.output_topic, a.record_key, min(a.position) AS position
        FROM expected AS e JOIN record_acknowledged AS a ON a.run = e.run
            AND a.topic = e.input_topic
        WHERE EXISTS (SELECT 1 FROM through AS t WHERE t.run = e.run AND t.topic = e.output_topic)
        GROUP BY e.run, e.output_topic, e.input_topic, a.record_key
    )
"""

EACH_INPUT_PROCESSED_ONCE = Invariant(
    name="each-input-processed-once",
    rule="Each record of the input has exactly one record in the committed output.",
    source="KIP-98, KIP-447",
    watches=(CopyExpected, RecordAcknowledged, RecordRead, CopyRead),
    check=OutputsOnce,
    examined=f"WITH {_INPUTS} SELECT run, count(*) FROM input GROUP BY run",
    undecidable="""
        SELECT e.run, concat('no consumer has read all of ', min(e.output_topic)) AS reason
            FROM copy_expected AS e
        WHERE NOT EXISTS (SELECT 1 FROM copy_read AS t WHERE t.run = e.run
            AND t.topic = e.output_topic) GROUP BY e.run
    """,
    violations=f"""
        WITH {_INPUTS}, place AS (
            SELECT run, client_id, topic, record_key, partition, r.offset, min(position) AS position
                FROM record_read AS r
            WHERE is_read_committed GROUP BY run, client_id, topic, record_key, partition, r.offset
        ), judged AS (
            SELECT
                i.run, i.output_topic, t.client_id, i.record_key, count(p.position) AS copies,
                min(p.position) AS first_position, max(p.position) AS last_position,
                    min(i.position) AS acknowledged, min(t.position) AS through
            FROM input AS i
            JOIN through AS t ON t.run = i.run AND t.topic = i.output_topic
            LEFT JOIN place AS p
                ON p.run = i.run AND p.topic = i.output_topic AND p.client_id = t.client_id
                    AND p.record_key = i.record_key
            GROUP BY i.run, i.output_topic, t.client_id, i.record_key
        )
        SELECT
            run,
            concat(output_topic, '/', client_id, '/', record_key) AS key,
            concat(output_topic, ': ', client_id, ' has read ', copies, ' copies of record ',
                record_key) AS message,
            CASE WHEN copies = 0 THEN acknowledged ELSE first_position END AS first_witness,
            CASE WHEN copies = 0 THEN through ELSE last_position END AS second_witness
        FROM judged WHERE copies <> 1
    """,
)


INVARIANTS = (
    TRANSACTIONS_ATOMIC,
    READ_COMMITTED_ISOLATION,
    LAST_STABLE_OFFSET_BEFORE_OPEN_TRANSACTIONS,
    EACH_INPUT_PROCESSED_ONCE,
)

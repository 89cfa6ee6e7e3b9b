"""Sequence numbers: a partition appends each batch of a producer once, in order, and waits for
those before it.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftsim.clients.events import ClientInitialized, RecordFailed, RecordSent
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import (
    BatchAppended,
    BatchReplicated,
    FinalBatch,
    PartitionTruncated,
    ProduceRefused,
)
from kraftsim.server.events_connections import OUTBOUND, ConnectionClosed

OFFSETS_TOPIC = "__consumer_offsets"
"""A group coordinator writes every transactional offset commit with sequence 0, so sequences are
not unique there (GroupMetadataManager).
"""


class Sequence(NamedTuple):
    """The identity of a batch that a log may hold once."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


class Batch(NamedTuple):
    """A batch that no later append or truncation has removed from the log."""

    sequence: Sequence | None
    first_offset: int
    last_offset: int
    event_id: str


BATCHES: Final = (BatchAppended, BatchReplicated, FinalBatch)
"""A tuple, because a union would be built again for each event."""


class BatchesInLog:
    """A log never holds two batches of one producer id, epoch and base sequence: a retried batch is
    appended once.

    A lost append may be repeated. Kafka acknowledges before it flushes, so a power loss removes
    batches from the end of a log, and the producer may retry them. The check needs no knowledge of
    crashes: offsets in one log are unique, so a batch appended at offset F shows that every earlier
    batch at or above F is gone. Two appends of one sequence are a violation only if the first was
    still in the log at the second. If the segments were read at the end of the run, two batches
    found there are always a violation. Each replica's log is tracked on its own through its
    appends, replicated batches and truncations: a leader that does not know yet that it was deposed
    may append the same batches as its successor, and truncates them when it becomes a follower.
    Kafka's guarantee ends when a producer expires (producer.id.expiration.ms) and when sequences
    wrap after 2^31 records: neither happens within one run.

    Tracks each replica's log through appends, replication and losses, then checks the final logs.

    Source: KIP-98, org.apache.kafka.storage.internals.log.ProducerAppendInfo.
    """

    def __init__(self) -> None:
        self._findings = Findings("one-append-per-sequence")
        self._logs: dict[tuple[str, str, int], list[Batch]] = {}
        self._in_log: dict[tuple[str, Sequence], Batch] = {}
        self._final: dict[tuple[str, Sequence], tuple[int, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an append, a replicated batch or a truncation of one replica, or a batch of a
        final log.
        """
        if isinstance(event, PartitionTruncated):
            self._truncate((envelope.node, event.topic, event.partition), event.log_end_offset)
            return None
        assert isinstance(event, BATCHES)
        sequence = None
        is_idempotent = event.producer_id >= 0 and event.base_sequence >= 0
        if is_idempotent and event.topic != OFFSETS_TOPIC:
            self._findings.examined += not isinstance(event, BatchReplicated)
            sequence = Sequence(
                event.topic,
                event.partition,
                event.producer_id,
                event.producer_epoch,
                event.base_sequence,
            )
        if not isinstance(event, FinalBatch):
            return self._add(
                Batch(sequence, event.first_offset, event.last_offset, envelope.event_id),
                (envelope.node, event.topic, event.partition),
            )
        if sequence is None:
            return None
        first_offset, first_event_id = self._final.setdefault(
            (event.broker, sequence), (event.first_offset, envelope.event_id)
        )
        if first_event_id == envelope.event_id:
            return None
        return self._twice(
            sequence, first_offset, event.first_offset, first_event_id, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _truncate(self, log_name: tuple[str, str, int], offset: int) -> list[Batch]:
        """Remove the batches at and after an offset from a log, and return the log."""
        log = self._logs.setdefault(log_name, [])
        while log and log[-1].last_offset >= offset:
            gone = log.pop()
            if gone.sequence is not None and self._in_log.get((log_name[0], gone.sequence)) is gone:
                del self._in_log[log_name[0], gone.sequence]
        return log

    def _add(self, batch: Batch, log_name: tuple[str, str, int]) -> Violation | None:
        self._truncate(log_name, batch.first_offset).append(batch)
        if batch.sequence is None:
            return None
        first = self._in_log.setdefault((log_name[0], batch.sequence), batch)
        if first is batch:
            return None
        return self._twice(
            batch.sequence, first.first_offset, batch.first_offset, first.event_id, batch.event_id
        )

    def _twice(
        self, sequence: Sequence, offset: int, other_offset: int, *witnesses: str
    ) -> Violation | None:
        message = (
            f"{sequence.topic}-{sequence.partition}: sequence {sequence.base_sequence} of "
            f"producer id {sequence.producer_id} epoch {sequence.producer_epoch} is in the log "
            f"at offsets {offset} and {other_offset}"
        )
        return self._findings.violation("/".join(map(str, sequence)), message, *witnesses)


_COUNTS = f"producer_id >= 0 AND base_sequence >= 0 AND topic <> '{OFFSETS_TOPIC}'"
"""Producers without idempotence may write any base sequence; aiokafka's write 0."""
_KEY = "run, topic, partition, producer_id, producer_epoch, base_sequence"
_SAME = " AND ".join(f"a.{column} = b.{column}" for column in _KEY.split(", "))
_OWN_KEY = f"a.{_KEY.replace(', ', ', a.')}"
_BEFORE = ", ".join(
    f"lag(a.{column}) OVER same AS earlier_{column}"
    for column in ("position", "first_offset", "last_offset")
)
_HELD = f"{_KEY}, node, position, first_offset, last_offset"

ONE_APPEND_PER_SEQUENCE = Invariant(
    name="one-append-per-sequence",
    decides_without_nodes=True,
    rule="A log never holds two batches of one producer id, epoch and base sequence.",
    source="KIP-98",
    watches=(BatchAppended, BatchReplicated, PartitionTruncated, FinalBatch),
    check=BatchesInLog,
    examined=f"""
        SELECT run, count(*)
        FROM (
            SELECT run FROM batch_appended WHERE {_COUNTS} UNION ALL SELECT run FROM final_batch
                WHERE {_COUNTS}
        ) AS batch GROUP BY run
    """,
    # Only sequences that occur twice are compared: few in a clean run, hence the broadcast hints.
    # Comparing consecutive appends is enough, because a batch that is in the log at a later append
    # was there at each one before. Of several pairs, the first is reported.
    violations=f"""
        WITH held AS (
            SELECT {_HELD} FROM batch_appended UNION ALL SELECT {_HELD} FROM batch_replicated
        ), repeated AS (
            SELECT node, {_KEY} FROM held WHERE {_COUNTS} GROUP BY node, {_KEY} HAVING count(*) > 1
        ), added AS (
            SELECT /*+ BROADCAST(b) */ a.*, {_BEFORE} FROM held AS a JOIN repeated AS b ON {_SAME}
                AND a.node = b.node
            WINDOW same AS (PARTITION BY a.node, {_OWN_KEY} ORDER BY a.position)
        ), repeated_in_final AS (
            SELECT broker, {_KEY} FROM final_batch WHERE {_COUNTS} GROUP BY broker, {_KEY}
                HAVING count(*) > 1
        ), found AS (
            SELECT /*+ BROADCAST(b) */ a.*, {_BEFORE} FROM final_batch AS a
                JOIN repeated_in_final AS b ON {_SAME} AND a.broker = b.broker
            WINDOW same AS (PARTITION BY a.broker, {_OWN_KEY} ORDER BY a.position)
        ), cut AS (
            SELECT run, topic, partition, node, position, first_offset AS end_offset FROM held
            UNION ALL
            SELECT run, topic, partition, node, position, log_end_offset AS end_offset
                FROM partition_truncated
        ), replaced AS (
            SELECT /*+ BROADCAST(a) */ DISTINCT a.run, a.position
            FROM cut JOIN added AS a ON cut.run = a.run AND cut.topic = a.topic
                AND cut.partition = a.partition AND cut.node = a.node
                AND cut.position > a.earlier_position AND cut.position <= a.position
                    AND cut.end_offset <= a.earlier_last_offset
        ), pair AS (
            SELECT {_KEY}, earlier_position, position, earlier_first_offset, first_offset
                FROM added AS a
            WHERE earlier_position IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM replaced WHERE replaced.run = a.run
                    AND replaced.position = a.position)
            UNION ALL
            SELECT {_KEY}, earlier_position, position, earlier_first_offset, first_offset FROM found
                WHERE earlier_position IS NOT NULL
        ), numbered AS (
            SELECT *, row_number() OVER (PARTITION BY {_KEY} ORDER BY position) AS place FROM pair
        )
        SELECT
            run,
            concat(topic, '/', partition, '/', producer_id, '/', producer_epoch, '/',
                base_sequence) AS key,
            concat(
                topic, '-', partition, ': sequence ', base_sequence, ' of producer id ',
                    producer_id, ' epoch ', producer_epoch,
                ' is in the log at offsets ', earlier_first_offset, ' and ', first_offset
            ) AS message,
            earlier_position AS first_witness,
            position AS second_witness
        FROM numbered WHERE place = 1
    """,
)


NOT_IN_SEQUENCE: Final = (45, 59)
"""OUT_OF_ORDER_SEQUENCE_NUMBER, and UNKNOWN_PRODUCER_ID from brokers before 2.5."""
UNDER_WAY_MAX: Final = 5
"""Kafka's max.in.flight.requests.per.connection for idempotent producers: each settled batch of
that many may trigger a retry.
"""
LAST_SEQUENCE: Final = 2**31 - 1
Partition = tuple[str, int]
Writer = tuple[str, int, int, int]
"""Topic, partition, producer id, producer epoch."""


@dataclass(slots=True)
class _Refusals:
    """How often a batch was rejected, and the connections that each node had lost before."""

    first_id: str
    lost: dict[str, int]
    count: int = 0
    is_reported: bool = False


class BatchTurns:
    """A batch that arrives ahead of a missing sequence is retried with its own sequence, once the
    batches before it are settled.

    With several requests in flight, a leader may reject a batch because an earlier sequence is
    missing. The producer retries the batch when an earlier batch is settled, so it is rejected no
    more often than there are requests in flight. A response that a lost connection takes with it
    tells the producer nothing: each connection that its host lost since the first rejection allows
    one more. Once the missing sequence is in the log, nothing
    is lost, and the batch is appended with the sequence it has. A producer that bumps its epoch
    instead wastes an epoch, and breaks the order by which duplicates are detected. Partitions with
    transactional writes are not checked, because an abort discards the batches that wait. Neither
    are clients that do not report their producer id.

    Tracks for each out-of-order batch its last rejection, and whether the preceding sequence has
    been appended since.

    Source: KAFKA-5494, KIP-360; org.apache.kafka.clients.producer.internals.{RecordAccumulator,
    TransactionManager}.
    """

    def __init__(self) -> None:
        self._findings = Findings("early-batches-wait")
        self._plain: dict[Partition, bool] = {}
        """Partition -> True if clients write to it without transactions only."""
        self._failed: dict[Partition, None] = {}
        self._named: dict[int, dict[str, None]] = {}
        """Producer id -> nodes of the clients that reported it as theirs."""
        self._lost: dict[str, int] = {}
        """Node -> outbound connections that ended."""
        self._refusals: dict[tuple[Writer, int], _Refusals] = {}
        self._waiting: dict[tuple[str, int, int], dict[tuple[int, int], tuple[str, bool]]] = {}
        """(topic, partition, producer id) -> (epoch, first sequence) -> event of the last
        rejection, and whether its turn has come.
        """

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a client event, or a batch that a leader appended or rejected."""
        match event:
            case RecordSent():
                where = (event.topic, event.partition)
                self._plain[where] = self._plain.get(where, True) and not event.transaction
            case ClientInitialized():
                self._named.setdefault(event.producer_id, {})[envelope.node] = None
            case ConnectionClosed():
                if event.listener == OUTBOUND:
                    self._lost[envelope.node] = self._lost.get(envelope.node, 0) + 1
            case RecordFailed():
                self._failed[event.topic, event.partition] = None
            case ProduceRefused(error_code=code) if code in NOT_IN_SEQUENCE and self._is_plain(
                event
            ):
                self._findings.examined += 1
                return self._refused(event, envelope.event_id)
            case BatchAppended() if event.base_sequence >= 0 and self._is_plain(event):
                self._findings.examined += 1
                return self._appended(event, envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _is_plain(self, event: ProduceRefused | BatchAppended) -> bool:
        return event.producer_id in self._named and self._plain.get(
            (event.topic, event.partition), False
        )

    def _refused(self, event: ProduceRefused, event_id: str) -> Violation | None:
        writer = (event.topic, event.partition, event.producer_id, event.producer_epoch)
        waiting = self._waiting.setdefault(writer[:3], {})
        waiting[event.producer_epoch, event.base_sequence] = (event_id, False)
        refusals = self._refusals.get((writer, event.base_sequence))
        if refusals is None:
            refusals = _Refusals(first_id=event_id, lost=dict(self._lost))
            self._refusals[writer, event.base_sequence] = refusals
        refusals.count += 1
        lost = sum(
            self._lost.get(node, 0) - refusals.lost.get(node, 0)
            for node in self._named[event.producer_id]
        )
        if refusals.is_reported or refusals.count - lost <= UNDER_WAY_MAX:
            return None
        refusals.is_reported = True
        message = (
            f"{_batch(writer, event.base_sequence)} was refused {refusals.count} times because a "
            "sequence is missing before it"
        )
        return self._findings.violation(
            f"{_key(writer, event.base_sequence)}/again", message, refusals.first_id, event_id
        )

    def _appended(self, event: BatchAppended, event_id: str) -> Violation | None:
        where = (event.topic, event.partition)
        waiting = self._waiting.get((*where, event.producer_id))
        if not waiting:
            return None
        epoch, found = event.producer_epoch, None
        for (old_epoch, sequence), (refusal, has_come) in sorted(waiting.items()):
            if old_epoch < epoch:
                del waiting[old_epoch, sequence]
                if has_come and where not in self._failed:
                    writer = (*where, event.producer_id, old_epoch)
                    message = (
                        f"{_batch(writer, sequence)} waited for its turn, which came, and its "
                        f"producer went on under epoch {epoch}"
                    )
                    found = (
                        self._findings.violation(
                            f"{_key(writer, sequence)}/renumbered", message, refusal, event_id
                        )
                        or found
                    )
        waiting.pop((epoch, event.base_sequence), None)
        following = (epoch, 0 if event.last_sequence == LAST_SEQUENCE else event.last_sequence + 1)
        if following in waiting:
            waiting[following] = (waiting[following][0], True)
        return found


def _key(writer: Writer, sequence: int) -> str:
    return f"{writer[0]}-{writer[1]}/{writer[2]}/{writer[3]}/{sequence}"


def _batch(writer: Writer, sequence: int) -> str:
    return (
        f"{writer[0]}-{writer[1]}: the batch of sequence {sequence}, producer id {writer[2]}, "
        f"epoch {writer[3]},"
    )


_PLAIN = """plain AS (
            SELECT run, topic, partition, min(CASE WHEN transaction = ''
                THEN position END) AS since,
                min(CASE WHEN transaction <> '' THEN position END) AS until
            FROM record_sent GROUP BY run, topic, partition
        ), named AS (
            SELECT run, producer_id, min(position) AS since FROM client_initialized GROUP BY run,
                producer_id
        )"""
_IS_PLAIN = """JOIN plain AS w ON w.run = e.run AND w.topic = e.topic AND w.partition = e.partition
                AND w.since < e.position AND (w.until IS NULL OR w.until > e.position)
            JOIN named AS n ON n.run = e.run AND n.producer_id = e.producer_id
                AND n.since < e.position"""
_OF_PRODUCER = " AND ".join(
    f"a.{column} = r.{column}" for column in ("run", "topic", "partition", "producer_id")
)
_BATCH_KEY = (
    "concat(topic, '-', partition, '/', producer_id, '/', producer_epoch, '/', base_sequence"
)
_BATCH = (
    "concat(topic, '-', partition, ': the batch of sequence ', base_sequence, ', producer id ', "
    "producer_id, ', epoch ', producer_epoch, ','"
)

EARLY_BATCHES_WAIT = Invariant(
    name="early-batches-wait",
    rule="A batch that arrives ahead of a missing sequence is retried with its own sequence, once "
    "the batches before it are settled.",
    source="KAFKA-5494, KIP-360",
    watches=(
        RecordSent,
        ClientInitialized,
        RecordFailed,
        ProduceRefused,
        BatchAppended,
        ConnectionClosed,
    ),
    check=BatchTurns,
    examined=f"""
        WITH {_PLAIN}, found AS (
            SELECT e.run FROM produce_refused AS e {_IS_PLAIN}
                WHERE e.error_code IN {NOT_IN_SEQUENCE}
            UNION ALL SELECT e.run FROM batch_appended AS e {_IS_PLAIN} WHERE e.base_sequence >= 0
        )
        SELECT run, count(*) FROM found GROUP BY run
    """,
    violations=f"""
        WITH {_PLAIN}, refused AS (
            SELECT e.run, e.topic, e.partition, e.producer_id, e.producer_epoch, e.base_sequence,
                e.position,
                row_number() OVER same AS times, min(e.position) OVER same AS first_position,
                    lead(e.position) OVER same AS next_position
            FROM produce_refused AS e {_IS_PLAIN}
            WHERE e.error_code IN {NOT_IN_SEQUENCE}
            WINDOW same AS (
                PARTITION BY e.run, e.topic, e.partition, e.producer_id, e.producer_epoch,
                    e.base_sequence ORDER BY e.position
            )
        ), client AS (
            SELECT run, producer_id, node, min(position) AS since FROM client_initialized
            GROUP BY run, producer_id, node
        ), lost AS (
            SELECT r.run, r.position, count(*) AS connections
            FROM refused AS r JOIN client AS n ON n.run = r.run AND n.producer_id = r.producer_id
                AND n.since < r.position
            JOIN connection_closed AS c ON c.run = r.run AND c.node = n.node
                AND c.listener = '{OUTBOUND}' AND c.position > r.first_position
                AND c.position < r.position
            GROUP BY r.run, r.position
        ), again AS (
            SELECT r.*, row_number() OVER (
                PARTITION BY r.run, r.topic, r.partition, r.producer_id, r.producer_epoch,
                    r.base_sequence ORDER BY r.position
            ) AS place
            FROM refused AS r LEFT JOIN lost AS l ON l.run = r.run AND l.position = r.position
            WHERE r.times - coalesce(l.connections, 0) > {UNDER_WAY_MAX}
        ), appended AS (
            SELECT e.run, e.topic, e.partition, e.producer_id, e.producer_epoch, e.base_sequence,
                e.position,
                CASE WHEN e.last_sequence = {LAST_SEQUENCE} THEN 0
                    ELSE e.last_sequence + 1 END AS following
            FROM batch_appended AS e {_IS_PLAIN}
            WHERE e.base_sequence >= 0
        ), overtaken AS (
            SELECT r.run, r.topic, r.partition, r.producer_id, r.producer_epoch, r.base_sequence,
                r.position, r.next_position,
                min(a.position) AS later_position
            FROM refused AS r JOIN appended AS a ON {_OF_PRODUCER}
                AND a.producer_epoch > r.producer_epoch AND a.position > r.position
            GROUP BY r.run, r.topic, r.partition, r.producer_id, r.producer_epoch, r.base_sequence,
                r.position, r.next_position
        ), renumbered AS (
            SELECT r.*, l.producer_epoch AS later_epoch,
                row_number() OVER (
                    PARTITION BY r.run, r.topic, r.partition, r.producer_id, r.producer_epoch,
                        r.base_sequence ORDER BY r.later_position
                ) AS place
            FROM overtaken AS r JOIN batch_appended AS l ON l.run = r.run
                AND l.position = r.later_position
            WHERE (r.next_position IS NULL OR r.next_position > r.later_position)
                AND EXISTS (
                    SELECT 1 FROM appended AS a WHERE {_OF_PRODUCER}
                        AND a.producer_epoch = r.producer_epoch AND a.following = r.base_sequence
                        AND a.position > r.position AND a.position < r.later_position
                )
                AND NOT EXISTS (
                    SELECT 1 FROM appended AS a WHERE {_OF_PRODUCER}
                        AND a.producer_epoch = r.producer_epoch
                        AND a.base_sequence = r.base_sequence
                        AND a.position > r.position AND a.position < r.later_position
                )
                AND NOT EXISTS (
                    SELECT 1 FROM record_failed AS f
                    WHERE f.run = r.run AND f.topic = r.topic AND f.partition = r.partition
                        AND f.position < r.later_position
                )
        )
        SELECT
            run,
            {_BATCH_KEY}, '/again') AS key,
            {_BATCH}, ' was refused ', times, ' times because a sequence is missing before it')
                AS message,
            first_position AS first_witness,
            position AS second_witness
        FROM again WHERE place = 1
        UNION ALL
        SELECT
            run,
            {_BATCH_KEY}, '/renumbered'),
            {_BATCH}, ' waited for its turn, which came, and its producer went on under epoch ',
                later_epoch),
            position,
            later_position
        FROM renumbered WHERE place = 1
    """,
)


INVARIANTS = (
    ONE_APPEND_PER_SEQUENCE,
    EARLY_BATCHES_WAIT,
)

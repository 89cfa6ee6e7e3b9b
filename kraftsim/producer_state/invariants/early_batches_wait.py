"""A batch that arrives ahead of a missing sequence is retried with its own sequence, once the
batches before it are settled.

With several requests in flight, a leader may reject a batch because an earlier sequence is missing.
The producer retries the batch when an earlier batch is settled, so it is rejected no more often
than there are requests in flight. Once the missing sequence is in the log, nothing is lost, and the
batch is appended with the sequence it has. A producer that bumps its epoch instead wastes an epoch,
and breaks the order by which duplicates are detected. Partitions with transactional writes are not
checked, because an abort discards the batches that wait. Neither are clients that do not report
their producer id.
Source: KAFKA-5494, KIP-360; org.apache.kafka.clients.producer.internals.{RecordAccumulator,
TransactionManager}.
"""

from typing import Final

from kraftsim.clients.events import ClientInitialized, RecordFailed, RecordSent
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import BatchAppended, ProduceRefused

NAME = "early-batches-wait"
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


class BatchTurns:
    """Tracks for each out-of-order batch its last rejection, and whether the preceding sequence has
    been appended since.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._plain: dict[Partition, bool] = {}
        """Partition -> True if clients write to it without transactions only."""
        self._failed: dict[Partition, None] = {}
        self._named: dict[int, None] = {}
        """Producer ids that clients reported as theirs."""
        self._refusals: dict[tuple[Writer, int], list[str]] = {}
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
                self._named[event.producer_id] = None
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
        refusals = self._refusals.setdefault((writer, event.base_sequence), [])
        refusals.append(event_id)
        if len(refusals) != UNDER_WAY_MAX + 1:
            return None
        message = (
            f"{_batch(writer, event.base_sequence)} was refused {len(refusals)} times because a "
            "sequence is missing before it"
        )
        return self._findings.violation(
            f"{_key(writer, event.base_sequence)}/again", message, refusals[0], event_id
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
_KEY = "concat(topic, '-', partition, '/', producer_id, '/', producer_epoch, '/', base_sequence"
_BATCH = (
    "concat(topic, '-', partition, ': the batch of sequence ', base_sequence, ', producer id ', "
    "producer_id, ', epoch ', producer_epoch, ','"
)

INVARIANT = Invariant(
    name=NAME,
    rule="A batch that arrives ahead of a missing sequence is retried with its own sequence, once "
    "the batches before it are settled.",
    source="KAFKA-5494, KIP-360",
    watches=(RecordSent, ClientInitialized, RecordFailed, ProduceRefused, BatchAppended),
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
            {_KEY}, '/again') AS key,
            {_BATCH}, ' was refused ', times, ' times because a sequence is missing before it')
                AS message,
            first_position AS first_witness,
            position AS second_witness
        FROM refused WHERE times = {UNDER_WAY_MAX + 1}
        UNION ALL
        SELECT
            run,
            {_KEY}, '/renumbered'),
            {_BATCH}, ' waited for its turn, which came, and its producer went on under epoch ',
                later_epoch),
            position,
            later_position
        FROM renumbered WHERE place = 1
    """,
)

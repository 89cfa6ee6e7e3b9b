"""A log never holds two batches of one producer id, epoch and base sequence: a retried batch is
appended once.

A lost append may be repeated. Kafka acknowledges before it flushes, so a power loss removes batches
from the end of a log, and the producer may retry them. The check needs no knowledge of crashes:
offsets in one log are unique, so a batch appended at offset F shows that every earlier batch at or
above F is gone. Two appends of one sequence are a violation only if the first was still in the log
at the second. If the segments were read at the end of the run, two batches found there are always a
violation. Each replica's log is tracked on its own through its appends, replicated batches and
truncations: a leader that does not know yet that it was deposed may append the same batches as its
successor, and truncates them when it becomes a follower. Kafka's guarantee ends when a producer
expires (producer.id.expiration.ms) and when sequences wrap after 2^31 records: neither happens
within one run.
Source: KIP-98, org.apache.kafka.storage.internals.log.ProducerAppendInfo.
"""

from typing import NamedTuple

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import (
    BatchAppended,
    BatchReplicated,
    FinalBatch,
    PartitionTruncated,
)

NAME = "one-append-per-sequence"
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


class BatchesInLog:
    """Tracks each replica's log through appends, replication and losses, then checks the final
    logs.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
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
        assert isinstance(event, BatchAppended | BatchReplicated | FinalBatch)
        sequence = None
        if event.base_sequence >= 0 and event.topic != OFFSETS_TOPIC:
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


_COUNTS = f"base_sequence >= 0 AND topic <> '{OFFSETS_TOPIC}'"
_KEY = "run, topic, partition, producer_id, producer_epoch, base_sequence"
_SAME = " AND ".join(f"a.{column} = b.{column}" for column in _KEY.split(", "))
_OWN_KEY = f"a.{_KEY.replace(', ', ', a.')}"
_BEFORE = ", ".join(
    f"lag(a.{column}) OVER same AS earlier_{column}"
    for column in ("position", "first_offset", "last_offset")
)
_HELD = f"{_KEY}, node, position, first_offset, last_offset"

INVARIANT = Invariant(
    name=NAME,
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

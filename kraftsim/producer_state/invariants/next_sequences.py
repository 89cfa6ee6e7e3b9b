"""The batch that follows the last one of its producer is in sequence, also where sequences wrap."""

from dataclasses import dataclass
from typing import Final

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import (
    BatchAppended,
    LeaderFollowed,
    PartitionTruncated,
    ProduceRefused,
    ProducerStateExpired,
)

NOT_IN_SEQUENCE: Final = 45
"""OUT_OF_ORDER_SEQUENCE_NUMBER."""
LAST_SEQUENCE: Final = 2**31 - 1

Log = tuple[str, int, str, int]
"""Node, incarnation, topic, partition."""


@dataclass(frozen=True, slots=True)
class _LastBatch:
    """The last batch of a producer in a log, without a transaction."""

    producer_epoch: int
    following: int
    event_id: str


class NextSequences:
    """A leader that has appended a batch of a producer does not refuse the next one as out of
    order: the sequence after 2147483647 is 0.

    A producer that is refused so bumps its epoch and sends everything again, so that nothing is
    lost and nothing else shows it. Counts what one process of the leader has appended since it was
    last a follower, truncated its log, or dropped the state of the producer. Batches of
    transactions may be refused so for another reason: an earlier batch of the transaction is not
    verified.

    Source: DefaultRecordBatch.incrementSequence, ProducerAppendInfo.inSequence.
    """

    def __init__(self) -> None:
        self._findings = Findings("next-sequence-accepted")
        self._last: dict[Log, dict[int, _LastBatch]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an event of a partition."""
        match event:
            case BatchAppended():
                self._appended(envelope, event)
            case ProducerStateExpired():
                self._last.get(_log(envelope, event), {}).pop(event.producer_id, None)
            case LeaderFollowed() | PartitionTruncated():
                self._last.pop(_log(envelope, event), None)
            case ProduceRefused(error_code=code) if code == NOT_IN_SEQUENCE:
                self._findings.examined += 1
                return self._refused(envelope, event)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _appended(self, envelope: Envelope, event: BatchAppended) -> None:
        batches = self._last.setdefault(_log(envelope, event), {})
        if event.is_transactional or event.base_sequence < 0:
            batches.pop(event.producer_id, None)
            return
        self._findings.examined += 1
        batches[event.producer_id] = _LastBatch(
            event.producer_epoch,
            0 if event.last_sequence == LAST_SEQUENCE else event.last_sequence + 1,
            envelope.event_id,
        )

    def _refused(self, envelope: Envelope, event: ProduceRefused) -> Violation | None:
        last = self._last.get(_log(envelope, event), {}).get(event.producer_id)
        if (
            last is None
            or last.producer_epoch != event.producer_epoch
            or last.following != event.base_sequence
        ):
            return None
        return self._findings.violation(
            f"{envelope.node}/{event.topic}-{event.partition}/{event.producer_id}/"
            f"{event.producer_epoch}/{event.base_sequence}",
            f"{event.topic}-{event.partition}: {envelope.node} refused sequence "
            f"{event.base_sequence} of producer id {event.producer_id}, epoch "
            f"{event.producer_epoch}, which follows the batch that it appended last",
            last.event_id,
            envelope.event_id,
        )


def _log(
    envelope: Envelope,
    event: BatchAppended
    | ProducerStateExpired
    | LeaderFollowed
    | PartitionTruncated
    | ProduceRefused,
) -> Log:
    return envelope.node, envelope.incarnation, event.topic, event.partition


_LOG: Final = " AND ".join(
    f"a.{column} = b.{column}" for column in ("run", "node", "incarnation", "topic", "partition")
)

NEXT_SEQUENCE_ACCEPTED = Invariant(
    name="next-sequence-accepted",
    rule="A leader that has appended a batch of a producer does not refuse the next one as out of "
    "order, also where sequences wrap to 0.",
    source="KIP-98, DefaultRecordBatch.incrementSequence",
    watches=(
        BatchAppended,
        ProduceRefused,
        LeaderFollowed,
        PartitionTruncated,
        ProducerStateExpired,
    ),
    check=NextSequences,
    examined=f"""
        WITH found AS (
            SELECT run FROM batch_appended WHERE base_sequence >= 0 AND NOT is_transactional
            UNION ALL SELECT run FROM produce_refused WHERE error_code = {NOT_IN_SEQUENCE}
        )
        SELECT run, count(*) FROM found GROUP BY run
    """,
    violations=f"""
        WITH latest AS (
            SELECT b.run, b.node, b.incarnation, b.topic, b.partition, b.producer_id,
                b.producer_epoch, b.base_sequence, b.position, max(a.position) AS last_position
            FROM produce_refused AS b JOIN batch_appended AS a ON {_LOG}
                AND a.producer_id = b.producer_id AND a.position < b.position
            WHERE b.error_code = {NOT_IN_SEQUENCE}
            GROUP BY b.run, b.node, b.incarnation, b.topic, b.partition, b.producer_id,
                b.producer_epoch, b.base_sequence, b.position
        ), resets AS (
            SELECT run, node, incarnation, topic, partition, -1 AS producer_id, position
            FROM leader_followed
            UNION ALL SELECT run, node, incarnation, topic, partition, -1, position
            FROM partition_truncated
            UNION ALL SELECT run, node, incarnation, topic, partition, producer_id, position
            FROM producer_state_expired
        ), found AS (
            SELECT b.*, row_number() OVER (
                PARTITION BY b.run, b.node, b.topic, b.partition, b.producer_id, b.producer_epoch,
                    b.base_sequence ORDER BY b.position
            ) AS place
            FROM latest AS b JOIN batch_appended AS a ON a.run = b.run
                AND a.position = b.last_position
            WHERE NOT a.is_transactional AND a.base_sequence >= 0
                AND a.producer_epoch = b.producer_epoch
                AND b.base_sequence = CASE WHEN a.last_sequence = {LAST_SEQUENCE} THEN 0
                    ELSE a.last_sequence + 1 END
                AND NOT EXISTS (
                    SELECT 1 FROM resets AS a WHERE {_LOG}
                        AND a.producer_id IN (-1, b.producer_id)
                        AND a.position > b.last_position AND a.position < b.position
                )
        )
        SELECT
            run,
            concat(node, '/', topic, '-', partition, '/', producer_id, '/', producer_epoch, '/',
                base_sequence) AS key,
            concat(topic, '-', partition, ': ', node, ' refused sequence ', base_sequence,
                ' of producer id ', producer_id, ', epoch ', producer_epoch,
                ', which follows the batch that it appended last') AS message,
            last_position AS first_witness,
            position AS second_witness
        FROM found WHERE place = 1
    """,
)
INVARIANTS = (NEXT_SEQUENCE_ACCEPTED,)

"""After a transactional id moves to a later producer epoch, nothing that an earlier epoch writes or
commits remains.

In each log, a producer's epochs never decrease. A batch that a leader appended for an older epoch,
after another producer received a later one, must not be in any final log: partitions verify with
the coordinator before a transaction starts in them (since 3.6). A commit that was requested under
an older epoch after that must not succeed.
Source: KIP-98, KIP-360, KIP-890 part 1; KAFKA-6119.
"""

from kraftsim.clients.events_transactions import (
    TransactionalIdTaken,
    TransactionEndAsked,
    TransactionEnded,
)
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import BatchAppended, FinalBatch
from kraftsim.transactions.invariants.transactions_atomic import COMMITTED

NAME = "fenced-producers-write-nothing"
Batch = tuple[str, int, int, int, int, int]
"""Topic, partition, first offset, producer id, producer epoch, base sequence."""


class Fences:
    """Collects the epochs of each id, the batches written under each epoch, and the final batches;
    compares them at the end.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._taken: dict[int, tuple[int, str]] = {}
        self._late: dict[Batch, tuple[str, str]] = {}
        self._asked: dict[str, tuple[str, dict[int, tuple[int, str]]]] = {}
        self._final: list[tuple[FinalBatch, str]] = []

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a new producer epoch, a batch, or the end of a transaction."""
        match event:
            case TransactionalIdTaken():
                self._findings.examined += 1
                if event.producer_epoch > self._taken.get(event.producer_id, (-1, ""))[0]:
                    self._taken[event.producer_id] = (event.producer_epoch, envelope.event_id)
            case BatchAppended() if event.is_transactional:
                taken = self._taken.get(event.producer_id)
                if taken is not None and event.producer_epoch < taken[0]:
                    self._late.setdefault(_batch(event), (taken[1], envelope.event_id))
            case FinalBatch() if event.producer_id >= 0:
                self._final.append((event, envelope.event_id))
            case TransactionEndAsked() if event.is_commit:
                self._asked.setdefault(event.transaction, (envelope.event_id, dict(self._taken)))
            case TransactionEnded() if (
                event.outcome == COMMITTED and event.transaction in self._asked
            ):
                return self._committed(event, envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict."""
        epochs: dict[tuple[str, str, int, int], int] = {}
        for batch, event_id in self._final:
            where, log = (
                f"{batch.topic}-{batch.partition}",
                (batch.broker, batch.topic, batch.partition, batch.producer_id),
            )
            last = epochs.get(log, -1)
            epochs[log] = batch.producer_epoch
            of = (
                f"{where}: epoch {batch.producer_epoch} of producer id {batch.producer_id} at "
                f"offset {batch.first_offset}"
            )
            key = f"{where}/{batch.first_offset}"
            late = self._late.get(_batch(batch))
            if batch.producer_epoch < last:
                self._findings.violation(key, f"{of} is behind epoch {last}", event_id)
            elif late is not None and not batch.is_control:
                self._findings.violation(
                    key, f"{of} was written after a later one had been given", *late
                )
        return self._findings.verdict()

    def _committed(self, event: TransactionEnded, event_id: str) -> Violation | None:
        asked, taken_before = self._asked[event.transaction]
        taken = taken_before.get(event.producer_id)
        if taken is None or event.producer_epoch >= taken[0]:
            return None
        message = (
            f"transaction {event.transaction} was committed under epoch {event.producer_epoch}, "
            f"and epoch {taken[0]} was given before"
        )
        return self._findings.violation(event.transaction, message, asked, event_id)


def _batch(event: BatchAppended | FinalBatch) -> Batch:
    return (
        event.topic,
        event.partition,
        event.first_offset,
        event.producer_id,
        event.producer_epoch,
        event.base_sequence,
    )


_SAME_LOG = (
    "PARTITION BY run, broker, topic, partition, producer_id ORDER BY first_offset, position"
)
_SAME_BATCH = " AND ".join(
    f"f.{column} = a.{column}"
    for column in (
        "run",
        "topic",
        "partition",
        "first_offset",
        "producer_id",
        "producer_epoch",
        "base_sequence",
    )
)

INVARIANT = Invariant(
    name=NAME,
    rule="After a transactional id moves to a later producer epoch, nothing that an earlier epoch "
    "writes or commits remains.",
    source="KIP-98, KIP-890",
    watches=(
        TransactionalIdTaken,
        BatchAppended,
        FinalBatch,
        TransactionEndAsked,
        TransactionEnded,
    ),
    check=Fences,
    examined="SELECT run, count(*) FROM transactional_id_taken GROUP BY run",
    violations=f"""
        WITH late AS (
            SELECT a.run, a.topic, a.partition, a.first_offset, a.producer_id, a.producer_epoch,
                a.base_sequence, a.position,
                max(t.producer_epoch) AS given_epoch
            FROM batch_appended AS a
            JOIN transactional_id_taken AS t
                ON t.run = a.run AND t.producer_id = a.producer_id AND t.position < a.position
                    AND t.producer_epoch > a.producer_epoch
            WHERE a.is_transactional
            GROUP BY a.run, a.topic, a.partition, a.first_offset, a.producer_id, a.producer_epoch,
                a.base_sequence, a.position
        ), first_late AS (
            SELECT *, row_number() OVER (
                PARTITION BY run, topic, partition, first_offset, producer_id, producer_epoch,
                    base_sequence ORDER BY position
            ) AS place FROM late
        ), given AS (
            SELECT run, producer_id, producer_epoch, min(position) AS position
                FROM transactional_id_taken GROUP BY run, producer_id, producer_epoch
        ), final AS (
            SELECT *, lag(producer_epoch) OVER ({_SAME_LOG}) AS last_epoch FROM final_batch
                WHERE producer_id >= 0
        ), found AS (
            SELECT f.run, f.topic, f.partition, f.first_offset, f.position AS found_at,
                concat(
                    f.topic, '-', f.partition, ': epoch ', f.producer_epoch, ' of producer id ',
                        f.producer_id, ' at offset ', f.first_offset,
                    CASE WHEN f.producer_epoch < f.last_epoch THEN concat(' is behind epoch ',
                        f.last_epoch)
                    ELSE ' was written after a later one had been given' END
                ) AS message,
                CASE WHEN f.producer_epoch < f.last_epoch THEN f.position
                    ELSE g.position END AS first_witness,
                CASE WHEN f.producer_epoch < f.last_epoch THEN NULL
                    ELSE a.position END AS second_witness
            FROM final AS f
            LEFT JOIN first_late AS a ON {_SAME_BATCH} AND a.place = 1 AND NOT f.is_control
            LEFT JOIN given AS g ON g.run = a.run AND g.producer_id = a.producer_id
                AND g.producer_epoch = a.given_epoch
            WHERE f.producer_epoch < f.last_epoch OR a.position IS NOT NULL
        ), numbered AS (
            SELECT *, row_number() OVER (PARTITION BY run, topic, partition, first_offset
                ORDER BY found_at) AS place FROM found
        ), asked AS (
            SELECT run, transaction, min(position) AS position FROM transaction_end_asked
                WHERE is_commit GROUP BY run, transaction
        ), committed AS (
            SELECT e.run, e.transaction, e.producer_epoch, e.position, q.position AS asked_at,
                max(t.producer_epoch) AS given_epoch,
                row_number() OVER (PARTITION BY e.run, e.transaction ORDER BY e.position) AS place
            FROM transaction_ended AS e
            JOIN asked AS q ON q.run = e.run AND q.transaction = e.transaction
                AND q.position < e.position
            JOIN transactional_id_taken AS t
                ON t.run = e.run AND t.producer_id = e.producer_id AND t.position < q.position
                    AND t.producer_epoch > e.producer_epoch
            WHERE e.outcome = '{COMMITTED}'
            GROUP BY e.run, e.transaction, e.producer_epoch, e.position, q.position
        )
        SELECT run, concat(topic, '-', partition, '/', first_offset) AS key, message, first_witness,
            second_witness FROM numbered WHERE place = 1
        UNION ALL
        SELECT
            run,
            transaction,
            concat(
                'transaction ', transaction, ' was committed under epoch ', producer_epoch,
                    ', and epoch ', given_epoch, ' was given before'
            ),
            asked_at,
            position
        FROM committed WHERE place = 1
    """,
)

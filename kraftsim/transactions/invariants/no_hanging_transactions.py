"""When the cluster is idle every transaction has ended: it has a marker in each of its partitions,
and every decision is completed.

Checked if the harness saw that all transactions were decided after all faults were healed. From the
logs on disk it reports records of a transaction that have no marker after them in any replica's
log, and transactional ids whose last record is a decision that was not completed.
Source: KIP-890 (hanging transactions); KAFKA-14402, KAFKA-16352.
"""

from kraftsim.events.event import Event
from kraftsim.events.runs import Settled
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import FinalBatch, FinalMarker, FinalTransaction

NAME = "no-hanging-transactions"
TRANSACTIONS = "transactions"
PREPARED = (2, 3)
"""PrepareCommit and PrepareAbort."""
Producer = tuple[str, int, int]
"""Topic, partition, producer id."""


class HangingTransactions:
    """Collects the ends of all logs; checks them at the end of the run if the cluster became
    idle.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._is_quiet = False
        self._last_batch: dict[Producer, tuple[int, str]] = {}
        self._last_marker: dict[Producer, int] = {}
        self._last_state: dict[str, tuple[int, int, str]] = {}
        self._batch_count = 0

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a record of a final log, or the report that the transactions have settled."""
        if isinstance(event, Settled):
            self._is_quiet = self._is_quiet or event.what == TRANSACTIONS
        elif isinstance(event, FinalBatch) and event.is_transactional and not event.is_control:
            self._batch_count += 1
            where = (event.topic, event.partition, event.producer_id)
            if event.first_offset > self._last_batch.get(where, (-1, ""))[0]:
                self._last_batch[where] = (event.first_offset, envelope.event_id)
        elif isinstance(event, FinalMarker):
            where = (event.topic, event.partition, event.producer_id)
            self._last_marker[where] = max(event.offset, self._last_marker.get(where, -1))
        elif (
            isinstance(event, FinalTransaction)
            and event.offset > self._last_state.get(event.transactional_id, (-1, 0, ""))[0]
        ):
            self._last_state[event.transactional_id] = (
                event.offset,
                event.status,
                envelope.event_id,
            )
        return None

    def finish(self) -> Verdict:
        """Check, and return the verdict."""
        if not self._is_quiet:
            return self._findings.verdict()
        self._findings.examined = self._batch_count
        for (topic, partition, producer_id), (offset, event_id) in self._last_batch.items():
            if offset > self._last_marker.get((topic, partition, producer_id), -1):
                message = (
                    f"{topic}-{partition}: the transaction of producer id {producer_id} with the "
                    f"record at offset {offset} never ended"
                )
                self._findings.violation(f"{topic}/{partition}/{producer_id}", message, event_id)
        for transactional_id, (_, status, event_id) in self._last_state.items():
            if status in PREPARED:
                self._findings.violation(
                    transactional_id,
                    f"transactional id {transactional_id}: what was decided was never completed",
                    event_id,
                )
        return self._findings.verdict()


_QUIET = f"EXISTS (SELECT 1 FROM settled AS q WHERE q.run = b.run AND q.what = '{TRANSACTIONS}')"

INVARIANT = Invariant(
    name=NAME,
    rule="When the cluster is idle every transaction has its marker in every partition, and every "
    "decision is completed.",
    source="KIP-890",
    watches=(Settled, FinalBatch, FinalMarker, FinalTransaction),
    check=HangingTransactions,
    examined="SELECT run, count(*) FROM final_batch AS b WHERE is_transactional AND NOT is_control "
    f"AND {_QUIET} GROUP BY run",
    violations=f"""
        WITH batch AS (
            SELECT run, topic, partition, producer_id, first_offset, position,
                row_number() OVER (PARTITION BY run, topic, partition, producer_id
                    ORDER BY first_offset DESC, position) AS place
            FROM final_batch AS b WHERE is_transactional AND NOT is_control AND {_QUIET}
        ), marker AS (
            SELECT run, topic, partition, producer_id, max(m.offset) AS last_offset
                FROM final_marker AS m
            GROUP BY run, topic, partition, producer_id
        ), state AS (
            SELECT run, transactional_id, status, position,
                row_number() OVER (PARTITION BY run, transactional_id ORDER BY b.offset DESC,
                    position) AS place
            FROM final_transaction AS b WHERE {_QUIET}
        )
        SELECT
            b.run,
            concat(b.topic, '/', b.partition, '/', b.producer_id) AS key,
            concat(
                b.topic, '-', b.partition, ': the transaction of producer id ', b.producer_id,
                    ' with the record at offset ', b.first_offset,
                ' never ended'
            ) AS message,
            b.position AS first_witness,
            cast(NULL AS bigint) AS second_witness
        FROM batch AS b
        LEFT JOIN marker AS m ON m.run = b.run AND m.topic = b.topic AND m.partition = b.partition
            AND m.producer_id = b.producer_id
        WHERE b.place = 1 AND (m.last_offset IS NULL OR m.last_offset < b.first_offset)
        UNION ALL
        SELECT run, transactional_id, concat('transactional id ', transactional_id,
            ': what was decided was never completed'), position,
            cast(NULL AS bigint)
        FROM state WHERE place = 1 AND status IN {PREPARED}
    """,
)

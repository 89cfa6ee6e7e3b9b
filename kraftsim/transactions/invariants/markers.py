"""Markers end transactions, as the coordinator decided, and only then.

A marker without a decision, or a batch of a fenced producer, changes a transaction that its
application considers over; a transaction without a marker holds the last stable offset back for
ever.
"""

from kraftsim.clients.events_transactions import (
    TransactionalIdTaken,
    TransactionEndAsked,
    TransactionEnded,
)
from kraftsim.events.event import Event
from kraftsim.events.runs import Settled
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.permitted_losses import (
    CLEANED_UNTIL,
    CLEANED_WATCHES,
    TRANSACTION_TOPIC,
    CleanedLogs,
)
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import BatchAppended, FinalBatch, FinalMarker, FinalTransaction
from kraftsim.transactions.events import (
    TransactionKept,
    TransactionLoaded,
    TransactionStateChanged,
)
from kraftsim.transactions.invariants.coordinator_log import (
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSACTIONS,
)
from kraftsim.transactions.invariants.isolation import COMMITTED

DECISIONS = {"PrepareCommit": PREPARE_COMMIT, "PrepareAbort": PREPARE_ABORT}
"""The names of the states with a decision."""
NO_DECISION = -1


class Markers:
    """Transaction markers and records in partitions agree with the decisions of the transaction
    coordinators.

    In each log the producer epoch and the coordinator epoch of a producer's markers never decrease.
    Each marker matches a decision for that producer id and epoch. Records of a transaction are only
    in partitions that were added to it. Producer ids that are in no coordinator's log are not
    checked. For records that compaction removed from the coordinator's log, the events that the
    coordinator emitted when it committed or loaded them are used.

    Collects markers, records and decisions from final logs; compares them at the end of the run.

    Source: KIP-98, KIP-360, KIP-890 part 1; KAFKA-14402.
    """

    def __init__(self) -> None:
        self._findings = Findings("markers-match-coordinator-decisions")
        self._markers: list[tuple[FinalMarker, str]] = []
        self._batches: list[tuple[FinalBatch, str]] = []
        self._known: set[int] = set()  # these three for membership only
        self._decided: set[tuple[int, int, int]] = set()
        self._added: set[tuple[int, int, str]] = set()
        self._changes: list[tuple[int, TransactionStateChanged | TransactionLoaded]] = []
        self._cleaned = CleanedLogs()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a record of a final log, a change that was committed or loaded, or a log
        cleaning.
        """
        self._cleaned.learn(event)
        if isinstance(event, FinalMarker):
            self._markers.append((event, envelope.event_id))
        elif isinstance(event, FinalBatch) and event.is_transactional and not event.is_control:
            self._batches.append((event, envelope.event_id))
        elif isinstance(event, FinalTransaction):
            self._known.add(event.producer_id)
            self._take(event, event.status)
        elif isinstance(event, TransactionStateChanged):
            self._changes.append((event.offset, event))
        elif isinstance(event, TransactionLoaded):
            self._changes.append((event.record_offset, event))
        return None

    def _take(
        self, event: FinalTransaction | TransactionStateChanged | TransactionLoaded, status: int
    ) -> None:
        self._decided.add((event.producer_id, event.producer_epoch, status))
        self._added.update(
            (event.producer_id, event.producer_epoch, where)
            for where in event.partitions.split(",")
            if where
        )

    def finish(self) -> Verdict:
        """Compare, and return the verdict."""
        for offset, change in self._changes:
            if self._cleaned.has_passed((TRANSACTION_TOPIC, change.partition), offset):
                self._take(change, DECISIONS.get(change.state, NO_DECISION))
        before: dict[tuple[str, str, int, int], FinalMarker] = {}
        for marker, event_id in self._markers:
            where, log = (
                f"{marker.topic}-{marker.partition}",
                (marker.broker, marker.topic, marker.partition, marker.producer_id),
            )
            self._findings.examined += 1
            last = before.get(log)
            before[log] = marker
            of = f"the marker of producer id {marker.producer_id} at offset {marker.offset}"
            key = f"{where}/{marker.offset}"
            if last is not None and (
                marker.coordinator_epoch < last.coordinator_epoch
                or marker.producer_epoch < last.producer_epoch
            ):
                self._findings.violation(
                    key, f"{where}: {of} is of an older epoch than the one before it", event_id
                )
            wanted = PREPARE_COMMIT if marker.is_commit else PREPARE_ABORT
            if (
                marker.producer_id in self._known
                and (marker.producer_id, marker.producer_epoch, wanted) not in self._decided
            ):
                self._findings.violation(
                    key, f"{where}: {of} says what no coordinator decided", event_id
                )
        for batch, event_id in self._batches:
            where = f"{batch.topic}-{batch.partition}"
            self._findings.examined += 1
            if (
                batch.producer_id in self._known
                and (batch.producer_id, batch.producer_epoch, where) not in self._added
            ):
                message = (
                    f"{where}: the record of producer id {batch.producer_id} at offset "
                    f"{batch.first_offset} is in no transaction"
                )
                self._findings.violation(f"{where}/{batch.first_offset}", message, event_id)
        return self._findings.verdict()


_SAME_LOG = "PARTITION BY run, broker, topic, partition, producer_id ORDER BY m.offset"

MARKERS_MATCH_COORDINATOR_DECISIONS = Invariant(
    name="markers-match-coordinator-decisions",
    decides_without_nodes=True,
    rule="Markers have non-decreasing epochs and match decisions; records of a transaction are "
    "only in partitions that were added to it.",
    source="KIP-98, KIP-890",
    watches=(
        FinalMarker,
        FinalBatch,
        FinalTransaction,
        TransactionStateChanged,
        TransactionLoaded,
        *CLEANED_WATCHES,
    ),
    check=Markers,
    examined="""
        SELECT run, count(*) FROM (
            SELECT run FROM final_marker UNION ALL SELECT run FROM final_batch
                WHERE is_transactional AND NOT is_control
        ) AS line GROUP BY run
    """,
    violations=f"""
        WITH {CLEANED_UNTIL}, known AS (
            SELECT DISTINCT run, producer_id FROM final_transaction
        ), written AS (
            SELECT run, producer_id, producer_epoch, partitions,
                CASE status WHEN {PREPARE_COMMIT} THEN 'PrepareCommit' WHEN {PREPARE_ABORT}
                    THEN 'PrepareAbort' END AS decision
            FROM final_transaction
            UNION ALL
            SELECT t.run, t.producer_id, t.producer_epoch, t.partitions,
                CASE WHEN t.state IN ('PrepareCommit', 'PrepareAbort') THEN t.state END
            FROM (
                SELECT run, producer_id, producer_epoch, partitions, state, partition,
                    c.offset AS noted_offset FROM transaction_state_changed AS c
                UNION ALL
                SELECT run, producer_id, producer_epoch, partitions, state, partition, record_offset
                    FROM transaction_loaded
            ) AS t
            JOIN cleaned_until AS u
                ON u.run = t.run AND u.topic = '{TRANSACTION_TOPIC}' AND u.partition = t.partition
                    AND u.cleaned_offset > t.noted_offset
        ), decided AS (
            SELECT DISTINCT run, producer_id, producer_epoch,
                decision = 'PrepareCommit' AS is_commit FROM written WHERE decision IS NOT NULL
        ), ordered AS (
            SELECT *, m.offset AS at_offset,
                lag(coordinator_epoch) OVER ({_SAME_LOG}) AS last_coordinator_epoch,
                    lag(producer_epoch) OVER ({_SAME_LOG}) AS last_producer_epoch
            FROM final_marker AS m
        ), reported AS (
            SELECT o.*, k.producer_id AS known_id, d.producer_id AS decided_id FROM ordered AS o
            LEFT JOIN known AS k ON k.run = o.run AND k.producer_id = o.producer_id
            LEFT JOIN decided AS d ON d.run = o.run AND d.producer_id = o.producer_id
                AND d.producer_epoch = o.producer_epoch
                AND d.is_commit = o.is_commit
        ), added AS (
            SELECT DISTINCT run, producer_id, producer_epoch, concat(',', partitions,
                ',') AS partitions FROM written WHERE partitions <> ''
        ), placed AS (
            SELECT DISTINCT b.run, b.position FROM final_batch AS b
            JOIN added AS a ON a.run = b.run AND a.producer_id = b.producer_id
                AND a.producer_epoch = b.producer_epoch
                AND instr(a.partitions, concat(',', b.topic, '-', b.partition, ',')) > 0
            WHERE b.is_transactional AND NOT b.is_control
        ), found AS (
            SELECT run, topic, partition, at_offset, position,
                concat('the marker of producer id ', producer_id, ' at offset ', at_offset) AS what,
                CASE WHEN coordinator_epoch < last_coordinator_epoch
                    OR producer_epoch < last_producer_epoch
                THEN ' is of an older epoch than the one before it'
                    ELSE ' says what no coordinator decided' END AS why
            FROM reported
            WHERE coordinator_epoch < last_coordinator_epoch OR producer_epoch < last_producer_epoch
                OR (known_id IS NOT NULL AND decided_id IS NULL)
            UNION ALL
            SELECT b.run, b.topic, b.partition, b.first_offset, b.position,
                concat('the record of producer id ', b.producer_id, ' at offset ', b.first_offset),
                    ' is in no transaction'
            FROM final_batch AS b
            JOIN known AS k ON k.run = b.run AND k.producer_id = b.producer_id
            LEFT JOIN placed AS p ON p.run = b.run AND p.position = b.position
            WHERE b.is_transactional AND NOT b.is_control AND p.position IS NULL
        ), numbered AS (
            SELECT *, row_number() OVER (PARTITION BY run, topic, partition, at_offset
                ORDER BY position) AS place FROM found
        )
        SELECT
            run,
            concat(topic, '-', partition, '/', at_offset) AS key,
            concat(topic, '-', partition, ': ', what, why) AS message,
            position AS first_witness,
            cast(NULL AS bigint) AS second_witness
        FROM numbered WHERE place = 1
    """,
)


PREPARED = (2, 3)
"""PrepareCommit and PrepareAbort."""
Producer = tuple[str, int, int]
"""Topic, partition, producer id."""


class HangingTransactions:
    """When the cluster is idle every transaction has ended: it has a marker in each of its
    partitions, and every decision is completed.

    Checked if the harness saw that all transactions were decided after all faults were healed. From
    the logs on disk it reports records of a transaction that have no marker after them in any
    replica's log, and transactional ids whose last record is a decision that was not completed.

    Collects the ends of all logs; checks them at the end of the run if the cluster became idle.

    Source: KIP-890 (hanging transactions); KAFKA-14402, KAFKA-16352.
    """

    def __init__(self) -> None:
        self._findings = Findings("no-hanging-transactions")
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

NO_HANGING_TRANSACTIONS = Invariant(
    name="no-hanging-transactions",
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


Batch = tuple[str, int, int, int, int, int]
"""Topic, partition, first offset, producer id, producer epoch, base sequence."""


class Fences:
    """After a transactional id moves to a later producer epoch, nothing that an earlier epoch
    writes or commits remains.

    In each log, a producer's epochs never decrease. A batch that a leader appended for an older
    epoch, after another producer received a later one, must not be in any final log: partitions
    verify with the coordinator before a transaction starts in them (since 3.6). A commit that was
    requested under an older epoch after that must not succeed.

    Where a transaction is kept for the next producer (KIP-939), no marker tells the leaders that
    there is one: they append what the producer before writes to partitions that are in the
    transaction, until it is ended.

    Collects the epochs of each id, the batches written under each epoch, and the final batches;
    compares them at the end.

    Source: KIP-98, KIP-360, KIP-890 part 1; KAFKA-6119.
    """

    def __init__(self) -> None:
        self._findings = Findings("fenced-producers-write-nothing")
        self._taken: dict[int, tuple[int, str]] = {}
        self._kept: dict[tuple[int, int], None] = {}
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
            case TransactionKept():
                self._kept[event.producer_id, event.producer_epoch] = None
            case BatchAppended() if (
                event.is_transactional
                and (event.producer_id, event.producer_epoch) not in self._kept
            ):
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


_PRODUCER_BATCHES = (
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

FENCED_PRODUCERS_WRITE_NOTHING = Invariant(
    name="fenced-producers-write-nothing",
    decides_without_nodes=True,
    rule="After a transactional id moves to a later producer epoch, nothing that an earlier epoch "
    "writes or commits remains.",
    source="KIP-98, KIP-890",
    watches=(
        TransactionalIdTaken,
        TransactionKept,
        BatchAppended,
        FinalBatch,
        TransactionEndAsked,
        TransactionEnded,
    ),
    check=Fences,
    examined="SELECT run, count(*) FROM transactional_id_taken GROUP BY run",
    violations=f"""
        WITH kept AS (
            SELECT run, producer_id, producer_epoch, min(position) AS position
                FROM transaction_kept GROUP BY run, producer_id, producer_epoch
        ), late AS (
            SELECT a.run, a.topic, a.partition, a.first_offset, a.producer_id, a.producer_epoch,
                a.base_sequence, a.position,
                max(t.producer_epoch) AS given_epoch
            FROM batch_appended AS a
            JOIN transactional_id_taken AS t
                ON t.run = a.run AND t.producer_id = a.producer_id AND t.position < a.position
                    AND t.producer_epoch > a.producer_epoch
            LEFT JOIN kept AS k ON k.run = a.run AND k.producer_id = a.producer_id
                AND k.producer_epoch = a.producer_epoch AND k.position < a.position
            WHERE a.is_transactional AND k.position IS NULL
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
            SELECT *, lag(producer_epoch) OVER ({_PRODUCER_BATCHES}) AS last_epoch FROM final_batch
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


INVARIANTS = (
    MARKERS_MATCH_COORDINATOR_DECISIONS,
    NO_HANGING_TRANSACTIONS,
    FENCED_PRODUCERS_WRITE_NOTHING,
)

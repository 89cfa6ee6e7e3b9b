"""Transaction markers and records in partitions agree with the decisions of the transaction
coordinators.

In each log the producer epoch and the coordinator epoch of a producer's markers never decrease.
Each marker matches a decision for that producer id and epoch. Records of a transaction are only in
partitions that were added to it. Producer ids that are in no coordinator's log are not checked. For
records that compaction removed from the coordinator's log, the events that the coordinator emitted
when it committed or loaded them are used.
Source: KIP-98, KIP-360, KIP-890 part 1; KAFKA-14402.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.cleaned_logs import (
    CLEANED_UNTIL,
    CLEANED_WATCHES,
    TRANSACTION_TOPIC,
    CleanedLogs,
)
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import FinalBatch, FinalMarker, FinalTransaction
from kraftsim.transactions.events import TransactionLoaded, TransactionStateChanged
from kraftsim.transactions.invariants.transaction_transitions_valid import (
    PREPARE_ABORT,
    PREPARE_COMMIT,
)

NAME = "markers-match-coordinator-decisions"
DECISIONS = {"PrepareCommit": PREPARE_COMMIT, "PrepareAbort": PREPARE_ABORT}
"""The names of the states with a decision."""
NO_DECISION = -1


class Markers:
    """Collects markers, records and decisions from final logs; compares them at the end of the
    run.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
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

INVARIANT = Invariant(
    name=NAME,
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

"""What the transaction coordinator decides is in its log, and follows the state machine of Kafka.

A coordinator that loads a partition of `__transaction_state` continues what its predecessor wrote.
So both must agree: each record with the one before it, and the state in memory with the records.
"""

from itertools import pairwise
from typing import NamedTuple

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
from kraftsim.partitions.events import FinalTransaction
from kraftsim.transactions.events import (
    TransactionalIdExpired,
    TransactionChangeGivenUp,
    TransactionKept,
    TransactionLoaded,
    TransactionsLoaded,
    TransactionStateChanged,
)

TRANSACTIONS = "transactions"
FORGOTTEN, EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = (
    -1,
    0,
    1,
    2,
    3,
    4,
    5,
)
AFTER: dict[int, tuple[int, ...]] = {
    FORGOTTEN: (EMPTY,),
    EMPTY: (EMPTY, ONGOING, PREPARE_ABORT, FORGOTTEN),
    ONGOING: (ONGOING, PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (PREPARE_COMMIT, COMPLETE_COMMIT),
    PREPARE_ABORT: (PREPARE_ABORT, COMPLETE_ABORT),
    COMPLETE_COMMIT: (COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_ABORT, FORGOTTEN),
    COMPLETE_ABORT: (COMPLETE_ABORT, EMPTY, ONGOING, PREPARE_ABORT, FORGOTTEN),
}
"""State -> the states that may be written next.

An abort without a transaction bumps the epoch with transaction.version 2.
"""
LARGEST_STEP = 2
"""A fence that could not be written, and an end."""
STEPS: dict[tuple[int, int], int] = {
    **{(before, EMPTY): 1 for before in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)},
    **{(before, ONGOING): 0 for before in (EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT)},
    **{(before, PREPARE_ABORT): 1 for before in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)},
    (ONGOING, PREPARE_COMMIT): 1,
    (ONGOING, PREPARE_ABORT): 1,
    **{
        (before, before): 0
        for before in (PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)
    },
    (PREPARE_COMMIT, COMPLETE_COMMIT): 0,
    (PREPARE_ABORT, COMPLETE_ABORT): 0,
}
"""(state, next state) -> the largest increase of the epoch; LARGEST_STEP if absent.

Source: TransactionMetadata.{prepareIncrementProducerEpoch, prepareFenceProducerEpoch,
prepareAddPartitions, prepareAbortOrCommit, prepareComplete}.
"""
LARGEST_EPOCH = 32767
ENDED_BY = (PREPARE_COMMIT, PREPARE_ABORT)
"""The states before a completion."""


class WrittenTransition(NamedTuple):
    """One record."""

    offset: int
    status: int
    producer_id: int
    producer_epoch: int
    event_id: str


class States:
    """The records of a transactional id form a valid sequence of transaction states, and their
    epochs increase as Kafka allows.

    Nothing is completed that was not decided, and a committed decision stands. The producer epoch
    increases by one for a fence (InitProducerId, a timeout), by one for an end (KIP-890), by one
    where an end is also a fence (KAFKA-19367), and not at all where partitions are added or a
    decision is completed. An abort increases it by two only if an earlier change of the
    transactional id was given up: a fence that could not be written has raised the epoch in memory.
    The completion of a transaction that was kept for another producer has the epoch after the one
    that this producer got (KIP-939).
    A record may be there twice if an append with a late response is repeated; an end that was
    observed as committed is not written again. A coordinator that gave up on a record, because it
    was not replicated in time, continues with the previous epoch. If the log was cleaned between
    two records, others may be missing, and the two are not compared.

    Collects what coordinators wrote, by the log of each broker; checks it at the end of the run.

    Source: KIP-98, KIP-360, KIP-890;
    kafka.coordinator.transaction.TransactionMetadata.validPreviousStates; KAFKA-9666, KAFKA-10080,
    KAFKA-19367.
    """

    def __init__(self) -> None:
        self._findings = Findings("transaction-transitions-valid")
        self._written: dict[tuple[str, int, str], list[WrittenTransition]] = {}
        self._committed: dict[tuple[int, int], None] = {}
        self._given_up: dict[tuple[int, int], None] = {}
        self._ever_given_up: dict[tuple[int, str], None] = {}
        """(partition, transactional id) with a change that was given up."""
        self._kept: dict[tuple[tuple[int, str], int], None] = {}
        """((partition, transactional id), epoch of a producer that got it with its transaction)."""
        self._cleaned = CleanedLogs()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a record, its commit, a change that was given up, or a log cleaning."""
        self._cleaned.learn(event)
        if isinstance(event, TransactionStateChanged):
            self._committed[event.partition, event.offset] = None
        elif isinstance(event, TransactionChangeGivenUp):
            self._given_up[event.partition, event.offset] = None
            self._ever_given_up[event.partition, event.transactional_id] = None
        elif isinstance(event, TransactionKept):
            whose = (event.partition, event.transactional_id)
            self._kept[whose, event.next_producer_epoch] = None
        elif isinstance(event, FinalTransaction):
            record = WrittenTransition(
                event.offset,
                event.status,
                event.producer_id,
                event.producer_epoch,
                envelope.event_id,
            )
            self._written.setdefault(
                (event.broker, event.partition, event.transactional_id), []
            ).append(record)
        return None

    def finish(self) -> Verdict:
        """Check, and return the verdict."""
        for (_, partition, transactional_id), records in self._written.items():
            self._findings.examined += len(records)
            for before, after in pairwise(records):
                if self._cleaned.may_lack_between(
                    (TRANSACTION_TOPIC, partition), before.offset, after.offset
                ):
                    continue
                why = self._objection((partition, transactional_id), before, after)
                if why:
                    key = f"{transactional_id}/{after.offset}"
                    message = f"transactional id {transactional_id}: {why} at offset {after.offset}"
                    self._findings.violation(key, message, before.event_id, after.event_id)
        return self._findings.verdict()

    def _objection(
        self, whose: tuple[int, str], before: WrittenTransition, after: WrittenTransition
    ) -> str:
        partition, _ = whose
        if after.status not in AFTER[before.status]:
            was_decided = before.status in (PREPARE_COMMIT, PREPARE_ABORT)
            if not was_decided or (partition, before.offset) in self._committed:
                return f"state {after.status} follows state {before.status}"
        are_committed = (partition, before.offset) in self._committed and (
            partition,
            after.offset,
        ) in self._committed
        if (
            after.status == before.status
            and after.status in (COMPLETE_COMMIT, COMPLETE_ABORT)
            and are_committed
        ):
            return f"state {after.status} was entered twice"
        if not 0 <= after.producer_epoch <= LARGEST_EPOCH and after.status != FORGOTTEN:
            return f"epoch {after.producer_epoch} is none"
        lowest = before.producer_epoch - (
            LARGEST_STEP if (partition, before.offset) in self._given_up else 0
        )
        step = STEPS.get((before.status, after.status), LARGEST_STEP)
        if (before.status, after.status) == (
            ONGOING,
            PREPARE_ABORT,
        ) and whose in self._ever_given_up:
            step = LARGEST_STEP
        if before.status in ENDED_BY and (whose, after.producer_epoch - 1) in self._kept:
            step = LARGEST_EPOCH
        highest = before.producer_epoch + step
        if (
            after.producer_id == before.producer_id
            and not lowest <= after.producer_epoch <= highest
        ):
            return f"epoch {after.producer_epoch} follows epoch {before.producer_epoch}"
        return ""


_ALLOWED = " OR ".join(
    f"(before_status = {before} AND status IN ({', '.join(map(str, after))}))"
    for before, after in AFTER.items()
)
_STEP = " ".join(
    f"WHEN before_status = {before} AND status = {after} THEN {step}"
    for (before, after), step in STEPS.items()
)
_OBJECTION = f"""
    CASE
        WHEN NOT ({_ALLOWED})
            AND (before_status NOT IN ({PREPARE_COMMIT}, {PREPARE_ABORT})
                OR committed_offset IS NOT NULL)
        THEN concat('state ', status, ' follows state ', before_status)
        WHEN status = before_status AND status IN ({COMPLETE_COMMIT}, {COMPLETE_ABORT})
            AND committed_offset IS NOT NULL AND is_committed
        THEN concat('state ', status, ' was entered twice')
        WHEN (producer_epoch < 0 OR producer_epoch > {LARGEST_EPOCH}) AND status <> {FORGOTTEN}
        THEN concat('epoch ', producer_epoch, ' is none')
        WHEN producer_id = before_id
            AND (producer_epoch < before_epoch - if(is_given_up, {LARGEST_STEP}, 0)
                OR producer_epoch - before_epoch > CASE
                    WHEN before_status = {ONGOING} AND status = {PREPARE_ABORT} AND was_given_up
                    THEN {LARGEST_STEP}
                    WHEN before_status IN {ENDED_BY} AND was_kept THEN {LARGEST_EPOCH}
                    {_STEP} ELSE {LARGEST_STEP}
                END)
        THEN concat('epoch ', producer_epoch, ' follows epoch ', before_epoch)
    END
"""
_SAME_LOG = "PARTITION BY run, broker, partition, transactional_id ORDER BY f.offset"

TRANSACTION_TRANSITIONS_VALID = Invariant(
    name="transaction-transitions-valid",
    decides_without_nodes=True,
    rule="The records of a transactional id form a valid sequence of states; the epoch increases "
    "by one for a fence and by one for an end.",
    source="KIP-98, KIP-890",
    watches=(
        TransactionStateChanged,
        TransactionChangeGivenUp,
        TransactionKept,
        FinalTransaction,
        *CLEANED_WATCHES,
    ),
    check=States,
    examined="SELECT run, count(*) FROM final_transaction GROUP BY run",
    violations=f"""
        WITH {CLEANED_UNTIL}, pair AS (
            SELECT run, partition, transactional_id, status, producer_id, producer_epoch, position,
                f.offset AS at_offset,
                lag(status) OVER ({_SAME_LOG}) AS before_status,
                lag(producer_id) OVER ({_SAME_LOG}) AS before_id,
                lag(producer_epoch) OVER ({_SAME_LOG}) AS before_epoch,
                lag(f.offset) OVER ({_SAME_LOG}) AS before_offset,
                lag(position) OVER ({_SAME_LOG}) AS before_position
            FROM final_transaction AS f
        ), committed AS (
            SELECT DISTINCT run, partition, t.offset AS committed_offset
                FROM transaction_state_changed AS t
        ), given_up AS (
            SELECT DISTINCT run, partition, t.offset AS given_up_offset
                FROM transaction_change_given_up AS t
        ), ever_given_up AS (
            SELECT DISTINCT run, partition, transactional_id FROM transaction_change_given_up
        ), kept AS (
            SELECT DISTINCT run, partition, transactional_id, next_producer_epoch
            FROM transaction_kept
        ), judged AS (
            SELECT p.*, c.committed_offset, d.committed_offset IS NOT NULL AS is_committed,
                k.next_producer_epoch IS NOT NULL AS was_kept,
                g.given_up_offset IS NOT NULL AS is_given_up,
                e.transactional_id IS NOT NULL AS was_given_up
            FROM pair AS p
            LEFT JOIN committed AS c ON c.run = p.run AND c.partition = p.partition
                AND c.committed_offset = p.before_offset
            LEFT JOIN committed AS d ON d.run = p.run AND d.partition = p.partition
                AND d.committed_offset = p.at_offset
            LEFT JOIN given_up AS g ON g.run = p.run AND g.partition = p.partition
                AND g.given_up_offset = p.before_offset
            LEFT JOIN ever_given_up AS e ON e.run = p.run AND e.partition = p.partition
                AND e.transactional_id = p.transactional_id
            LEFT JOIN kept AS k ON k.run = p.run AND k.partition = p.partition
                AND k.transactional_id = p.transactional_id
                AND k.next_producer_epoch = p.producer_epoch - 1
            LEFT JOIN cleaned_until AS u ON u.run = p.run AND u.topic = '{TRANSACTION_TOPIC}'
                AND u.partition = p.partition
            WHERE before_status IS NOT NULL AND NOT (p.at_offset > p.before_offset + 1
                AND coalesce(u.cleaned_offset, 0) > p.before_offset + 1)
        ), objected AS (
            SELECT *, {_OBJECTION} AS why FROM judged
        ), numbered AS (
            SELECT *, row_number() OVER (PARTITION BY run, transactional_id, at_offset
                ORDER BY position) AS place FROM objected
            WHERE why IS NOT NULL
        )
        SELECT
            run,
            concat(transactional_id, '/', at_offset) AS key,
            concat('transactional id ', transactional_id, ': ', why, ' at offset ',
                at_offset) AS message,
            before_position AS first_witness,
            position AS second_witness
        FROM numbered WHERE place = 1
    """,
)


NAMES = {
    -1: "Forgotten",
    0: "Empty",
    1: "Ongoing",
    2: "PrepareCommit",
    3: "PrepareAbort",
    4: "CompleteCommit",
    5: "CompleteAbort",
}
"""Status in a record -> name of the coordinator's state."""
FORGOTTEN_NAME = "Forgotten"
Id = tuple[int, str]
"""Partition of `__transaction_state`, transactional id."""
Load = tuple[str, int, int, int]
"""Node, incarnation, partition, coordinator epoch."""


class Belief(NamedTuple):
    """A coordinator's state for a transactional id, and the offset of its record."""

    coordinator_epoch: int
    offset: int
    content: str
    is_loaded: bool
    event_id: str
    number: int
    """Sequence number over all reported states."""


def content_of(
    state: str, event: TransactionStateChanged | TransactionLoaded | FinalTransaction
) -> str:
    """Return the part of a record that is compared."""
    return (
        FORGOTTEN_NAME
        if state == FORGOTTEN_NAME
        else f"{state} of {event.producer_id} epoch {event.producer_epoch} in [{event.partitions}]"
    )


class Beliefs:
    """A transaction coordinator's state for a transactional id equals the last record of that id in
    `__transaction_state`.

    This holds after each load, after each change, and when the cluster is idle. A committed record
    is in the log of every later coordinator. A record that was observed as committed is therefore a
    lower bound for what the same or a later coordinator epoch may load; loading an older record, or
    none, is a violation. A record whose commit its coordinator did not observe, or that it gave up,
    may or may not be in the log: that is known once a coordinator loads it.

    Compares each load with the records committed before it, and everything with the final logs at
    the end of the run.

    Source: KIP-98; TransactionStateManager.{loadTransactionMetadata, appendTransactionToLog};
    KAFKA-5600 (the same bug in group coordinators).
    """

    def __init__(self) -> None:
        self._findings = Findings("coordinator-transactions-equal-log")
        self._reported: dict[Id, list[Belief]] = {}
        self._committed: dict[Id, dict[int, Belief]] = {}
        """The last record of each id, by coordinator epoch."""
        self._last_offsets: dict[int, dict[int, int]] = {}
        """By partition, of all ids together, by coordinator epoch."""
        self._given_up: dict[tuple[int, str, int], None] = {}
        self._loaded: dict[Load, dict[str, None]] = {}
        self._records: dict[Id, dict[int, list[tuple[str, str]]]] = {}
        self._is_quiet = False

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a coordinator's report, or a record of a final log."""
        match event:
            case TransactionStateChanged():
                self._report(event, event.offset, content_of(event.state, event), envelope)
            case TransactionalIdExpired():
                self._report(event, event.offset, FORGOTTEN_NAME, envelope)
            case TransactionLoaded():
                return self._check_loaded(envelope, event)
            case TransactionsLoaded():
                return self._check_missing(envelope, event)
            case TransactionChangeGivenUp():
                self._given_up[event.partition, event.transactional_id, event.offset] = None
            case FinalTransaction():
                offsets = self._records.setdefault((event.partition, event.transactional_id), {})
                offsets.setdefault(event.offset, []).append(
                    (content_of(NAMES[event.status], event), envelope.event_id)
                )
            case Settled():
                self._is_quiet = self._is_quiet or event.what == TRANSACTIONS
            case _:
                pass
        return None

    def _report(
        self,
        event: TransactionStateChanged | TransactionalIdExpired | TransactionLoaded,
        offset: int,
        content: str,
        envelope: Envelope,
        *,
        is_loaded: bool = False,
    ) -> None:
        self._findings.examined += 1
        belief = Belief(
            event.coordinator_epoch,
            offset,
            content,
            is_loaded,
            envelope.event_id,
            self._findings.examined,
        )
        of = (event.partition, event.transactional_id)
        self._reported.setdefault(of, []).append(belief)
        if not is_loaded:
            of_id, of_all = (
                self._committed.setdefault(of, {}),
                self._last_offsets.setdefault(event.partition, {}),
            )
            if (
                belief.coordinator_epoch not in of_id
                or of_id[belief.coordinator_epoch].offset <= offset
            ):
                of_id[belief.coordinator_epoch] = belief
            of_all[belief.coordinator_epoch] = max(
                offset, of_all.get(belief.coordinator_epoch, offset)
            )

    def _latest(self, of: Id, coordinator_epoch: int) -> Belief | None:
        """Return the last record of an id that was observed as committed in a coordinator epoch or
        an earlier one.
        """
        seen = [
            each
            for epoch, each in self._committed.get(of, {}).items()
            if epoch <= coordinator_epoch
        ]
        return max(seen, key=lambda each: (each.offset, each.number), default=None)

    def _check_loaded(self, envelope: Envelope, event: TransactionLoaded) -> Violation | None:
        load = (envelope.node, envelope.incarnation, event.partition, event.coordinator_epoch)
        self._loaded.setdefault(load, {})[event.transactional_id] = None
        content = content_of(event.state, event)
        self._report(event, event.record_offset, content, envelope, is_loaded=True)
        latest = self._latest((event.partition, event.transactional_id), event.coordinator_epoch)
        if (
            latest is None
            or latest.offset < event.record_offset
            or (latest.offset, latest.content) == (event.record_offset, content)
        ):
            return None
        message = (
            f"transactional id {event.transactional_id}: epoch {event.coordinator_epoch} loaded "
            f"{content} from offset {event.record_offset}, and {latest.content} is committed at "
            f"offset {latest.offset}"
        )
        return self._findings.violation(
            f"{event.transactional_id}/{event.coordinator_epoch}",
            message,
            latest.event_id,
            envelope.event_id,
        )

    def _check_missing(self, envelope: Envelope, event: TransactionsLoaded) -> Violation | None:
        loaded = self._loaded.pop(
            (envelope.node, envelope.incarnation, event.partition, event.coordinator_epoch), {}
        )
        first = None
        for of in self._committed:
            if of[0] != event.partition or of[1] in loaded:
                continue
            latest = self._latest(of, event.coordinator_epoch)
            if (
                latest is not None
                and latest.content != FORGOTTEN_NAME
                and latest.offset < event.next_offset
            ):
                message = (
                    f"transactional id {of[1]}: epoch {event.coordinator_epoch} loaded nothing, "
                    f"and {latest.content} is committed at offset {latest.offset}"
                )
                key = f"{of[1]}/{event.coordinator_epoch}/unknown"
                first = (
                    self._findings.violation(key, message, latest.event_id, envelope.event_id)
                    or first
                )
        return first

    def finish(self) -> Verdict:
        """Compare with the logs, and return the verdict."""
        for of, beliefs in self._reported.items():
            for belief in beliefs:
                if belief.is_loaded and not self._is_committed(of[0], belief):
                    continue
                found = self._records.get(of, {}).get(belief.offset, [])
                if found and all(content != belief.content for content, _ in found):
                    content, event_id = found[0]
                    message = (
                        f"transactional id {of[1]}: {belief.content} was believed, and the "
                        f"record at offset {belief.offset} says {content}"
                    )
                    self._findings.violation(
                        f"{of[1]}@{belief.offset}", message, belief.event_id, event_id
                    )
        for of, records in self._records.items() if self._is_quiet else ():
            last = max(records)
            is_known = any(belief.offset == last for belief in self._reported.get(of, ()))
            if not is_known and (*of, last) not in self._given_up:
                content, event_id = records[last][0]
                message = (
                    f"transactional id {of[1]}: no coordinator knows of {content}, as the last "
                    f"record says, at offset {last}"
                )
                self._findings.violation(f"{of[1]}@{last}", message, event_id)
        return self._findings.verdict()

    def _is_committed(self, partition: int, loaded: Belief) -> bool:
        """Return whether the coordinator that loaded a record, or an earlier one, observed it or a
        later record as committed.
        """
        last_offsets = self._last_offsets.get(partition, {})
        return any(
            epoch <= loaded.coordinator_epoch and offset >= loaded.offset
            for epoch, offset in last_offsets.items()
        )


def _content(state: str) -> str:
    return (
        f"concat({state}, ' of ', producer_id, ' epoch ', producer_epoch, ' in [', partitions, ']')"
    )


_STATE = (
    f"CASE status {' '.join(f'WHEN {number} THEN {name!r}' for number, name in NAMES.items())} END"
)
_SAME_ID = "c.run = l.run AND c.partition = l.partition AND c.transactional_id = l.transactional_id"
_COMMITTED = f"""
    committed AS (
        SELECT run, partition, transactional_id, coordinator_epoch, t.offset AS at_offset,
            {_content("state")} AS content, position
        FROM transaction_state_changed AS t
        UNION ALL
        SELECT run, partition, transactional_id, coordinator_epoch, t.offset, '{FORGOTTEN_NAME}',
            position FROM transactional_id_expired AS t
    ), loaded AS (
        SELECT run, node, incarnation, partition, transactional_id, coordinator_epoch,
            record_offset, {_content("state")} AS content, position
        FROM transaction_loaded
    )
"""

COORDINATOR_TRANSACTIONS_EQUAL_LOG = Invariant(
    name="coordinator-transactions-equal-log",
    needs_examined=False,  # a final record of which no coordinator reported anything
    rule="A transaction coordinator's state, after loading and at any time, equals the last "
    "record of the id in its log.",
    source="KIP-98",
    watches=(
        TransactionStateChanged,
        TransactionalIdExpired,
        TransactionChangeGivenUp,
        TransactionLoaded,
        TransactionsLoaded,
        FinalTransaction,
        Settled,
    ),
    check=Beliefs,
    examined="""
        SELECT run, count(*) FROM (
            SELECT run FROM transaction_state_changed
            UNION ALL SELECT run FROM transactional_id_expired
            UNION ALL SELECT run FROM transaction_loaded
        ) AS reported GROUP BY run
    """,
    violations=f"""
        WITH {_COMMITTED}, before_load AS (
            SELECT l.*, c.at_offset, c.content AS committed_content,
                c.position AS committed_position,
                row_number() OVER (PARTITION BY l.run, l.position ORDER BY c.at_offset DESC,
                    c.position DESC) AS place
            FROM loaded AS l
            JOIN committed AS c ON {_SAME_ID} AND c.coordinator_epoch <= l.coordinator_epoch
                AND c.position < l.position
        ), stale AS (
            SELECT *, row_number() OVER (PARTITION BY run, transactional_id, coordinator_epoch
                ORDER BY position) AS number FROM before_load
            WHERE place = 1 AND (at_offset > record_offset OR (at_offset = record_offset
                AND content <> committed_content))
        ), before_loads AS (
            SELECT l.run, l.node, l.incarnation, l.partition, l.coordinator_epoch, l.next_offset,
                l.position, c.transactional_id, c.at_offset,
                c.content AS committed_content, c.position AS committed_position,
                row_number() OVER (PARTITION BY l.run, l.position, c.transactional_id
                    ORDER BY c.at_offset DESC, c.position DESC) AS place
            FROM transactions_loaded AS l
            JOIN committed AS c
                ON c.run = l.run AND c.partition = l.partition
                    AND c.coordinator_epoch <= l.coordinator_epoch AND c.position < l.position
        ), missing AS (
            SELECT b.*, row_number() OVER (PARTITION BY b.run, b.transactional_id,
                b.coordinator_epoch ORDER BY b.position) AS number
            FROM before_loads AS b
            LEFT JOIN loaded AS l
                ON l.run = b.run AND l.node = b.node AND l.incarnation = b.incarnation
                    AND l.partition = b.partition
                AND l.coordinator_epoch = b.coordinator_epoch
                    AND l.transactional_id = b.transactional_id AND l.position < b.position
            WHERE b.place = 1 AND l.run IS NULL AND b.committed_content <> '{FORGOTTEN_NAME}'
                AND b.at_offset < b.next_offset
        ), seen AS (
            SELECT run, partition, coordinator_epoch, max(at_offset) AS last_offset FROM committed
                GROUP BY run, partition, coordinator_epoch
        ), reported AS (
            SELECT run, partition, transactional_id, at_offset, content, position FROM committed
            UNION
            SELECT l.run, l.partition, l.transactional_id, l.record_offset, l.content, l.position
                FROM loaded AS l
            JOIN seen AS s
                ON s.run = l.run AND s.partition = l.partition
                    AND s.coordinator_epoch <= l.coordinator_epoch
                    AND s.last_offset >= l.record_offset
        ), record AS (
            SELECT run, partition, transactional_id, f.offset AS at_offset, position,
                CASE status WHEN -1 THEN '{FORGOTTEN_NAME}' ELSE {_content(_STATE)} END AS content
            FROM final_transaction AS f
        ), compared AS (
            SELECT t.run, t.transactional_id, t.at_offset, t.content, t.position,
                r.content AS record_content, r.position AS record_position,
                max(CASE WHEN r.content = t.content THEN 1 ELSE 0 END) OVER (PARTITION BY t.run,
                    t.position) AS agrees
            FROM reported AS t
            JOIN record AS r
                ON r.run = t.run AND r.partition = t.partition
                    AND r.transactional_id = t.transactional_id AND r.at_offset = t.at_offset
        ), differing AS (
            SELECT *, row_number() OVER (PARTITION BY run, transactional_id, at_offset
                ORDER BY position, record_position) AS first_number
            FROM compared WHERE agrees = 0
        ), last_record AS (
            SELECT *, row_number() OVER (PARTITION BY run, partition, transactional_id
                ORDER BY at_offset DESC, position) AS place FROM record AS b
            WHERE EXISTS (SELECT 1 FROM settled AS q WHERE q.run = b.run
                AND q.what = '{TRANSACTIONS}')
        ), known AS (
            SELECT run, partition, transactional_id, at_offset FROM committed
            UNION SELECT run, partition, transactional_id, record_offset FROM loaded
            UNION SELECT run, partition, transactional_id, g.offset
                FROM transaction_change_given_up AS g
        ), unheard AS (
            SELECT r.*, row_number() OVER (PARTITION BY r.run, r.transactional_id, r.at_offset
                ORDER BY r.position) AS number FROM last_record AS r
            LEFT JOIN known AS k
                ON k.run = r.run AND k.partition = r.partition
                    AND k.transactional_id = r.transactional_id AND k.at_offset = r.at_offset
            WHERE r.place = 1 AND k.run IS NULL
        )
        SELECT
            run,
            concat(transactional_id, '/', coordinator_epoch) AS key,
            concat('transactional id ', transactional_id, ': epoch ', coordinator_epoch, ' loaded ',
                content, ' from offset ', record_offset,
                ', and ', committed_content, ' is committed at offset ', at_offset) AS message,
            committed_position AS first_witness,
            position AS second_witness
        FROM stale WHERE number = 1
        UNION ALL
        SELECT
            run,
            concat(transactional_id, '/', coordinator_epoch, '/unknown'),
            concat('transactional id ', transactional_id, ': epoch ', coordinator_epoch,
                ' loaded nothing, and ', committed_content,
                ' is committed at offset ', at_offset),
            committed_position,
            position
        FROM missing WHERE number = 1
        UNION ALL
        SELECT
            run,
            concat(transactional_id, '@', at_offset),
            concat('transactional id ', transactional_id, ': ', content,
                ' was believed, and the record at offset ', at_offset, ' says ',
                record_content),
            position,
            record_position
        FROM differing WHERE first_number = 1
        UNION ALL
        SELECT
            run,
            concat(transactional_id, '@', at_offset),
            concat('transactional id ', transactional_id, ': no coordinator knows of ', content,
                ', as the last record says, at offset ', at_offset),
            position,
            cast(NULL AS bigint)
        FROM unheard WHERE number = 1
    """,
)


INVARIANTS = (
    TRANSACTION_TRANSITIONS_VALID,
    COORDINATOR_TRANSACTIONS_EQUAL_LOG,
)

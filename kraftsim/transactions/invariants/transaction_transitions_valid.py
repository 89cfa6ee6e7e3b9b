"""The records of a transactional id form a valid sequence of transaction states, and their epochs
increase as Kafka allows.

Nothing is completed that was not decided, and a committed decision stands. The producer epoch
increases by one for a fence (InitProducerId, a timeout), by one for an end (KIP-890), by one where
an end is also a fence (KAFKA-19367), and not at all where partitions are added or a decision is
completed. An abort increases it by two only if an earlier change of the transactional id was given
up: a fence that could not be written has raised the epoch in memory. A record may be there twice if
an append with a late response is repeated; an end that was observed as committed is not written
again. A coordinator that gave up on a record, because it was not replicated in time, continues with
the previous epoch. If the log was cleaned between two records, others may be missing, and the two
are not compared.
Source: KIP-98, KIP-360, KIP-890;
kafka.coordinator.transaction.TransactionMetadata.validPreviousStates; KAFKA-9666, KAFKA-10080,
KAFKA-19367.
"""

from itertools import pairwise
from typing import NamedTuple

from kraftsim.events.event import Event
from kraftsim.invariants.cleaned_logs import (
    CLEANED_UNTIL,
    CLEANED_WATCHES,
    TRANSACTION_TOPIC,
    CleanedLogs,
)
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import FinalTransaction
from kraftsim.transactions.events import TransactionChangeGivenUp, TransactionStateChanged

NAME = "transaction-transitions-valid"
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


class WrittenTransition(NamedTuple):
    """One record."""

    offset: int
    status: int
    producer_id: int
    producer_epoch: int
    event_id: str


class States:
    """Collects what coordinators wrote, by the log of each broker; checks it at the end of the
    run.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._written: dict[tuple[str, int, str], list[WrittenTransition]] = {}
        self._committed: dict[tuple[int, int], None] = {}
        self._given_up: dict[tuple[int, int], None] = {}
        self._ever_given_up: dict[tuple[int, str], None] = {}
        """(partition, transactional id) with a change that was given up."""
        self._cleaned = CleanedLogs()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a record, its commit, a change that was given up, or a log cleaning."""
        self._cleaned.learn(event)
        if isinstance(event, TransactionStateChanged):
            self._committed[event.partition, event.offset] = None
        elif isinstance(event, TransactionChangeGivenUp):
            self._given_up[event.partition, event.offset] = None
            self._ever_given_up[event.partition, event.transactional_id] = None
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
                    THEN {LARGEST_STEP} {_STEP} ELSE {LARGEST_STEP}
                END)
        THEN concat('epoch ', producer_epoch, ' follows epoch ', before_epoch)
    END
"""
_SAME_LOG = "PARTITION BY run, broker, partition, transactional_id ORDER BY f.offset"

INVARIANT = Invariant(
    name=NAME,
    rule="The records of a transactional id form a valid sequence of states; the epoch increases "
    "by one for a fence and by one for an end.",
    source="KIP-98, KIP-890",
    watches=(TransactionStateChanged, TransactionChangeGivenUp, FinalTransaction, *CLEANED_WATCHES),
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
        ), judged AS (
            SELECT p.*, c.committed_offset, d.committed_offset IS NOT NULL AS is_committed,
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

"""Clients receive only retriable errors, apart from what they provoke themselves, and from known
exceptions of a release.

A producer retries InitProducerId when a coordinator is loading, moves, or is busy with the previous
transaction; any other error ends it. Releases 3.0 to 3.3.1 return REQUEST_TIMED_OUT when a
producer-id block does not arrive in time: the report mentions that, but it is no violation. An
error that fails a record or a transaction must be retriable.

What a workload may provoke, and what its client gets then:
- two producers of one transactional id, or a transaction time-out: INVALID_PRODUCER_EPOCH and
  PRODUCER_FENCED (whether they had a cause is checked by rightful-owner-not-fenced);
- the same with transaction.version 2: INVALID_TXN_STATE for a commit. The coordinator's own abort
  costs one epoch (KAFKA-19367), as the end of a transaction does, so that the commit looks like a
  retry with the other result. If nodes write no events, each commit may be one;
- an abort: TRANSACTION_ABORTABLE for what was not sent;
- a member that is paused or crashes, and commits offsets: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION,
  REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID;
- what a scenario declares in `provoked_errors`;
- any error, in runs with a request fault, which may replace answers.
Where a scenario expects only retriable errors, as upgrades and migrations do, none of this is
permitted but what it declares. A record of a transactional producer fails with its transaction,
whose error is checked.
Source: KIP-730, KAFKA-14417, kafka.coordinator.transaction.TransactionCoordinator.endTransaction,
org.apache.kafka.clients.producer.internals.TransactionManager.InitProducerIdHandler,
RetriableException.
"""

from typing import Final

from kraftsim.clients.events import RecordAcknowledged, RecordFailed
from kraftsim.clients.events_transactions import (
    TransactionBegun,
    TransactionEndAsked,
    TransactionErred,
    TransactionOffsetSent,
)
from kraftsim.events.event import Event
from kraftsim.events.runs import (
    ClientErrorsChecked,
    FaultInjected,
    OnlyRetriableErrorsExpected,
)
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.producer_ids.events import InitProducerIdRefused, ProducerIdReturned
from kraftsim.server.events import NodeStarted
from kraftsim.transactions.events import TransactionAbortForced

NAME = "only-retriable-errors"
RETRIED_ERRORS: Final = (14, 15, 16, 51)
"""After these errors a producer retries InitProducerId: COORDINATOR_LOAD_IN_PROGRESS,
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS.
"""
TIMED_OUT: Final = 7
TIMING_OUT: Final = ("3.0", "3.1", "3.2")
"""The release lines that return REQUEST_TIMED_OUT if a block does not arrive; the last patch
release of 3.3 no longer does.
"""
# In rows: ruff would write one number per line.
RETRIABLE: Final = (
    2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84, 88,
    89, 100, 103, 106, 122, 123, 133
)  # fmt: skip
"""The error codes of subclasses of RetriableException."""
FENCED: Final = (47, 90)
ABORTED: Final = (47, 90, 120)
"""INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, TRANSACTION_ABORTABLE."""
OF_MEMBERS: Final = (22, 25, 27, 82)
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID."""
OTHER_RESULT: Final = 48
"""INVALID_TXN_STATE."""
REQUEST_FAULT, ERROR_ANSWER = "request-fault", "error="
"""How a fault is called that may replace answers by errors: its kind, or its text."""


class NothingFatal:
    """Checks the errors of brokers and clients, from when the run or the scenario requires it."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._is_checked = self._is_strict = False
        self._provoked: tuple[str, ...] = ()
        self._is_replaced = False
        """Whether answers may be errors that a fault made up."""
        self._timing_out: set[tuple[str, int]] = set()
        """Incarnations of the release lines that time out; for membership only, never iterated."""
        self._transactional: dict[str, None] = {}
        self._committing: dict[str, None] = {}
        """Clients that have begun a transaction, and that have sent offsets in one."""
        self._has_nodes = False
        """Whether nodes write events."""
        self._begun: dict[str, tuple[str, int]] = {}
        """The transactional id and producer id of each transaction."""
        self._overruled: dict[str, None] = {}
        """Transactions that the coordinator aborted by itself."""
        self._committed: dict[str, None] = {}
        """Transactions that the application has asked to commit."""

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an error or result that a client received, or what excuses one."""
        match event:
            case NodeStarted(release=release):
                self._has_nodes = True
                if release in TIMING_OUT:
                    self._timing_out.add((envelope.node, envelope.incarnation))
            case OnlyRetriableErrorsExpected():
                self._is_checked = self._is_strict = True
            case ClientErrorsChecked(provoked_errors=provoked_errors):
                self._is_checked = True
                self._provoked = (*self._provoked, *provoked_errors.split(","))
            case FaultInjected(fault=fault):
                self._is_replaced |= fault == REQUEST_FAULT or ERROR_ANSWER in fault
            case TransactionOffsetSent(client_id=client_id):
                self._committing[client_id] = None
            case TransactionBegun() | TransactionEndAsked() | TransactionAbortForced():
                self._follow(event)
            case _ if self._is_checked:
                self._findings.examined += 1
                return self._check(envelope, event)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _follow(
        self, event: TransactionBegun | TransactionEndAsked | TransactionAbortForced
    ) -> None:
        """Process a step of a transaction, without an error."""
        match event:
            case TransactionBegun(transaction=transaction):
                self._transactional[event.client_id] = None
                self._begun[transaction] = (event.transactional_id, event.producer_id)
            case TransactionEndAsked(transaction=transaction, is_commit=is_commit):
                if is_commit:
                    self._committed[transaction] = None
            case TransactionAbortForced(transactional_id=transactional_id, producer_id=producer_id):
                for transaction, begun in self._begun.items():
                    if begun == (transactional_id, producer_id):
                        self._overruled[transaction] = None

    def _check(self, envelope: Envelope, event: Event) -> Violation | None:
        match event:
            case InitProducerIdRefused(error_code=code):
                is_harmless = code in RETRIED_ERRORS or (
                    code == TIMED_OUT and (envelope.node, envelope.incarnation) in self._timing_out
                )
                is_provoked = code in FENCED
                what = f"{envelope.node} answered InitProducerId with error {code}"
            case RecordFailed(error_code=code, client_id=client_id):
                is_harmless = code in RETRIABLE
                is_provoked = client_id in self._transactional
                what = f"a record of {client_id} failed with error {code}"
            case TransactionErred(error_code=code, client_id=client_id):
                is_harmless = code in RETRIABLE
                is_provoked = (
                    code in ABORTED
                    or (code in OF_MEMBERS and client_id in self._committing)
                    or (code == OTHER_RESULT and self._is_overruled_commit(event.transaction))
                )
                what = f"a transaction of {client_id} failed with error {code}"
            case _:
                return None
        is_permitted = self._is_replaced or str(code) in self._provoked
        if is_harmless or is_permitted or (is_provoked and not self._is_strict):
            return None
        return self._findings.violation(
            envelope.event_id, f"{what}, which no retry heals", envelope.event_id
        )

    def _is_overruled_commit(self, transaction: str) -> bool:
        """Return whether the coordinator has, or may have, aborted what was to be committed."""
        return transaction in self._committed and (
            transaction in self._overruled or not self._has_nodes
        )


_SINCE = """
    since AS (
        SELECT run, min(position) AS began FROM (
            SELECT run, position FROM only_retriable_errors_expected
            UNION ALL SELECT run, position FROM client_errors_checked
        ) AS either GROUP BY run
    )
"""

INVARIANT = Invariant(
    name=NAME,
    decides_without_nodes=True,
    ends_run=False,  # the damage to the log, if there is any, shows later
    rule="Clients receive only retriable errors, apart from what their workload provokes and from "
    "known exceptions of a release.",
    source="KIP-730, KAFKA-14417",
    watches=(
        OnlyRetriableErrorsExpected,
        ClientErrorsChecked,
        FaultInjected,
        NodeStarted,
        TransactionBegun,
        TransactionEndAsked,
        TransactionAbortForced,
        TransactionOffsetSent,
        InitProducerIdRefused,
        ProducerIdReturned,
        RecordAcknowledged,
        RecordFailed,
        TransactionErred,
    ),
    check=NothingFatal,
    examined=f"""
        WITH {_SINCE}, reported AS (
            SELECT run, position FROM init_producer_id_refused
            UNION ALL SELECT run, position FROM producer_id_returned
            UNION ALL SELECT run, position FROM record_acknowledged
            UNION ALL SELECT run, position FROM record_failed
            UNION ALL SELECT run, position FROM transaction_erred
        )
        SELECT t.run, count(*) FROM reported AS t JOIN since AS s ON s.run = t.run
            AND s.began < t.position GROUP BY t.run
    """,
    violations=f"""
        WITH {_SINCE}, strict AS (
            SELECT run, min(position) AS began FROM only_retriable_errors_expected GROUP BY run
        ), replaced AS (
            SELECT run, min(position) AS began FROM fault_injected
            WHERE fault = '{REQUEST_FAULT}' OR fault LIKE '%{ERROR_ANSWER}%' GROUP BY run
        ), known AS (
            SELECT run, node, incarnation, min(position) AS position FROM node_started
            WHERE release IN {TIMING_OUT} GROUP BY run, node, incarnation
        ), transactional AS (
            SELECT run, client_id, min(position) AS began FROM transaction_begun
            GROUP BY run, client_id
        ), committing AS (
            SELECT run, client_id, min(position) AS began FROM transaction_offset_sent
            GROUP BY run, client_id
        ), overruled AS (
            SELECT b.run, b.transaction, min(f.position) AS began
            FROM transaction_begun AS b JOIN transaction_abort_forced AS f ON f.run = b.run
                AND f.transactional_id = b.transactional_id AND f.producer_id = b.producer_id
                AND f.position > b.position
            GROUP BY b.run, b.transaction
        ), seen AS (
            SELECT run, min(position) AS began FROM node_started GROUP BY run
        ), commits AS (
            SELECT run, transaction, min(position) AS began FROM transaction_end_asked
            WHERE is_commit GROUP BY run, transaction
        ), reported AS (
            SELECT
                r.run, r.node, r.incarnation, r.n, r.position, r.error_code,
                r.error_code IN {FENCED} AS is_provoked,
                concat(r.node, ' answered InitProducerId with error ', r.error_code) AS what
            FROM init_producer_id_refused AS r
            LEFT JOIN known AS k ON k.run = r.run AND k.node = r.node
                AND k.incarnation = r.incarnation AND k.position < r.position
            WHERE r.error_code NOT IN {RETRIED_ERRORS} AND (r.error_code <> {TIMED_OUT}
                OR k.run IS NULL)
            UNION ALL
            SELECT r.run, r.node, r.incarnation, r.n, r.position, r.error_code,
                t.run IS NOT NULL AS is_provoked,
                concat('a record of ', r.client_id, ' failed with error ', r.error_code) AS what
            FROM record_failed AS r
            LEFT JOIN transactional AS t ON t.run = r.run AND t.client_id = r.client_id
                AND t.began < r.position
            WHERE r.error_code NOT IN {RETRIABLE}
            UNION ALL
            SELECT e.run, e.node, e.incarnation, e.n, e.position, e.error_code,
                e.error_code IN {ABORTED}
                    OR (e.error_code IN {OF_MEMBERS} AND c.run IS NOT NULL)
                    OR (e.error_code = {OTHER_RESULT} AND m.run IS NOT NULL
                        AND (a.run IS NOT NULL OR n.run IS NULL)) AS is_provoked,
                concat('a transaction of ', e.client_id, ' failed with error ', e.error_code)
                    AS what
            FROM transaction_erred AS e
            LEFT JOIN committing AS c ON c.run = e.run AND c.client_id = e.client_id
                AND c.began < e.position
            LEFT JOIN overruled AS a ON a.run = e.run AND a.transaction = e.transaction
                AND a.began < e.position
            LEFT JOIN commits AS m ON m.run = e.run AND m.transaction = e.transaction
                AND m.began < e.position
            LEFT JOIN seen AS n ON n.run = e.run AND n.began < e.position
            WHERE e.error_code NOT IN {RETRIABLE}
        ), declared AS (
            SELECT DISTINCT t.run, t.position FROM reported AS t
            JOIN client_errors_checked AS c ON c.run = t.run AND c.position < t.position
            WHERE concat(',', c.provoked_errors, ',') LIKE concat('%,', t.error_code, ',%')
        )
        SELECT
            t.run,
            concat(t.node, '.', t.incarnation, '.', t.n) AS key,
            concat(t.what, ', which no retry heals') AS message,
            t.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM reported AS t
        JOIN since AS s ON s.run = t.run AND s.began < t.position
        LEFT JOIN strict AS o ON o.run = t.run AND o.began < t.position
        LEFT JOIN replaced AS f ON f.run = t.run AND f.began < t.position
        LEFT JOIN declared AS d ON d.run = t.run AND d.position = t.position
        WHERE f.run IS NULL AND d.run IS NULL AND (o.run IS NOT NULL OR NOT t.is_provoked)
    """,
)

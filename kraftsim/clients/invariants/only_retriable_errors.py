"""During an upgrade or migration clients receive only retriable errors, apart from known exceptions
of a release.

A producer retries InitProducerId when a coordinator is loading, moves, or is busy with the previous
transaction; any other error ends it. Releases 3.0 to 3.3.1 return REQUEST_TIMED_OUT when a
producer-id block does not arrive in time: the report mentions that, but it is no violation. An
error that fails a record or a transaction must be retriable.
Source: KIP-730, KAFKA-14417,
org.apache.kafka.clients.producer.internals.TransactionManager.InitProducerIdHandler,
RetriableException.
"""

from typing import Final

from kraftsim.clients.events import RecordAcknowledged, RecordFailed
from kraftsim.clients.events_transactions import TransactionErred
from kraftsim.events.event import Event
from kraftsim.events.runs import OnlyRetriableErrorsExpected
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.producer_ids.events import InitProducerIdRefused, ProducerIdReturned
from kraftsim.server.events import NodeStarted

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


class NothingFatal:
    """Checks the errors of brokers and clients, from when the scenario requires that they are
    retriable.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._is_expected = False
        self._timing_out: set[tuple[str, int]] = set()
        """Incarnations of the release lines that time out; for membership only, never iterated."""

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an error or result that a client received."""
        match event:
            case NodeStarted(release=release):
                if release in TIMING_OUT:
                    self._timing_out.add((envelope.node, envelope.incarnation))
                return None
            case OnlyRetriableErrorsExpected():
                self._is_expected = True
                return None
        if not self._is_expected:
            return None
        self._findings.examined += 1
        match event:
            case InitProducerIdRefused(error_code=code):
                is_harmless = code in RETRIED_ERRORS or (
                    code == TIMED_OUT and (envelope.node, envelope.incarnation) in self._timing_out
                )
                what = f"{envelope.node} answered InitProducerId with error {code}"
            case RecordFailed(error_code=code, client_id=client_id):
                is_harmless, what = (
                    code in RETRIABLE,
                    f"a record of {client_id} failed with error {code}",
                )
            case TransactionErred(error_code=code, client_id=client_id):
                is_harmless, what = (
                    code in RETRIABLE,
                    f"a transaction of {client_id} failed with error {code}",
                )
            case _:
                return None
        if is_harmless:
            return None
        return self._findings.violation(
            envelope.event_id, f"{what}, which no retry heals", envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    decides_without_nodes=True,
    rule="In scenarios that require it, clients receive only retriable errors, apart from known "
    "exceptions of a release.",
    source="KIP-730, KAFKA-14417",
    watches=(
        OnlyRetriableErrorsExpected,
        NodeStarted,
        InitProducerIdRefused,
        ProducerIdReturned,
        RecordAcknowledged,
        RecordFailed,
        TransactionErred,
    ),
    check=NothingFatal,
    examined="""
        WITH since AS (SELECT run, min(position) AS began FROM only_retriable_errors_expected
            GROUP BY run), reported AS (
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
        WITH since AS (SELECT run, min(position) AS began FROM only_retriable_errors_expected
            GROUP BY run), known AS (
            SELECT run, node, incarnation, min(position) AS position FROM node_started
            WHERE release IN {TIMING_OUT} GROUP BY run, node, incarnation
        ), reported AS (
            SELECT
                r.run, r.node, r.incarnation, r.n, r.position,
                concat(r.node, ' answered InitProducerId with error ', r.error_code) AS what
            FROM init_producer_id_refused AS r
            LEFT JOIN known AS k ON k.run = r.run AND k.node = r.node
                AND k.incarnation = r.incarnation AND k.position < r.position
            WHERE r.error_code NOT IN {RETRIED_ERRORS} AND (r.error_code <> {TIMED_OUT}
                OR k.run IS NULL)
            UNION ALL
            SELECT run, node, incarnation, n, position, concat('a record of ', client_id,
                ' failed with error ', error_code) AS what
            FROM record_failed WHERE error_code NOT IN {RETRIABLE}
            UNION ALL
            SELECT run, node, incarnation, n, position, concat('a transaction of ', client_id,
                ' failed with error ', error_code) AS what
            FROM transaction_erred WHERE error_code NOT IN {RETRIABLE}
        )
        SELECT
            t.run,
            concat(t.node, '.', t.incarnation, '.', t.n) AS key,
            concat(t.what, ', which no retry heals') AS message,
            t.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM reported AS t JOIN since AS s ON s.run = t.run AND s.began < t.position
    """,
)

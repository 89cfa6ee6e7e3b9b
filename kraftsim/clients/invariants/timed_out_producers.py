"""A producer whose transaction has timed out learns that from the epoch, and may abort.

The coordinator aborts such a transaction and fences its producer: what the producer sends next
returns INVALID_PRODUCER_EPOCH or PRODUCER_FENCED. INVALID_TXN_STATE means that an application has
made a mistake, and frameworks such as Kafka Streams stop at it. A commit is an exception: with
transaction.version 2 the coordinator's own abort costs one epoch, as the end of a transaction does,
so that the commit looks like a retry with the other result (transactions/8.2 of the conformance
suite; Apache Kafka 4.0.2, 4.1.2 and 4.4.0 agree).
Source: KIP-588, KIP-890, KAFKA-19690; org.apache.kafka.common.errors.InvalidTxnStateException.
"""

from typing import Final

from kraftsim.clients.events_transactions import (
    TransactionEndAsked,
    TransactionEnded,
    TransactionErred,
)
from kraftsim.events.event import Event
from kraftsim.events.runs import FencedProducersExpected
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

NAME: Final = "timed-out-producers-fenced-by-epoch"
MISTAKE: Final = 48
"""INVALID_TXN_STATE."""
END_TXN: Final = "END_TXN"


class FencedByEpoch:
    """Checks the errors of transactions from when the scenario lets transactions time out."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._is_expected = False
        self._committed: dict[str, None] = {}
        """Transactions that the application has asked to commit; for membership only."""

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process the end or the error of a transaction."""
        match event:
            case FencedProducersExpected():
                self._is_expected = True
            case TransactionEndAsked(transaction=transaction, is_commit=True):
                self._committed[transaction] = None
            case TransactionErred(error_code=code) if self._is_expected:
                self._findings.examined += 1
                is_late_commit = event.api == END_TXN and event.transaction in self._committed
                if code == MISTAKE and not is_late_commit:
                    return self._findings.violation(
                        envelope.event_id,
                        f"transaction {event.transaction} failed with INVALID_TXN_STATE, though "
                        "its application made no mistake",
                        envelope.event_id,
                    )
            case TransactionEnded() if self._is_expected:
                self._findings.examined += 1
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="In scenarios that let transactions time out, their producers never get "
    "INVALID_TXN_STATE but for a commit.",
    source="KIP-588, KAFKA-19690",
    watches=(FencedProducersExpected, TransactionEndAsked, TransactionErred, TransactionEnded),
    check=FencedByEpoch,
    examined="""
        WITH since AS (SELECT run, min(position) AS began FROM fenced_producers_expected
            GROUP BY run), reported AS (
            SELECT run, position FROM transaction_erred
            UNION ALL SELECT run, position FROM transaction_ended
        )
        SELECT t.run, count(*) FROM reported AS t JOIN since AS s ON s.run = t.run
            AND s.began < t.position GROUP BY t.run
    """,
    violations=f"""
        WITH since AS (SELECT run, min(position) AS began FROM fenced_producers_expected
            GROUP BY run), committed AS (
            SELECT run, transaction, min(position) AS began FROM transaction_end_asked
            WHERE is_commit GROUP BY run, transaction
        )
        SELECT
            t.run,
            concat(t.node, '.', t.incarnation, '.', t.n) AS key,
            concat('transaction ', t.transaction,
                ' failed with INVALID_TXN_STATE, though its application made no mistake')
                AS message,
            t.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM transaction_erred AS t JOIN since AS s ON s.run = t.run AND s.began < t.position
        LEFT JOIN committed AS c ON c.run = t.run AND c.transaction = t.transaction
            AND c.began < t.position AND t.api = '{END_TXN}'
        WHERE t.error_code = {MISTAKE} AND c.run IS NULL
    """,
)

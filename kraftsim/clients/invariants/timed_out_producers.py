"""A producer whose transaction has timed out learns that from the epoch, and may abort.

The coordinator aborts such a transaction and fences its producer: what the producer sends next
returns INVALID_PRODUCER_EPOCH or PRODUCER_FENCED. INVALID_TXN_STATE means that an application has
made a mistake, and frameworks such as Kafka Streams stop at it. The scenarios that expect this
write in a transaction that has timed out, and do not commit it: with transaction.version 2 a commit
returns INVALID_TXN_STATE (see only-retriable-errors).
Source: KIP-588, KAFKA-19690; org.apache.kafka.common.errors.InvalidTxnStateException.
"""

from typing import Final

from kraftsim.clients.events_transactions import TransactionEnded, TransactionErred
from kraftsim.events.event import Event
from kraftsim.events.runs import FencedProducersExpected
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

NAME: Final = "timed-out-producers-fenced-by-epoch"
MISTAKE: Final = 48
"""INVALID_TXN_STATE."""


class FencedByEpoch:
    """Checks the errors of transactions from when the scenario lets transactions time out."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._is_expected = False

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process the end or the error of a transaction."""
        match event:
            case FencedProducersExpected():
                self._is_expected = True
            case TransactionErred(error_code=code) if self._is_expected:
                self._findings.examined += 1
                if code == MISTAKE:
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
    "INVALID_TXN_STATE.",
    source="KIP-588, KAFKA-19690",
    watches=(FencedProducersExpected, TransactionErred, TransactionEnded),
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
            GROUP BY run)
        SELECT
            t.run,
            concat(t.node, '.', t.incarnation, '.', t.n) AS key,
            concat('transaction ', t.transaction,
                ' failed with INVALID_TXN_STATE, though its application made no mistake')
                AS message,
            t.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM transaction_erred AS t JOIN since AS s ON s.run = t.run AND s.began < t.position
        WHERE t.error_code = {MISTAKE}
    """,
)

"""A read_committed consumer returns no record of an aborted transaction, or of one whose commit was
not yet requested.

The transaction of a record is identified by the offset at which the record was acknowledged.
Source: KIP-98; KAFKA-5376, KAFKA-9807.
"""

from kraftsim.clients.events import RecordAcknowledged, RecordRead, RecordSent
from kraftsim.clients.events_transactions import TransactionEndAsked, TransactionEnded
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.transactions.invariants.transactions_atomic import (
    ABORTED,
    ACKNOWLEDGED_IN_TRANSACTIONS,
)

NAME = "read-committed-isolation"
Place = tuple[str, int, int]
"""Topic, partition, offset."""


class CommittedReads:
    """Collects reads and transactions; compares them at the end, because an acknowledgement may
    come after the read.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._latest: dict[tuple[str, str, int, str], str] = {}
        self._transaction_at: dict[Place, dict[str, None]] = {}
        self._reads: dict[Place, tuple[int, str]] = {}
        self._commit_asked: dict[str, int] = {}
        self._aborted: dict[str, str] = {}
        self._position = 0

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a record that was sent, acknowledged or read, or the end of a transaction."""
        self._position += 1
        if isinstance(event, RecordSent):
            self._latest[event.client_id, event.topic, event.partition, event.record_key] = (
                event.transaction
            )
        elif isinstance(event, RecordAcknowledged):
            transaction = self._latest.get(
                (event.client_id, event.topic, event.partition, event.record_key), ""
            )
            if transaction and event.offset >= 0:
                self._transaction_at.setdefault((event.topic, event.partition, event.offset), {})[
                    transaction
                ] = None
        elif isinstance(event, RecordRead) and event.is_read_committed:
            place = (event.topic, event.partition, event.offset)
            self._reads.setdefault(place, (self._position, envelope.event_id))
        elif isinstance(event, TransactionEndAsked) and event.is_commit:
            self._commit_asked.setdefault(event.transaction, self._position)
        elif isinstance(event, TransactionEnded) and event.outcome == ABORTED:
            self._aborted.setdefault(event.transaction, envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict."""
        for place, (position, event_id) in self._reads.items():
            for transaction in self._transaction_at.get(place, {}):
                self._findings.examined += 1
                asked = self._commit_asked.get(transaction)
                topic, partition, offset = place
                where, key = (
                    f"{topic}-{partition}: offset {offset}",
                    f"{transaction}/{topic}/{partition}/{offset}",
                )
                if transaction in self._aborted:
                    self._findings.violation(
                        key,
                        f"{where} was read, and transaction {transaction} was aborted",
                        event_id,
                    )
                elif asked is None or asked > position:
                    self._findings.violation(
                        key,
                        f"{where} was read before transaction {transaction} was to be committed",
                        event_id,
                    )
        return self._findings.verdict()


_READ = f"""
    {ACKNOWLEDGED_IN_TRANSACTIONS}, first_read AS (
        SELECT run, topic, partition, r.offset AS at_offset, min(position) AS position
            FROM record_read AS r
        WHERE is_read_committed GROUP BY run, topic, partition, r.offset
    ), read AS (
        SELECT r.run, r.topic, r.partition, r.at_offset, r.position, a.transaction
            FROM first_read AS r
        JOIN acknowledged AS a ON a.run = r.run AND a.topic = r.topic AND a.partition = r.partition
            AND a.at_offset = r.at_offset
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="A read_committed consumer returns no record of an aborted transaction, or of one whose "
    "commit was not yet requested.",
    source="KIP-98",
    watches=(RecordSent, RecordAcknowledged, RecordRead, TransactionEndAsked, TransactionEnded),
    check=CommittedReads,
    examined=f"WITH {_READ} SELECT run, count(*) FROM read GROUP BY run",
    violations=f"""
        WITH {_READ}, asked AS (
            SELECT run, transaction, min(position) AS position FROM transaction_end_asked
                WHERE is_commit GROUP BY run, transaction
        ), aborted AS (
            SELECT DISTINCT run, transaction FROM transaction_ended WHERE outcome = '{ABORTED}'
        )
        SELECT
            r.run,
            concat(r.transaction, '/', r.topic, '/', r.partition, '/', r.at_offset) AS key,
            concat(
                r.topic, '-', r.partition, ': offset ', r.at_offset,
                CASE WHEN b.transaction IS NOT NULL THEN concat(' was read, and transaction ',
                    r.transaction, ' was aborted')
                ELSE concat(' was read before transaction ', r.transaction,
                    ' was to be committed') END
            ) AS message,
            r.position AS first_witness,
            cast(NULL AS bigint) AS second_witness
        FROM read AS r
        LEFT JOIN asked AS a ON a.run = r.run AND a.transaction = r.transaction
        LEFT JOIN aborted AS b ON b.run = r.run AND b.transaction = r.transaction
        WHERE b.transaction IS NOT NULL OR a.position IS NULL OR a.position > r.position
    """,
)

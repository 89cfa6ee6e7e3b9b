"""A committed transaction is read completely, an aborted one not at all, and one with unknown
outcome completely or not at all.

The records of a transaction are those that were sent within it and acknowledged at an offset. A
read_committed consumer that reached the end of the log determines which are visible.
Source: KIP-98, KIP-890; Jepsen's report on Bufstream 0.1.0 (aborted reads, lost writes, torn
transactions).
"""

from dataclasses import dataclass, field

from kraftsim.clients.events import RecordAcknowledged, RecordRead, RecordSent
from kraftsim.clients.events_transactions import CopyRead, TransactionEnded
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

NAME = "transactions-atomic"
Place = tuple[str, int, int]
"""Topic, partition, offset."""
COMMITTED, ABORTED = "committed", "aborted"


@dataclass(slots=True)
class Sent:
    """What is known of one transaction."""

    places: dict[Place, None] = field(default_factory=dict)
    outcome: str = ""
    ended: str = ""


class Transactions:
    """Collects the records sent in transactions and the records read; compares them at the end of
    the run.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._transactions: dict[str, Sent] = {}
        self._latest: dict[tuple[str, str, int, str], str] = {}
        self._read: dict[str, set[Place]] = {}  # for membership only
        self._through: dict[tuple[str, str], None] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a record that was sent, acknowledged or read, or the end of a transaction."""
        if isinstance(event, RecordSent):
            self._latest[event.client_id, event.topic, event.partition, event.record_key] = (
                event.transaction
            )
        elif isinstance(event, RecordAcknowledged):
            transaction = self._latest.get(
                (event.client_id, event.topic, event.partition, event.record_key), ""
            )
            if transaction and event.offset >= 0:
                self._transactions.setdefault(transaction, Sent()).places[
                    event.topic, event.partition, event.offset
                ] = None
        elif isinstance(event, TransactionEnded):
            sent = self._transactions.setdefault(event.transaction, Sent())
            if not sent.ended:
                sent.outcome, sent.ended = event.outcome, envelope.event_id
        elif isinstance(event, RecordRead) and event.is_read_committed:
            self._read.setdefault(event.client_id, set()).add(
                (event.topic, event.partition, event.offset)
            )
        elif isinstance(event, CopyRead):
            self._through[event.topic, event.client_id] = None
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict."""
        topics = {topic for topic, _ in self._through}
        for transaction, sent in self._transactions.items():
            checked = [place for place in sent.places if place[0] in topics]
            if not checked or not sent.ended:
                continue
            self._findings.examined += 1
            seen = sum(self._is_read(place) for place in checked)
            wanted = {COMMITTED: (len(checked),), ABORTED: (0,)}.get(
                sent.outcome, (0, len(checked))
            )
            if seen not in wanted:
                message = (
                    f"transaction {transaction}: {sent.outcome}, and {seen} of its "
                    f"{len(checked)} acknowledged records are read"
                )
                self._findings.violation(transaction, message, sent.ended)
        return self._findings.verdict()

    def _is_read(self, place: Place) -> bool:
        return any(
            place in self._read.get(client_id, ())
            for topic, client_id in self._through
            if topic == place[0]
        )


ACKNOWLEDGED_IN_TRANSACTIONS = """
    step AS (
        SELECT run, client_id, topic, partition, record_key, position, transaction,
            cast(NULL AS bigint) AS at_offset FROM record_sent
        UNION ALL
        SELECT run, client_id, topic, partition, record_key, position,
            cast(NULL AS string) AS transaction, a.offset AS at_offset
        FROM record_acknowledged AS a
    ), numbered_step AS (
        SELECT *, max(CASE WHEN at_offset IS NULL THEN position END)
            OVER (PARTITION BY run, client_id, topic, partition, record_key
                ORDER BY position ROWS UNBOUNDED PRECEDING) AS sent_position
        FROM step
    ), acknowledged AS (
        SELECT DISTINCT a.run, s.transaction, a.topic, a.partition, a.at_offset
        FROM numbered_step AS a JOIN record_sent AS s ON s.run = a.run
            AND s.position = a.sent_position
        WHERE a.at_offset >= 0 AND s.transaction <> ''
    )
"""
"""The offsets of each transaction's records: an acknowledgement belongs to the record that its
client last sent under that key.
"""

_CHECKED = f"""
    {ACKNOWLEDGED_IN_TRANSACTIONS}, through AS (SELECT DISTINCT run, topic, client_id
        FROM copy_read),
    seen AS (
        SELECT DISTINCT r.run, r.topic, r.partition, r.offset AS at_offset
        FROM record_read AS r JOIN through AS t ON t.run = r.run AND t.topic = r.topic
            AND t.client_id = r.client_id WHERE r.is_read_committed
    ), ended AS (
        SELECT run, transaction, outcome, position, row_number() OVER (PARTITION BY run, transaction
            ORDER BY position) AS place
        FROM transaction_ended
    ), judged AS (
        SELECT a.run, a.transaction, e.outcome, e.position, count(*) AS records,
            count(s.at_offset) AS seen
        FROM acknowledged AS a
        JOIN ended AS e ON e.run = a.run AND e.transaction = a.transaction AND e.place = 1
        LEFT JOIN seen AS s ON s.run = a.run AND s.topic = a.topic AND s.partition = a.partition
            AND s.at_offset = a.at_offset
        WHERE EXISTS (SELECT 1 FROM through AS t WHERE t.run = a.run AND t.topic = a.topic)
        GROUP BY a.run, a.transaction, e.outcome, e.position
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="A committed transaction is read completely, an aborted one not at all, and any other "
    "completely or not at all.",
    source="KIP-98, KIP-890",
    watches=(RecordSent, RecordAcknowledged, TransactionEnded, RecordRead, CopyRead),
    check=Transactions,
    examined=f"WITH {_CHECKED} SELECT run, count(*) FROM judged GROUP BY run",
    violations=f"""
        WITH {_CHECKED}
        SELECT
            run,
            transaction AS key,
            concat('transaction ', transaction, ': ', outcome, ', and ', seen, ' of its ', records,
                ' acknowledged records are read') AS message,
            position AS first_witness,
            cast(NULL AS bigint) AS second_witness
        FROM judged
        WHERE CASE outcome WHEN '{COMMITTED}' THEN seen < records WHEN '{ABORTED}' THEN seen > 0
            ELSE seen > 0 AND seen < records END
    """,
)

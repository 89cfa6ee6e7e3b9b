"""A producer that asks to have its epoch bumped gets the next epoch, also if it asks several times.

The epochs of a producer id are 32767; each that is spent without need brings the end of the id
nearer, and fences the producer that has a smaller one. A retry, because the answer to the first
request is lost, gets the epoch that the first one has made. A transaction that the coordinator
aborts between the requests may bump the epoch once more.
Source: KIP-360, KIP-588; TransactionMetadata.prepareIncrementProducerEpoch.
"""

from typing import Final, TypeAlias

from kraftsim.clients.events_transactions import InitProducerIdSent, TransactionalIdTaken
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.transactions.events import TransactionAbortForced

NAME: Final = "epoch-bumped-once-per-request"

Owner: TypeAlias = tuple[str, str]
"""Client, transactional id."""
Identity: TypeAlias = tuple[int, int]
"""Producer id and epoch."""


class BumpedOnce:
    """Compares the epoch that a producer gets with the one that it asked to bump."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._now = 0
        self._sent: dict[Owner, tuple[Identity, str]] = {}
        self._first_at: dict[tuple[Owner, Identity], int] = {}
        self._forced_at: dict[str, int] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a request, an answer, or an abort."""
        self._now += 1
        match event:
            case TransactionAbortForced(transactional_id=transactional_id):
                self._forced_at[transactional_id] = self._now
            case InitProducerIdSent():
                owner = (event.client_id, event.transactional_id)
                identity = (event.producer_id, event.producer_epoch)
                self._sent[owner] = identity, envelope.event_id
                self._first_at.setdefault((owner, identity), self._now)
            case TransactionalIdTaken():
                return self._check(event, envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _check(self, event: TransactionalIdTaken, event_id: str) -> Violation | None:
        owner = (event.client_id, event.transactional_id)
        identity, sent = self._sent.get(owner, ((-1, -1), ""))
        if identity[0] < 0 or identity[0] != event.producer_id:
            return None
        self._findings.examined += 1
        if (
            event.producer_epoch <= identity[1] + 1
            or self._forced_at.get(event.transactional_id, 0) > self._first_at[owner, identity]
        ):
            return None
        return self._findings.violation(
            event_id,
            f"{event.client_id} asked to bump epoch {identity[1]} of {event.transactional_id}, and "
            f"got epoch {event.producer_epoch}",
            sent,
            event_id,
        )


_ANSWERED = """
    answered AS (
        SELECT t.run, t.position, max(s.position) AS sent_at
        FROM transactional_id_taken AS t JOIN init_producer_id_sent AS s
            ON s.run = t.run AND s.client_id = t.client_id
            AND s.transactional_id = t.transactional_id AND s.position < t.position
        GROUP BY t.run, t.position
    ), bumped AS (
        SELECT t.*, s.producer_epoch AS asked_epoch, a.sent_at
        FROM answered AS a
        JOIN transactional_id_taken AS t ON t.run = a.run AND t.position = a.position
        JOIN init_producer_id_sent AS s ON s.run = a.run AND s.position = a.sent_at
        WHERE s.producer_id >= 0 AND s.producer_id = t.producer_id
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="A producer that asks to bump its epoch gets the next one; a retry gets the same.",
    source="KIP-360",
    watches=(InitProducerIdSent, TransactionalIdTaken, TransactionAbortForced),
    check=BumpedOnce,
    examined=f"WITH {_ANSWERED} SELECT run, count(*) FROM bumped GROUP BY run",
    violations=f"""
        WITH {_ANSWERED}, suspect AS (
            SELECT * FROM bumped WHERE producer_epoch > asked_epoch + 1
        ), asked AS (
            SELECT b.run, b.position, min(s.position) AS first_at
            FROM suspect AS b JOIN init_producer_id_sent AS s ON s.run = b.run
                AND s.client_id = b.client_id AND s.transactional_id = b.transactional_id
                AND s.producer_id = b.producer_id AND s.producer_epoch = b.asked_epoch
            GROUP BY b.run, b.position
        ), aborted AS (
            SELECT DISTINCT b.run, b.position
            FROM suspect AS b JOIN asked AS f ON f.run = b.run AND f.position = b.position
            JOIN transaction_abort_forced AS a ON a.run = b.run
                AND a.transactional_id = b.transactional_id
                AND a.position > f.first_at AND a.position < b.position
        )
        SELECT
            b.run,
            concat(b.node, '.', b.incarnation, '.', b.n) AS key,
            concat(b.client_id, ' asked to bump epoch ', b.asked_epoch, ' of ', b.transactional_id,
                ', and got epoch ', b.producer_epoch) AS message,
            b.sent_at AS first_witness,
            b.position AS second_witness
        FROM suspect AS b LEFT JOIN aborted AS a ON a.run = b.run AND a.position = b.position
        WHERE a.run IS NULL
    """,
)

"""The producer that owns a transactional id is never fenced by its own retry.

Only another producer of the id and a time-out may fence it. An answer that is lost, a retry, a
failover of the coordinator in between: none of them changes who owns the id, so that an application
that is fenced may conclude that another instance has replaced it, and stops.

What the releases up to 4.4 do, and what is therefore no violation:
- The last epoch is in no record of `__transaction_state`. A second request to bump the epoch of one
  identity (KIP-360), after a coordinator has loaded its transactional ids since the first one, is
  fenced (KAFKA-20310, KAFKA-20357).
- A request without an identity takes the id for its sender whenever it is processed. One that was
  sent twice, or whose bytes arrived late, fences the producer that the other one initialised.
Source: KIP-360, KIP-588, KAFKA-20310; TransactionMetadata.prepareIncrementProducerEpoch.
"""

from typing import Final

from kraftsim.clients.events_transactions import (
    InitProducerIdSent,
    TransactionalIdTaken,
    TransactionEnded,
    TransactionErred,
)
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.producer_ids.events import InitProducerIdRefused, ProducerIdReturned
from kraftsim.transactions.events import TransactionAbortForced, TransactionsLoaded

NAME: Final = "rightful-owner-not-fenced"
FENCING: Final = (47, 90)
"""INVALID_PRODUCER_EPOCH, PRODUCER_FENCED."""
NO_PRODUCER: Final = -1
TWICE: Final = 2

Owner = tuple[str, str]
"""Transactional id, client."""


class _Owned:
    """What one client has done with a transactional id; times are numbers of events."""

    def __init__(self, asked_at: int) -> None:
        self.asked_at = asked_at
        self.taken_at = 0
        self.sent_count = self.fresh_count = self.answer_count = 0
        self.bumps: dict[tuple[int, int], tuple[int, int]] = {}
        """Identity -> requests to bump its epoch, and the time of the first one."""
        self.taken_by = ""
        """The event in which the id was first taken."""


class OwnersNotFenced:
    """Looks for a cause of each fencing error of a producer that has taken its transactional id."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._now = 0
        self._owners: dict[Owner, _Owned] = {}
        self._active: dict[str, dict[str, int]] = {}
        """Transactional id -> client -> when it, or an answer to it, was last seen."""
        self._forced_at: dict[str, int] = {}
        self._loaded_at = 0

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a request, its answer, a cause, or an error."""
        self._now += 1
        match event:
            case TransactionEnded(client_id=client_id, transactional_id=transactional_id):
                self._findings.examined += (transactional_id, client_id) in self._owners
            case TransactionErred():
                return self._check(event, envelope.event_id)
            case InitProducerIdSent():
                self._sent(event)
            case TransactionalIdTaken(client_id=client_id, transactional_id=transactional_id):
                self._see(transactional_id, client_id)
                owned = self._owners.get((transactional_id, client_id))
                if owned is not None and not owned.taken_at:
                    owned.taken_at, owned.taken_by = self._now, envelope.event_id
            case ProducerIdReturned() | InitProducerIdRefused():
                if event.transactional_id is not None and event.client_id is not None:
                    self._see(event.transactional_id, event.client_id)
                    owned = self._owners.get((event.transactional_id, event.client_id))
                    if owned is not None and isinstance(event, ProducerIdReturned):
                        owned.answer_count += 1
            case TransactionAbortForced(transactional_id=transactional_id):
                self._forced_at[transactional_id] = self._now
            case TransactionsLoaded():
                self._loaded_at = self._now
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _see(self, transactional_id: str, client_id: str) -> None:
        self._active.setdefault(transactional_id, {})[client_id] = self._now

    def _sent(self, event: InitProducerIdSent) -> None:
        self._see(event.transactional_id, event.client_id)
        owned = self._owners.setdefault(
            (event.transactional_id, event.client_id), _Owned(self._now)
        )
        owned.sent_count += 1
        if event.producer_id == NO_PRODUCER:
            owned.fresh_count += 1
            return
        identity = (event.producer_id, event.producer_epoch)
        count, first_at = owned.bumps.get(identity, (0, self._now))
        owned.bumps[identity] = count + 1, first_at

    def _check(self, event: TransactionErred, event_id: str) -> Violation | None:
        owned = self._owners.get((event.transactional_id, event.client_id))
        if owned is None:
            return None
        self._findings.examined += 1
        if event.error_code not in FENCING or not owned.taken_at or self._has_cause(event, owned):
            return None
        return self._findings.violation(
            event_id,
            f"{event.client_id} owns {event.transactional_id} and got error {event.error_code}, "
            "though no other producer took it and nothing timed out",
            owned.taken_by,
            event_id,
        )

    def _has_cause(self, event: TransactionErred, owned: _Owned) -> bool:
        rivals = self._active[event.transactional_id].items()
        return (
            any(name != event.client_id and at > owned.asked_at for name, at in rivals)
            or self._forced_at.get(event.transactional_id, 0) > owned.taken_at
            or owned.fresh_count >= TWICE
            or owned.answer_count > owned.sent_count
            or any(
                count >= TWICE and first_at < self._loaded_at
                for count, first_at in owned.bumps.values()
            )
        )


_CAUSES = f"""
    sent AS (SELECT * FROM init_producer_id_sent),
    owned AS (
        SELECT run, transactional_id, client_id, min(position) AS asked_at FROM sent
        GROUP BY run, transactional_id, client_id
    ), taken AS (
        SELECT t.run, t.transactional_id, t.client_id, min(t.position) AS taken_at
        FROM transactional_id_taken AS t
        JOIN owned AS o ON o.run = t.run AND o.transactional_id = t.transactional_id
            AND o.client_id = t.client_id AND o.asked_at < t.position
        GROUP BY t.run, t.transactional_id, t.client_id
    ), active AS (
        SELECT run, transactional_id, client_id, position FROM sent
        UNION ALL
        SELECT run, transactional_id, client_id, position FROM transactional_id_taken
        UNION ALL
        SELECT run, transactional_id, client_id, position FROM producer_id_returned
        UNION ALL
        SELECT run, transactional_id, client_id, position FROM init_producer_id_refused
    ), fenced AS (
        SELECT e.run, e.transactional_id, e.client_id, e.error_code, e.node, e.incarnation, e.n,
            e.position, o.asked_at, t.taken_at
        FROM transaction_erred AS e
        JOIN owned AS o ON o.run = e.run AND o.transactional_id = e.transactional_id
            AND o.client_id = e.client_id AND o.asked_at < e.position
        JOIN taken AS t ON t.run = e.run AND t.transactional_id = e.transactional_id
            AND t.client_id = e.client_id AND t.taken_at < e.position
        WHERE e.error_code IN {FENCING}
    ), rival AS (
        SELECT DISTINCT f.run, f.position FROM fenced AS f
        JOIN active AS a ON a.run = f.run AND a.transactional_id = f.transactional_id
        WHERE a.client_id <> f.client_id AND a.position > f.asked_at AND a.position < f.position
    ), forced AS (
        SELECT DISTINCT f.run, f.position FROM fenced AS f
        JOIN transaction_abort_forced AS a ON a.run = f.run
            AND a.transactional_id = f.transactional_id
        WHERE a.position > f.taken_at AND a.position < f.position
    ), request AS (
        SELECT f.run, f.position,
            count(*) AS sent_count,
            sum(CASE WHEN s.producer_id = {NO_PRODUCER} THEN 1 ELSE 0 END) AS fresh_count
        FROM fenced AS f
        JOIN sent AS s ON s.run = f.run AND s.transactional_id = f.transactional_id
            AND s.client_id = f.client_id
        WHERE s.position < f.position GROUP BY f.run, f.position
    ), answer AS (
        SELECT f.run, f.position, count(*) AS answer_count FROM fenced AS f
        JOIN producer_id_returned AS r ON r.run = f.run
            AND r.transactional_id = f.transactional_id AND r.client_id = f.client_id
        WHERE r.position > f.asked_at AND r.position < f.position GROUP BY f.run, f.position
    ), bumped AS (
        SELECT f.run, f.position, s.producer_id, s.producer_epoch,
            min(s.position) AS first_at
        FROM fenced AS f
        JOIN sent AS s ON s.run = f.run AND s.transactional_id = f.transactional_id
            AND s.client_id = f.client_id
        WHERE s.position < f.position AND s.producer_id <> {NO_PRODUCER}
        GROUP BY f.run, f.position, s.producer_id, s.producer_epoch HAVING count(*) >= {TWICE}
    ), forgotten AS (
        SELECT DISTINCT b.run, b.position FROM bumped AS b
        JOIN transactions_loaded AS l ON l.run = b.run
        WHERE l.position > b.first_at AND l.position < b.position
    )
"""

INVARIANT = Invariant(
    name=NAME,
    ends_run=False,
    rule="A producer that has taken its transactional id is fenced only after another producer "
    "used the id or its transaction timed out; not by a retry of its own, apart from what releases "
    "up to 4.4 do after a failover.",
    source="KIP-360, KAFKA-20310",
    watches=(
        InitProducerIdSent,
        TransactionalIdTaken,
        TransactionErred,
        TransactionEnded,
        ProducerIdReturned,
        InitProducerIdRefused,
        TransactionAbortForced,
        TransactionsLoaded,
    ),
    check=OwnersNotFenced,
    examined=f"""
        WITH {_CAUSES}, reported AS (
            SELECT run, transactional_id, client_id, position FROM transaction_ended
            UNION ALL
            SELECT run, transactional_id, client_id, position FROM transaction_erred
        )
        SELECT r.run, count(*) FROM reported AS r
        JOIN owned AS o ON o.run = r.run AND o.transactional_id = r.transactional_id
            AND o.client_id = r.client_id AND o.asked_at < r.position
        GROUP BY r.run
    """,
    violations=f"""
        WITH {_CAUSES}
        SELECT
            f.run,
            concat(f.node, '.', f.incarnation, '.', f.n) AS key,
            concat(f.client_id, ' owns ', f.transactional_id, ' and got error ', f.error_code,
                ', though no other producer took it and nothing timed out') AS message,
            f.taken_at AS first_witness,
            f.position AS second_witness
        FROM fenced AS f
        LEFT JOIN rival AS r ON r.run = f.run AND r.position = f.position
        LEFT JOIN forced AS x ON x.run = f.run AND x.position = f.position
        LEFT JOIN request AS q ON q.run = f.run AND q.position = f.position
        LEFT JOIN answer AS a ON a.run = f.run AND a.position = f.position
        LEFT JOIN forgotten AS g ON g.run = f.run AND g.position = f.position
        WHERE r.run IS NULL AND x.run IS NULL AND g.run IS NULL AND q.fresh_count < {TWICE}
            AND coalesce(a.answer_count, 0) <= q.sent_count
    """,
)

"""Producer ids and their blocks are spent with a cause, one by one.

Ids are never given back: a broker that skips some, or asks for blocks that it does not need, or a
coordinator that takes a new id for a transactional id that has one, wastes them for the life of the
cluster. A block of which the response is lost, and the rest of the block of a broker that stops,
are lost by KIP-730's design.
Source: KIP-730, KIP-360; org.apache.kafka.coordinator.transaction.RPCProducerIdManager,
TransactionCoordinator.handleInitProducerId.
"""

from typing import Final, TypeAlias

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.producer_ids.events import (
    ProducerIdBlockReceived,
    ProducerIdBlockRequested,
    ProducerIdReturned,
    ProducerIdSpent,
)
from kraftsim.transactions.events import (
    TransactionalIdExpired,
    TransactionLoaded,
    TransactionsLoaded,
    TransactionStateChanged,
    TransactionsUnloaded,
)

IN_ORDER: Final = "producer-ids-not-skipped"
WITH_NEED: Final = "producer-id-blocks-requested-with-need"
WITH_CAUSE: Final = "producer-ids-taken-with-cause"
EXHAUSTED: Final = "exhausted epoch"
NEW: Final = "new transactional id"
LAST_GIVEN_EPOCH: Final = 32766
"""From this epoch on a producer gets another id (TransactionMetadata.isEpochExhausted)."""

Process: TypeAlias = tuple[str, int]
"""Node, incarnation."""


def _taken_id(event: Event) -> int | None:
    """Return the id that an event says was taken from a block."""
    if isinstance(event, ProducerIdSpent):
        return event.producer_id
    if isinstance(event, ProducerIdReturned) and event.fresh and event.transactional_id is None:
        return event.producer_id
    return None


class IdsInOrder:
    """A broker takes the ids of a block one after the other, and the next block when the former one
    is used up.
    """

    def __init__(self) -> None:
        self._findings = Findings(IN_ORDER)
        self._firsts: dict[Process, set[int]] = {}  # for membership only
        self._nexts: dict[Process, set[int]] = {}  # for membership only
        self._last: dict[Process, tuple[int, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a block, or an id that is taken."""
        process = (envelope.node, envelope.incarnation)
        if isinstance(event, ProducerIdBlockReceived):
            self._firsts.setdefault(process, set()).add(event.first_producer_id)
            self._nexts.setdefault(process, set()).add(event.next_producer_id)
            return None
        producer_id = _taken_id(event)
        if producer_id is None or process not in self._firsts:
            return None
        self._findings.examined += 1
        before = self._last.get(process)
        self._last[process] = producer_id, envelope.event_id
        begins_block = producer_id in self._firsts[process]
        if before is None:
            if begins_block:
                return None
            return self._findings.violation(
                envelope.event_id,
                f"{envelope.node} took producer id {producer_id} first, with which no block begins",
                envelope.event_id,
            )
        if producer_id == before[0] + 1 or (begins_block and before[0] + 1 in self._nexts[process]):
            return None
        return self._findings.violation(
            envelope.event_id,
            f"{envelope.node} took producer id {producer_id} after {before[0]}",
            before[1],
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_TAKEN = """
    taken AS (
        SELECT run, node, incarnation, n, position, producer_id FROM producer_id_spent
        UNION ALL
        SELECT run, node, incarnation, n, position, producer_id FROM producer_id_returned
        WHERE fresh AND transactional_id IS NULL
    )
"""
_ORDERED = f"""
    {_TAKEN}, since AS (
        SELECT run, node, incarnation, min(position) AS since_at FROM producer_id_block_received
        GROUP BY run, node, incarnation
    ), ordered AS (
        SELECT t.*,
            lag(t.producer_id) OVER (PARTITION BY t.run, t.node, t.incarnation
                ORDER BY t.position) AS id_before,
            lag(t.position) OVER (PARTITION BY t.run, t.node, t.incarnation
                ORDER BY t.position) AS position_before
        FROM taken AS t JOIN since AS s ON s.run = t.run AND s.node = t.node
            AND s.incarnation = t.incarnation AND s.since_at < t.position
    )
"""

PRODUCER_IDS_NOT_SKIPPED = Invariant(
    name=IN_ORDER,
    rule="A broker takes each id of a block of producer ids in turn, and the next block when the "
    "former one is used up.",
    source="KIP-730",
    watches=(ProducerIdBlockReceived, ProducerIdReturned, ProducerIdSpent),
    check=IdsInOrder,
    examined=f"WITH {_ORDERED} SELECT run, count(*) FROM ordered GROUP BY run",
    violations=f"""
        WITH {_ORDERED}, suspect AS (
            SELECT * FROM ordered WHERE id_before IS NULL OR producer_id <> id_before + 1
        ), begun AS (
            SELECT DISTINCT s.run, s.position FROM suspect AS s
            JOIN producer_id_block_received AS b ON b.run = s.run AND b.node = s.node
                AND b.incarnation = s.incarnation AND b.position < s.position
                AND b.first_producer_id = s.producer_id
        ), used_up AS (
            SELECT DISTINCT s.run, s.position FROM suspect AS s
            JOIN producer_id_block_received AS b ON b.run = s.run AND b.node = s.node
                AND b.incarnation = s.incarnation AND b.position < s.position
                AND b.next_producer_id = s.id_before + 1
        )
        SELECT
            s.run,
            concat(s.node, '.', s.incarnation, '.', s.n) AS key,
            CASE WHEN s.id_before IS NULL
                THEN concat(s.node, ' took producer id ', s.producer_id,
                    ' first, with which no block begins')
                ELSE concat(s.node, ' took producer id ', s.producer_id, ' after ', s.id_before)
            END AS message,
            coalesce(s.position_before, s.position) AS first_witness,
            CASE WHEN s.position_before IS NOT NULL THEN s.position END AS second_witness
        FROM suspect AS s
        LEFT JOIN begun AS b ON b.run = s.run AND b.position = s.position
        LEFT JOIN used_up AS u ON u.run = s.run AND u.position = s.position
        WHERE b.run IS NULL OR (s.id_before IS NOT NULL AND u.run IS NULL)
    """,
)


class BlocksNeeded:
    """A broker asks for a block only once it has taken an id of the last one that it received.

    Releases ask at 90 % of a block, or at its end; KIP-730 also allows its beginning. 90 % of a
    block of one id is its beginning, too. The request is sent before the client of the id that
    causes it is answered: the request names that id.
    """

    def __init__(self) -> None:
        self._findings = Findings(WITH_NEED)
        self._unused: dict[Process, tuple[int, int, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a request, a block, or an id that is taken."""
        process = (envelope.node, envelope.incarnation)
        if isinstance(event, ProducerIdBlockReceived):
            self._unused[process] = (
                event.first_producer_id,
                event.next_producer_id,
                envelope.event_id,
            )
            return None
        unused = self._unused.get(process)
        if not isinstance(event, ProducerIdBlockRequested):
            producer_id = _taken_id(event)
            if (
                unused is not None
                and producer_id is not None
                and unused[0] <= producer_id < unused[1]
            ):
                del self._unused[process]
            return None
        self._findings.examined += 1
        if (
            unused is None
            or unused[0] == unused[1]
            or unused[0] <= event.last_producer_id < unused[1]
        ):
            return None
        return self._findings.violation(
            envelope.event_id,
            f"{envelope.node} asked for another block of producer ids, and has taken none of "
            f"{unused[0]}..{unused[1] - 1}",
            unused[2],
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


PRODUCER_ID_BLOCKS_REQUESTED_WITH_NEED = Invariant(
    name=WITH_NEED,
    rule="A broker asks for another block of producer ids only once it has taken an id of the last "
    "one that it received.",
    source="KIP-730",
    watches=(
        ProducerIdBlockRequested,
        ProducerIdBlockReceived,
        ProducerIdReturned,
        ProducerIdSpent,
    ),
    check=BlocksNeeded,
    examined="SELECT run, count(*) FROM producer_id_block_requested GROUP BY run",
    violations=f"""
        WITH {_TAKEN}, held AS (
            SELECT r.run, r.node, r.incarnation, r.n, r.position, r.last_producer_id,
                max(b.position) AS received_at
            FROM producer_id_block_requested AS r JOIN producer_id_block_received AS b
                ON b.run = r.run AND b.node = r.node AND b.incarnation = r.incarnation
                AND b.position < r.position
            GROUP BY r.run, r.node, r.incarnation, r.n, r.position, r.last_producer_id
        ), used AS (
            SELECT DISTINCT h.run, h.position FROM held AS h
            JOIN producer_id_block_received AS b ON b.run = h.run AND b.position = h.received_at
            JOIN taken AS t ON t.run = h.run AND t.node = h.node AND t.incarnation = h.incarnation
                AND t.position > h.received_at AND t.position < h.position
                AND t.producer_id >= b.first_producer_id AND t.producer_id < b.next_producer_id
        )
        SELECT
            h.run,
            concat(h.node, '.', h.incarnation, '.', h.n) AS key,
            concat(h.node, ' asked for another block of producer ids, and has taken none of ',
                b.first_producer_id, '..', b.next_producer_id - 1) AS message,
            h.received_at AS first_witness,
            h.position AS second_witness
        FROM held AS h
        JOIN producer_id_block_received AS b ON b.run = h.run AND b.position = h.received_at
        LEFT JOIN used AS u ON u.run = h.run AND u.position = h.position
        WHERE u.run IS NULL AND b.first_producer_id < b.next_producer_id
            AND NOT (h.last_producer_id >= b.first_producer_id
                AND h.last_producer_id < b.next_producer_id)
    """,
)


class IdsWithCause:
    """A coordinator takes an id for a transactional id that it does not know, or whose producer has
    no epoch left.

    Two requests for a new transactional id may both take one: what is not written yet is not known.
    """

    def __init__(self) -> None:
        self._findings = Findings(WITH_CAUSE)
        self._known: dict[Process, dict[str, tuple[int, int, int, str]]] = {}
        """Transactional id -> partition, coordinator epoch, producer epoch, event."""

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a state of a transactional id, its end, or an id that is taken."""
        known = self._known.setdefault((envelope.node, envelope.incarnation), {})
        match event:
            case TransactionStateChanged() | TransactionLoaded():
                known[event.transactional_id] = (
                    event.partition,
                    event.coordinator_epoch,
                    event.producer_epoch,
                    envelope.event_id,
                )
            case TransactionalIdExpired(transactional_id=transactional_id):
                known.pop(transactional_id, None)
            case TransactionsUnloaded() | TransactionsLoaded():
                is_load = isinstance(event, TransactionsLoaded)
                for name in [
                    name
                    for name, (partition, epoch, _, _) in known.items()
                    if partition == event.partition
                    and not (is_load and epoch >= event.coordinator_epoch)
                ]:
                    del known[name]
            case ProducerIdSpent(transactional_id=str() as transactional_id):
                self._findings.examined += 1
                return self._check(event, known.get(transactional_id), envelope)
        return None

    def _check(
        self, event: ProducerIdSpent, state: tuple[int, int, int, str] | None, envelope: Envelope
    ) -> Violation | None:
        if state is None or (event.reason == EXHAUSTED and state[2] >= LAST_GIVEN_EPOCH):
            return None
        return self._findings.violation(
            envelope.event_id,
            f"{envelope.node} took producer id {event.producer_id} for {event.transactional_id} "
            f"({event.reason}), whose producer has epoch {state[2]}",
            state[3],
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


PRODUCER_IDS_TAKEN_WITH_CAUSE = Invariant(
    name=WITH_CAUSE,
    rule="A transaction coordinator takes a producer id only for a transactional id that it does "
    "not know, or whose producer has no epoch left.",
    source="KIP-98, KIP-360",
    watches=(
        ProducerIdSpent,
        TransactionStateChanged,
        TransactionLoaded,
        TransactionalIdExpired,
        TransactionsLoaded,
        TransactionsUnloaded,
    ),
    check=IdsWithCause,
    examined="SELECT run, count(*) FROM producer_id_spent WHERE transactional_id IS NOT NULL "
    "GROUP BY run",
    violations=f"""
        WITH state AS (
            SELECT run, node, incarnation, transactional_id, partition, coordinator_epoch,
                producer_epoch, position, false AS is_over FROM transaction_state_changed
            UNION ALL
            SELECT run, node, incarnation, transactional_id, partition, coordinator_epoch,
                producer_epoch, position, false AS is_over FROM transaction_loaded
            UNION ALL
            SELECT run, node, incarnation, transactional_id, partition, coordinator_epoch,
                producer_epoch, position, true AS is_over FROM transactional_id_expired
        ), last_state AS (
            SELECT e.run, e.position, max(s.position) AS state_at
            FROM producer_id_spent AS e JOIN state AS s
                ON s.run = e.run AND s.node = e.node AND s.incarnation = e.incarnation
                AND s.transactional_id = e.transactional_id AND s.position < e.position
            GROUP BY e.run, e.position
        ), cleared AS (
            SELECT run, node, incarnation, partition, position,
                CAST(NULL AS BIGINT) AS from_epoch FROM transactions_unloaded
            UNION ALL
            SELECT run, node, incarnation, partition, position, coordinator_epoch AS from_epoch
            FROM transactions_loaded
        ), gone AS (
            SELECT DISTINCT l.run, l.position
            FROM last_state AS l JOIN state AS s ON s.run = l.run AND s.position = l.state_at
            JOIN cleared AS c ON c.run = s.run AND c.node = s.node
                AND c.incarnation = s.incarnation AND c.partition = s.partition
                AND c.position > s.position AND c.position < l.position
                AND (c.from_epoch IS NULL OR s.coordinator_epoch < c.from_epoch)
        )
        SELECT
            e.run,
            concat(e.node, '.', e.incarnation, '.', e.n) AS key,
            concat(e.node, ' took producer id ', e.producer_id, ' for ', e.transactional_id, ' (',
                e.reason, '), whose producer has epoch ', s.producer_epoch) AS message,
            s.position AS first_witness,
            e.position AS second_witness
        FROM last_state AS l
        JOIN producer_id_spent AS e ON e.run = l.run AND e.position = l.position
        JOIN state AS s ON s.run = l.run AND s.position = l.state_at
        LEFT JOIN gone AS g ON g.run = l.run AND g.position = l.position
        WHERE NOT s.is_over AND g.run IS NULL
            AND NOT (e.reason = '{EXHAUSTED}' AND s.producer_epoch >= {LAST_GIVEN_EPOCH})
    """,
)

INVARIANTS = (
    PRODUCER_IDS_NOT_SKIPPED,
    PRODUCER_ID_BLOCKS_REQUESTED_WITH_NEED,
    PRODUCER_IDS_TAKEN_WITH_CAUSE,
)

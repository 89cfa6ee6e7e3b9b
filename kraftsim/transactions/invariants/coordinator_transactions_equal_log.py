"""A transaction coordinator's state for a transactional id equals the last record of that id in
`__transaction_state`.

This holds after each load, after each change, and when the cluster is idle. A committed record is
in the log of every later coordinator. A record that was observed as committed is therefore a lower
bound for what the same or a later coordinator epoch may load; loading an older record, or none, is
a violation. A record whose commit its coordinator did not observe, or that it gave up, may or may
not be in the log: that is known once a coordinator loads it.
Source: KIP-98; TransactionStateManager.{loadTransactionMetadata, appendTransactionToLog};
KAFKA-5600 (the same bug in group coordinators).
"""

from typing import NamedTuple

from kraftsim.events.event import Event
from kraftsim.events.runs import Settled
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import FinalTransaction
from kraftsim.transactions.events import (
    TransactionalIdExpired,
    TransactionChangeGivenUp,
    TransactionLoaded,
    TransactionsLoaded,
    TransactionStateChanged,
)
from kraftsim.transactions.invariants.no_hanging_transactions import TRANSACTIONS

NAME = "coordinator-transactions-equal-log"
NAMES = {
    -1: "Forgotten",
    0: "Empty",
    1: "Ongoing",
    2: "PrepareCommit",
    3: "PrepareAbort",
    4: "CompleteCommit",
    5: "CompleteAbort",
}
"""Status in a record -> name of the coordinator's state."""
FORGOTTEN = "Forgotten"
Id = tuple[int, str]
"""Partition of `__transaction_state`, transactional id."""
Load = tuple[str, int, int, int]
"""Node, incarnation, partition, coordinator epoch."""


class Belief(NamedTuple):
    """A coordinator's state for a transactional id, and the offset of its record."""

    coordinator_epoch: int
    offset: int
    content: str
    is_loaded: bool
    event_id: str
    number: int
    """Sequence number over all reported states."""


def content_of(
    state: str, event: TransactionStateChanged | TransactionLoaded | FinalTransaction
) -> str:
    """Return the part of a record that is compared."""
    return (
        FORGOTTEN
        if state == FORGOTTEN
        else f"{state} of {event.producer_id} epoch {event.producer_epoch} in [{event.partitions}]"
    )


class Beliefs:
    """Compares each load with the records committed before it, and everything with the final logs
    at the end of the run.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._reported: dict[Id, list[Belief]] = {}
        self._committed: dict[Id, dict[int, Belief]] = {}
        """The last record of each id, by coordinator epoch."""
        self._last_offsets: dict[int, dict[int, int]] = {}
        """By partition, of all ids together, by coordinator epoch."""
        self._given_up: dict[tuple[int, str, int], None] = {}
        self._loaded: dict[Load, dict[str, None]] = {}
        self._records: dict[Id, dict[int, list[tuple[str, str]]]] = {}
        self._is_quiet = False

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a coordinator's report, or a record of a final log."""
        match event:
            case TransactionStateChanged():
                self._report(event, event.offset, content_of(event.state, event), envelope)
            case TransactionalIdExpired():
                self._report(event, event.offset, FORGOTTEN, envelope)
            case TransactionLoaded():
                return self._check_loaded(envelope, event)
            case TransactionsLoaded():
                return self._check_missing(envelope, event)
            case TransactionChangeGivenUp():
                self._given_up[event.partition, event.transactional_id, event.offset] = None
            case FinalTransaction():
                offsets = self._records.setdefault((event.partition, event.transactional_id), {})
                offsets.setdefault(event.offset, []).append(
                    (content_of(NAMES[event.status], event), envelope.event_id)
                )
            case Settled():
                self._is_quiet = self._is_quiet or event.what == TRANSACTIONS
            case _:
                pass
        return None

    def _report(
        self,
        event: TransactionStateChanged | TransactionalIdExpired | TransactionLoaded,
        offset: int,
        content: str,
        envelope: Envelope,
        *,
        is_loaded: bool = False,
    ) -> None:
        self._findings.examined += 1
        belief = Belief(
            event.coordinator_epoch,
            offset,
            content,
            is_loaded,
            envelope.event_id,
            self._findings.examined,
        )
        of = (event.partition, event.transactional_id)
        self._reported.setdefault(of, []).append(belief)
        if not is_loaded:
            of_id, of_all = (
                self._committed.setdefault(of, {}),
                self._last_offsets.setdefault(event.partition, {}),
            )
            if (
                belief.coordinator_epoch not in of_id
                or of_id[belief.coordinator_epoch].offset <= offset
            ):
                of_id[belief.coordinator_epoch] = belief
            of_all[belief.coordinator_epoch] = max(
                offset, of_all.get(belief.coordinator_epoch, offset)
            )

    def _latest(self, of: Id, coordinator_epoch: int) -> Belief | None:
        """Return the last record of an id that was observed as committed in a coordinator epoch or
        an earlier one.
        """
        seen = [
            each
            for epoch, each in self._committed.get(of, {}).items()
            if epoch <= coordinator_epoch
        ]
        return max(seen, key=lambda each: (each.offset, each.number), default=None)

    def _check_loaded(self, envelope: Envelope, event: TransactionLoaded) -> Violation | None:
        load = (envelope.node, envelope.incarnation, event.partition, event.coordinator_epoch)
        self._loaded.setdefault(load, {})[event.transactional_id] = None
        content = content_of(event.state, event)
        self._report(event, event.record_offset, content, envelope, is_loaded=True)
        latest = self._latest((event.partition, event.transactional_id), event.coordinator_epoch)
        if (
            latest is None
            or latest.offset < event.record_offset
            or (latest.offset, latest.content) == (event.record_offset, content)
        ):
            return None
        message = (
            f"transactional id {event.transactional_id}: epoch {event.coordinator_epoch} loaded "
            f"{content} from offset {event.record_offset}, and {latest.content} is committed at "
            f"offset {latest.offset}"
        )
        return self._findings.violation(
            f"{event.transactional_id}/{event.coordinator_epoch}",
            message,
            latest.event_id,
            envelope.event_id,
        )

    def _check_missing(self, envelope: Envelope, event: TransactionsLoaded) -> Violation | None:
        loaded = self._loaded.pop(
            (envelope.node, envelope.incarnation, event.partition, event.coordinator_epoch), {}
        )
        first = None
        for of in self._committed:
            if of[0] != event.partition or of[1] in loaded:
                continue
            latest = self._latest(of, event.coordinator_epoch)
            if (
                latest is not None
                and latest.content != FORGOTTEN
                and latest.offset < event.next_offset
            ):
                message = (
                    f"transactional id {of[1]}: epoch {event.coordinator_epoch} loaded nothing, "
                    f"and {latest.content} is committed at offset {latest.offset}"
                )
                key = f"{of[1]}/{event.coordinator_epoch}/unknown"
                first = (
                    self._findings.violation(key, message, latest.event_id, envelope.event_id)
                    or first
                )
        return first

    def finish(self) -> Verdict:
        """Compare with the logs, and return the verdict."""
        for of, beliefs in self._reported.items():
            for belief in beliefs:
                if belief.is_loaded and not self._is_committed(of[0], belief):
                    continue
                found = self._records.get(of, {}).get(belief.offset, [])
                if found and all(content != belief.content for content, _ in found):
                    content, event_id = found[0]
                    message = (
                        f"transactional id {of[1]}: {belief.content} was believed, and the "
                        f"record at offset {belief.offset} says {content}"
                    )
                    self._findings.violation(
                        f"{of[1]}@{belief.offset}", message, belief.event_id, event_id
                    )
        for of, records in self._records.items() if self._is_quiet else ():
            last = max(records)
            is_known = any(belief.offset == last for belief in self._reported.get(of, ()))
            if not is_known and (*of, last) not in self._given_up:
                content, event_id = records[last][0]
                message = (
                    f"transactional id {of[1]}: no coordinator knows of {content}, as the last "
                    f"record says, at offset {last}"
                )
                self._findings.violation(f"{of[1]}@{last}", message, event_id)
        return self._findings.verdict()

    def _is_committed(self, partition: int, loaded: Belief) -> bool:
        """Return whether the coordinator that loaded a record, or an earlier one, observed it or a
        later record as committed.
        """
        last_offsets = self._last_offsets.get(partition, {})
        return any(
            epoch <= loaded.coordinator_epoch and offset >= loaded.offset
            for epoch, offset in last_offsets.items()
        )


def _content(state: str) -> str:
    return (
        f"concat({state}, ' of ', producer_id, ' epoch ', producer_epoch, ' in [', partitions, ']')"
    )


_STATE = (
    f"CASE status {' '.join(f'WHEN {number} THEN {name!r}' for number, name in NAMES.items())} END"
)
_SAME_ID = "c.run = l.run AND c.partition = l.partition AND c.transactional_id = l.transactional_id"
_COMMITTED = f"""
    committed AS (
        SELECT run, partition, transactional_id, coordinator_epoch, t.offset AS at_offset,
            {_content("state")} AS content, position
        FROM transaction_state_changed AS t
        UNION ALL
        SELECT run, partition, transactional_id, coordinator_epoch, t.offset, '{FORGOTTEN}',
            position FROM transactional_id_expired AS t
    ), loaded AS (
        SELECT run, node, incarnation, partition, transactional_id, coordinator_epoch,
            record_offset, {_content("state")} AS content, position
        FROM transaction_loaded
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="A transaction coordinator's state, after loading and at any time, equals the last "
    "record of the id in its log.",
    source="KIP-98",
    watches=(
        TransactionStateChanged,
        TransactionalIdExpired,
        TransactionChangeGivenUp,
        TransactionLoaded,
        TransactionsLoaded,
        FinalTransaction,
        Settled,
    ),
    check=Beliefs,
    examined="""
        SELECT run, count(*) FROM (
            SELECT run FROM transaction_state_changed
            UNION ALL SELECT run FROM transactional_id_expired
            UNION ALL SELECT run FROM transaction_loaded
        ) AS reported GROUP BY run
    """,
    violations=f"""
        WITH {_COMMITTED}, before_load AS (
            SELECT l.*, c.at_offset, c.content AS committed_content,
                c.position AS committed_position,
                row_number() OVER (PARTITION BY l.run, l.position ORDER BY c.at_offset DESC,
                    c.position DESC) AS place
            FROM loaded AS l
            JOIN committed AS c ON {_SAME_ID} AND c.coordinator_epoch <= l.coordinator_epoch
                AND c.position < l.position
        ), stale AS (
            SELECT *, row_number() OVER (PARTITION BY run, transactional_id, coordinator_epoch
                ORDER BY position) AS number FROM before_load
            WHERE place = 1 AND (at_offset > record_offset OR (at_offset = record_offset
                AND content <> committed_content))
        ), before_loads AS (
            SELECT l.run, l.node, l.incarnation, l.partition, l.coordinator_epoch, l.next_offset,
                l.position, c.transactional_id, c.at_offset,
                c.content AS committed_content, c.position AS committed_position,
                row_number() OVER (PARTITION BY l.run, l.position, c.transactional_id
                    ORDER BY c.at_offset DESC, c.position DESC) AS place
            FROM transactions_loaded AS l
            JOIN committed AS c
                ON c.run = l.run AND c.partition = l.partition
                    AND c.coordinator_epoch <= l.coordinator_epoch AND c.position < l.position
        ), missing AS (
            SELECT b.*, row_number() OVER (PARTITION BY b.run, b.transactional_id,
                b.coordinator_epoch ORDER BY b.position) AS number
            FROM before_loads AS b
            LEFT JOIN loaded AS l
                ON l.run = b.run AND l.node = b.node AND l.incarnation = b.incarnation
                    AND l.partition = b.partition
                AND l.coordinator_epoch = b.coordinator_epoch
                    AND l.transactional_id = b.transactional_id AND l.position < b.position
            WHERE b.place = 1 AND l.run IS NULL AND b.committed_content <> '{FORGOTTEN}'
                AND b.at_offset < b.next_offset
        ), seen AS (
            SELECT run, partition, coordinator_epoch, max(at_offset) AS last_offset FROM committed
                GROUP BY run, partition, coordinator_epoch
        ), reported AS (
            SELECT run, partition, transactional_id, at_offset, content, position FROM committed
            UNION
            SELECT l.run, l.partition, l.transactional_id, l.record_offset, l.content, l.position
                FROM loaded AS l
            JOIN seen AS s
                ON s.run = l.run AND s.partition = l.partition
                    AND s.coordinator_epoch <= l.coordinator_epoch
                    AND s.last_offset >= l.record_offset
        ), record AS (
            SELECT run, partition, transactional_id, f.offset AS at_offset, position,
                CASE status WHEN -1 THEN '{FORGOTTEN}' ELSE {_content(_STATE)} END AS content
            FROM final_transaction AS f
        ), compared AS (
            SELECT t.run, t.transactional_id, t.at_offset, t.content, t.position,
                r.content AS record_content, r.position AS record_position,
                max(CASE WHEN r.content = t.content THEN 1 ELSE 0 END) OVER (PARTITION BY t.run,
                    t.position) AS agrees
            FROM reported AS t
            JOIN record AS r
                ON r.run = t.run AND r.partition = t.partition
                    AND r.transactional_id = t.transactional_id AND r.at_offset = t.at_offset
        ), differing AS (
            SELECT *, row_number() OVER (PARTITION BY run, transactional_id, at_offset
                ORDER BY position, record_position) AS first_number
            FROM compared WHERE agrees = 0
        ), last_record AS (
            SELECT *, row_number() OVER (PARTITION BY run, partition, transactional_id
                ORDER BY at_offset DESC, position) AS place FROM record AS b
            WHERE EXISTS (SELECT 1 FROM settled AS q WHERE q.run = b.run
                AND q.what = '{TRANSACTIONS}')
        ), known AS (
            SELECT run, partition, transactional_id, at_offset FROM committed
            UNION SELECT run, partition, transactional_id, record_offset FROM loaded
            UNION SELECT run, partition, transactional_id, g.offset
                FROM transaction_change_given_up AS g
        ), unheard AS (
            SELECT r.*, row_number() OVER (PARTITION BY r.run, r.transactional_id, r.at_offset
                ORDER BY r.position) AS number FROM last_record AS r
            LEFT JOIN known AS k
                ON k.run = r.run AND k.partition = r.partition
                    AND k.transactional_id = r.transactional_id AND k.at_offset = r.at_offset
            WHERE r.place = 1 AND k.run IS NULL
        )
        SELECT
            run,
            concat(transactional_id, '/', coordinator_epoch) AS key,
            concat('transactional id ', transactional_id, ': epoch ', coordinator_epoch, ' loaded ',
                content, ' from offset ', record_offset,
                ', and ', committed_content, ' is committed at offset ', at_offset) AS message,
            committed_position AS first_witness,
            position AS second_witness
        FROM stale WHERE number = 1
        UNION ALL
        SELECT
            run,
            concat(transactional_id, '/', coordinator_epoch, '/unknown'),
            concat('transactional id ', transactional_id, ': epoch ', coordinator_epoch,
                ' loaded nothing, and ', committed_content,
                ' is committed at offset ', at_offset),
            committed_position,
            position
        FROM missing WHERE number = 1
        UNION ALL
        SELECT
            run,
            concat(transactional_id, '@', at_offset),
            concat('transactional id ', transactional_id, ': ', content,
                ' was believed, and the record at offset ', at_offset, ' says ',
                record_content),
            position,
            record_position
        FROM differing WHERE first_number = 1
        UNION ALL
        SELECT
            run,
            concat(transactional_id, '@', at_offset),
            concat('transactional id ', transactional_id, ': no coordinator knows of ', content,
                ', as the last record says, at offset ', at_offset),
            position,
            cast(NULL AS bigint)
        FROM unheard WHERE number = 1
    """,
)

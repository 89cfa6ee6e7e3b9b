"""A database and a topic that take part in a two-phase commit have the same transactions.

The database decides. So no marker commits a prepared transaction before the database has, and none
aborts what the database has committed; a transaction that waits for its decision has no time-out;
and in the end the keys of all rows are those of all records. Markers have the epoch after that of
the records (transaction.version 2).
Source: KIP-939, KIP-890.
"""

from typing import Final

from kraftsim.clients.events_transactions import (
    DatabaseCommitted,
    DatabaseCompared,
    TransactionFound,
    TransactionPrepared,
)
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events_transactions import MarkerAppended
from kraftsim.transactions.events import TransactionAbortForced

AGREE: Final = "database-and-topic-agree"
FOLLOW: Final = "markers-follow-the-database"
NO_TIMEOUT: Final = "participants-never-time-out"


class Agree:
    """Reads the result of each audit."""

    def __init__(self) -> None:
        self._findings = Findings(AGREE)

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an audit."""
        assert isinstance(event, DatabaseCompared)
        self._findings.examined += event.key_count
        if not event.only_in_database and not event.only_in_topic:
            return None
        return self._findings.violation(
            envelope.event_id,
            f"{event.topic}: only in the database: {event.only_in_database}; only in the topic: "
            f"{event.only_in_topic}",
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


DATABASE_AND_TOPIC_AGREE = Invariant(
    name=AGREE,
    rule="The records of a topic that takes part in a two-phase commit are those that the database "
    "has committed.",
    source="KIP-939",
    watches=(DatabaseCompared,),
    check=Agree,
    examined="SELECT run, CAST(sum(key_count) AS BIGINT) FROM database_compared GROUP BY run "
    "HAVING sum(key_count) > 0",
    violations="""
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(topic, ': only in the database: ', only_in_database, '; only in the topic: ',
                only_in_topic) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM database_compared WHERE only_in_database <> '' OR only_in_topic <> ''
    """,
)

Identity = tuple[int, int]
"""Producer id and epoch of a prepared transaction."""


class DecisionsFollow:
    """Compares the markers of prepared transactions with the decisions of the database."""

    def __init__(self) -> None:
        self._findings = Findings(FOLLOW)
        self._prepared: dict[Identity, str] = {}
        self._decided: set[Identity] = set()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a preparation, a decision, or a marker."""
        match event:
            case TransactionPrepared():
                identity = (event.producer_id, event.producer_epoch)
                self._prepared[identity] = envelope.event_id
            case DatabaseCommitted():
                self._decided.add((event.producer_id, event.producer_epoch))
            case MarkerAppended(on_leader=True):
                return self._check(envelope, event)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _check(self, envelope: Envelope, event: MarkerAppended) -> Violation | None:
        identity = (event.producer_id, event.producer_epoch - 1)
        prepared_at = self._prepared.get(identity)
        if prepared_at is None:
            return None
        self._findings.examined += 1
        if event.is_commit == (identity in self._decided):
            return None
        verb = "committed" if event.is_commit else "aborted"
        return self._findings.violation(
            envelope.event_id,
            f"{event.topic}-{event.partition}: the transaction of {identity[0]}/{identity[1]} is "
            f"{verb} against the database",
            prepared_at,
            envelope.event_id,
        )


_MARKERS: Final = """
        prepared AS (
            SELECT run, producer_id, producer_epoch, max(position) AS position
            FROM transaction_prepared GROUP BY run, producer_id, producer_epoch
        ),
        decided AS (
            SELECT run, producer_id, producer_epoch, min(position) AS position
            FROM database_committed GROUP BY run, producer_id, producer_epoch
        ),
        marked AS (
            SELECT m.run, m.node, m.incarnation, m.n, m.topic, m.partition, m.is_commit,
                m.position, p.producer_id, p.producer_epoch, p.position AS prepared_at,
                d.position AS decided_at
            FROM marker_appended AS m
            JOIN prepared AS p ON p.run = m.run AND p.producer_id = m.producer_id
                AND p.producer_epoch = m.producer_epoch - 1 AND p.position < m.position
            LEFT JOIN decided AS d ON d.run = m.run AND d.producer_id = p.producer_id
                AND d.producer_epoch = p.producer_epoch AND d.position < m.position
            WHERE m.on_leader
        )
"""
MARKERS_FOLLOW = Invariant(
    name=FOLLOW,
    rule="A prepared transaction is committed in the log only if the database has committed it "
    "before, and aborted only if it has not.",
    source="KIP-939",
    watches=(TransactionPrepared, DatabaseCommitted, MarkerAppended),
    check=DecisionsFollow,
    examined=f"WITH {_MARKERS} SELECT run, count(*) FROM marked GROUP BY run",
    violations=f"""
        WITH {_MARKERS}
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(topic, '-', partition, ': the transaction of ', producer_id, '/',
                producer_epoch, ' is ', CASE WHEN is_commit THEN 'committed' ELSE 'aborted' END,
                ' against the database') AS message,
            prepared_at AS first_witness,
            position AS second_witness
        FROM marked WHERE is_commit <> (decided_at IS NOT NULL)
    """,
)


class NeverTimeOut:
    """Looks for time-outs of the transactions of participants."""

    def __init__(self) -> None:
        self._findings = Findings(NO_TIMEOUT)
        self._participants: dict[str, str] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a participant that has started, or an abort of a coordinator."""
        match event:
            case TransactionFound():
                self._findings.examined += 1
                self._participants.setdefault(event.transactional_id, envelope.event_id)
            case TransactionAbortForced(reason="timeout", transactional_id=name):
                if name in self._participants:
                    return self._findings.violation(
                        envelope.event_id,
                        f"the transaction of {name} has timed out, though it takes part in a "
                        "two-phase commit",
                        self._participants[name],
                        envelope.event_id,
                    )
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


PARTICIPANTS_NEVER_TIME_OUT = Invariant(
    name=NO_TIMEOUT,
    rule="No coordinator aborts the transaction of a participant of a two-phase commit because of "
    "its age.",
    source="KIP-939",
    watches=(TransactionFound, TransactionAbortForced),
    check=NeverTimeOut,
    examined="SELECT run, count(*) FROM transaction_found GROUP BY run",
    violations="""
        WITH participants AS (
            SELECT run, transactional_id, min(position) AS position
            FROM transaction_found GROUP BY run, transactional_id
        )
        SELECT
            a.run,
            concat(a.node, '.', a.incarnation, '.', a.n) AS key,
            concat('the transaction of ', a.transactional_id,
                ' has timed out, though it takes part in a two-phase commit') AS message,
            p.position AS first_witness,
            a.position AS second_witness
        FROM transaction_abort_forced AS a
        JOIN participants AS p ON p.run = a.run AND p.transactional_id = a.transactional_id
            AND p.position < a.position
        WHERE a.reason = 'timeout'
    """,
)

INVARIANTS = (DATABASE_AND_TOPIC_AGREE, MARKERS_FOLLOW, PARTICIPANTS_NEVER_TIME_OUT)

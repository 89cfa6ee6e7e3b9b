"""No final log contains a record more often than a client sent it.

A batch may hold other records than the one before it and have another sequence, so
one-append-per-sequence does not find such duplicates; a consumer of the log does. Records are
identified by key, in each replica's log. A client that gave up on a record and sends it again has
sent it twice.
Source: KIP-98; Jepsen's "duplicate" (jepsen.tests.kafka).
"""

from kraftsim.clients.events import RecordSent
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import FinalRecord

NAME = "records-in-final-log-once"
Record = tuple[str, int, str]
"""Topic, partition, key."""


class OftenAsSent:
    """Counts the records that clients sent and that the final logs contain; compares them at the
    end of the run.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._sent: dict[Record, int] = {}
        self._found: dict[tuple[Record, str], list[str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a record that was sent, or a record of a final log."""
        if isinstance(event, RecordSent):
            record = (event.topic, event.partition, event.record_key)
            self._sent[record] = self._sent.get(record, 0) + 1
        elif isinstance(event, FinalRecord):
            found = ((event.topic, event.partition, event.record_key), event.broker)
            self._found.setdefault(found, []).append(envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict."""
        for ((topic, partition, record_key), broker), events in self._found.items():
            sent = self._sent.get((topic, partition, record_key), 0)
            self._findings.examined += len(events) if sent else 0
            if 0 < sent < len(events):
                message = (
                    f"{topic}-{partition}: record {record_key} was sent {sent} times and is in "
                    f"the final log {len(events)} times"
                )
                self._findings.violation(
                    f"{broker}/{topic}/{partition}/{record_key}", message, events[0], events[-1]
                )
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="No final log contains a record more often than a client sent it.",
    source="KIP-98",
    watches=(RecordSent, FinalRecord),
    check=OftenAsSent,
    examined="""
        SELECT f.run, count(*) FROM final_record AS f
        WHERE EXISTS (
            SELECT 1 FROM record_sent AS s WHERE s.run = f.run AND s.topic = f.topic
                AND s.partition = f.partition AND s.record_key = f.record_key
        ) GROUP BY f.run
    """,
    violations="""
        WITH sent AS (
            SELECT run, topic, partition, record_key, count(*) AS times FROM record_sent
                GROUP BY run, topic, partition, record_key
        ), found AS (
            SELECT run, broker, topic, partition, record_key, count(*) AS times,
                min(position) AS first_position, max(position) AS last_position
            FROM final_record GROUP BY run, broker, topic, partition, record_key HAVING count(*) > 1
        )
        SELECT
            found.run,
            concat(found.broker, '/', found.topic, '/', found.partition, '/',
                found.record_key) AS key,
            concat(
                found.topic, '-', found.partition, ': record ', found.record_key, ' was sent ',
                    sent.times, ' times and is in the final log ',
                found.times, ' times'
            ) AS message,
            found.first_position AS first_witness,
            found.last_position AS second_witness
        FROM found JOIN sent
            ON found.run = sent.run AND found.topic = sent.topic
                AND found.partition = sent.partition AND found.record_key = sent.record_key
        WHERE found.times > sent.times
    """,
)

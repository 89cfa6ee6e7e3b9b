"""Each input record of a consume-transform-produce app has exactly one record in the committed
output, with the same key.

Checked with a read_committed consumer that reached the end of the output topic after all work was
done; before that, missing records may still arrive.
Source: KIP-98, KIP-447; org.apache.kafka.tools.TransactionalMessageCopier and its system test.
"""

from kraftsim.clients.events import RecordAcknowledged, RecordRead
from kraftsim.clients.events_transactions import CopyExpected, CopyRead
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

NAME = "each-input-processed-once"
Place = tuple[int, int]
"""Partition and offset."""


class OutputsOnce:
    """Collects input records and the output records that were read; compares them at the end of the
    run.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._expected: dict[tuple[str, str], None] = {}
        self._inputs: dict[str, dict[str, str]] = {}
        self._read: dict[tuple[str, str, str], dict[Place, str]] = {}
        self._through: dict[tuple[str, str], str] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an input record, an output record that was read, or the end of a reader."""
        if isinstance(event, CopyExpected):
            self._expected[event.input_topic, event.output_topic] = None
        elif isinstance(event, RecordAcknowledged):
            self._inputs.setdefault(event.topic, {}).setdefault(event.record_key, envelope.event_id)
        elif isinstance(event, RecordRead) and event.is_read_committed:
            places = self._read.setdefault((event.client_id, event.topic, event.record_key), {})
            places.setdefault((event.partition, event.offset), envelope.event_id)
        elif isinstance(event, CopyRead):
            self._through.setdefault((event.topic, event.client_id), envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict."""
        unread = sorted(
            {
                output
                for _, output in self._expected
                if not any(topic == output for topic, _ in self._through)
            }
        )
        for input_topic, output_topic in self._expected:
            readers = [
                (client_id, event_id)
                for (topic, client_id), event_id in self._through.items()
                if topic == output_topic
            ]
            for record_key, acknowledged in (
                self._inputs.get(input_topic, {}).items() if readers else ()
            ):
                self._findings.examined += 1
                for client_id, through in readers:
                    self._check(output_topic, client_id, record_key, acknowledged, through)
        return self._findings.verdict(f"no consumer has read all of {unread[0]}" if unread else "")

    def _check(
        self, topic: str, client_id: str, record_key: str, acknowledged: str, through: str
    ) -> None:
        found = list(self._read.get((client_id, topic, record_key), {}).values())
        if len(found) == 1:
            return
        message = f"{topic}: {client_id} has read {len(found)} copies of record {record_key}"
        witnesses = (found[0], found[-1]) if found else (acknowledged, through)
        self._findings.violation(f"{topic}/{client_id}/{record_key}", message, *witnesses)


_INPUTS = """
    expected AS (SELECT DISTINCT run, input_topic, output_topic FROM copy_expected),
    through AS (SELECT run, topic, client_id, min(position) AS position FROM copy_read GROUP BY run,
        topic, client_id),
    input AS (
        SELECT e.run, e.output_topic, a.record_key, min(a.position) AS position
        FROM expected AS e JOIN record_acknowledged AS a ON a.run = e.run
            AND a.topic = e.input_topic
        WHERE EXISTS (SELECT 1 FROM through AS t WHERE t.run = e.run AND t.topic = e.output_topic)
        GROUP BY e.run, e.output_topic, e.input_topic, a.record_key
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="Each record of the input has exactly one record in the committed output.",
    source="KIP-98, KIP-447",
    watches=(CopyExpected, RecordAcknowledged, RecordRead, CopyRead),
    check=OutputsOnce,
    examined=f"WITH {_INPUTS} SELECT run, count(*) FROM input GROUP BY run",
    undecidable="""
        SELECT e.run, concat('no consumer has read all of ', min(e.output_topic)) AS reason
            FROM copy_expected AS e
        WHERE NOT EXISTS (SELECT 1 FROM copy_read AS t WHERE t.run = e.run
            AND t.topic = e.output_topic) GROUP BY e.run
    """,
    violations=f"""
        WITH {_INPUTS}, place AS (
            SELECT run, client_id, topic, record_key, partition, r.offset, min(position) AS position
                FROM record_read AS r
            WHERE is_read_committed GROUP BY run, client_id, topic, record_key, partition, r.offset
        ), judged AS (
            SELECT
                i.run, i.output_topic, t.client_id, i.record_key, count(p.position) AS copies,
                min(p.position) AS first_position, max(p.position) AS last_position,
                    min(i.position) AS acknowledged, min(t.position) AS through
            FROM input AS i
            JOIN through AS t ON t.run = i.run AND t.topic = i.output_topic
            LEFT JOIN place AS p
                ON p.run = i.run AND p.topic = i.output_topic AND p.client_id = t.client_id
                    AND p.record_key = i.record_key
            GROUP BY i.run, i.output_topic, t.client_id, i.record_key
        )
        SELECT
            run,
            concat(output_topic, '/', client_id, '/', record_key) AS key,
            concat(output_topic, ': ', client_id, ' has read ', copies, ' copies of record ',
                record_key) AS message,
            CASE WHEN copies = 0 THEN acknowledged ELSE first_position END AS first_witness,
            CASE WHEN copies = 0 THEN through ELSE last_position END AS second_witness
        FROM judged WHERE copies <> 1
    """,
)

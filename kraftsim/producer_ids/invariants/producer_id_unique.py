"""No two InitProducerId responses return the same fresh producer id.

Producer state distinguishes producers by this number only. With one id for two producers, the
records of one would be treated as duplicates of the other's.
Source: KIP-98, KIP-730.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.producer_ids.events import ProducerIdReturned

NAME = "producer-id-unique"


class OnceEach:
    """Tracks the first response that returned each fresh id."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._first_answer: dict[int, str] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an InitProducerId response."""
        assert isinstance(event, ProducerIdReturned)
        if not event.fresh:
            return None
        self._findings.examined += 1
        first = self._first_answer.setdefault(event.producer_id, envelope.event_id)
        if first == envelope.event_id:
            return None
        message = f"producer id {event.producer_id} was handed out more than once"
        return self._findings.violation(str(event.producer_id), message, first, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="No two InitProducerId responses return the same fresh producer id.",
    source="KIP-98, KIP-730",
    watches=(ProducerIdReturned,),
    check=OnceEach,
    examined="SELECT run, count(*) FROM producer_id_returned WHERE fresh GROUP BY run",
    violations="""
        WITH repeated AS (
            SELECT run, producer_id FROM producer_id_returned WHERE fresh GROUP BY run, producer_id
                HAVING count(*) > 1
        ), numbered AS (
            SELECT /*+ BROADCAST(repeated) */
                answer.run, answer.producer_id, answer.position,
                row_number() OVER (PARTITION BY answer.run, answer.producer_id
                    ORDER BY answer.position) AS place
            FROM producer_id_returned AS answer JOIN repeated ON answer.run = repeated.run
                AND answer.producer_id = repeated.producer_id
            WHERE answer.fresh
        )
        SELECT
            run,
            concat('', producer_id) AS key,
            concat('producer id ', producer_id, ' was handed out more than once') AS message,
            min(position) AS first_witness,
            max(position) AS second_witness
        FROM numbered WHERE place <= 2 GROUP BY run, producer_id
    """,
)

"""A follower that starts after a remote segment has the same producer state there as its leader, if
its setting promises that.

The follower may become leader: it would append a retried batch of an unknown producer again.
Source: KIP-405 (auxiliary state), KAFKA-15195.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.tiered_storage.events import ProducerStateCompared

NAME = "rebuilt-producer-state-equal"


class Compared:
    """Keeps the first digest for each offset."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._first: dict[tuple[str, int, int], tuple[str, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process the producer state of one replica at an offset."""
        assert isinstance(event, ProducerStateCompared)
        if not event.promised:
            return None
        self._findings.examined += 1
        place = (event.topic, event.partition, event.next_offset)
        digest, first_event_id = self._first.setdefault(place, (event.digest, envelope.event_id))
        if digest == event.digest:
            return None
        message = (
            f"{event.topic}-{event.partition}: before offset {event.next_offset} one replica "
            f"knows producers {digest}, another {event.digest}"
        )
        return self._findings.violation(
            "/".join(map(str, place)), message, first_event_id, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_PLACE = "run, topic, partition, next_offset"

INVARIANT = Invariant(
    name=NAME,
    rule="A follower that starts after a remote segment has the same producer state there as its "
    "leader.",
    source="KIP-405",
    watches=(ProducerStateCompared,),
    ends_run=False,
    check=Compared,
    examined="SELECT run, count(*) FROM producer_state_compared WHERE promised GROUP BY run",
    violations=f"""
        WITH reported AS (
            SELECT
                {_PLACE}, digest, position,
                first_value(digest) OVER (PARTITION BY {_PLACE} ORDER BY position) AS first_digest,
                first_value(position) OVER (PARTITION BY {_PLACE}
                    ORDER BY position) AS first_position
            FROM producer_state_compared WHERE promised
        ), numbered AS (
            SELECT *, row_number() OVER (PARTITION BY {_PLACE} ORDER BY position) AS place
                FROM reported WHERE digest <> first_digest
        )
        SELECT
            run,
            concat(topic, '/', partition, '/', next_offset) AS key,
            concat(
                topic, '-', partition, ': before offset ', next_offset,
                    ' one replica knows producers ', first_digest, ', another ', digest
            ) AS message,
            first_position AS first_witness,
            position AS second_witness
        FROM numbered WHERE place = 1
    """,
)

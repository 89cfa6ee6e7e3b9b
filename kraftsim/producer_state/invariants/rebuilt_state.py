"""Producer state that is read back equals what was lost: a snapshot covers the log below its
offset, and the records after it give the rest.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import ProducerSnapshotTaken
from kraftsim.tiered_storage.events import ProducerStateCompared


class Compared:
    """A follower that starts after a remote segment has the same producer state there as its
    leader, if its setting promises that.

    The follower may become leader: it would append a retried batch of an unknown producer again.

    Keeps the first digest for each offset.

    Source: KIP-405 (auxiliary state), KAFKA-15195.
    """

    def __init__(self) -> None:
        self._findings = Findings("rebuilt-producer-state-equal")
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

REBUILT_PRODUCER_STATE_EQUAL = Invariant(
    name="rebuilt-producer-state-equal",
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


class KnowsNothingLater:
    """A producer snapshot contains no batch at or above its own offset.

    A replica that loads a snapshot replays the log from that offset. It would treat a batch that
    never reached the log as appended: a retry of that batch would be acknowledged and lost.

    Checks each snapshot independently.

    Source: KAFKA-6683; org.apache.kafka.storage.internals.log.ProducerStateManager.takeSnapshot.
    """

    def __init__(self) -> None:
        self._findings = Findings("producer-snapshot-below-its-offset")

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a snapshot."""
        assert isinstance(event, ProducerSnapshotTaken)
        self._findings.examined += 1
        if event.last_offset < event.next_offset:
            return None
        message = (
            f"{event.topic}-{event.partition}: the producer snapshot of {envelope.node} at "
            f"offset {event.next_offset} knows of a batch at {event.last_offset}"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


PRODUCER_SNAPSHOT_BELOW_ITS_OFFSET = Invariant(
    name="producer-snapshot-below-its-offset",
    rule="A producer snapshot contains no batch at or above its own offset.",
    source="KAFKA-6683",
    watches=(ProducerSnapshotTaken,),
    ends_run=False,
    check=KnowsNothingLater,
    examined="SELECT run, count(*) FROM producer_snapshot_taken GROUP BY run",
    violations="""
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                topic, '-', partition, ': the producer snapshot of ', node, ' at offset ',
                    next_offset, ' knows of a batch at ', last_offset
            ) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM producer_snapshot_taken WHERE last_offset >= next_offset
    """,
)


INVARIANTS = (
    REBUILT_PRODUCER_STATE_EQUAL,
    PRODUCER_SNAPSHOT_BELOW_ITS_OFFSET,
)

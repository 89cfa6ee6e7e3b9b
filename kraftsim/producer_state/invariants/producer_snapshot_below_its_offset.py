"""A producer snapshot contains no batch at or above its own offset.

A replica that loads a snapshot replays the log from that offset. It would treat a batch that never
reached the log as appended: a retry of that batch would be acknowledged and lost.
Source: KAFKA-6683; org.apache.kafka.storage.internals.log.ProducerStateManager.takeSnapshot.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import ProducerSnapshotTaken

NAME = "producer-snapshot-below-its-offset"


class KnowsNothingLater:
    """Checks each snapshot independently."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)

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


INVARIANT = Invariant(
    name=NAME,
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

"""In the order in which producer-id blocks are allocated, the next producer id only grows.

Every ProducerIdsRecord has the first id after its block. Replaying a record that is not above the
previous one would allocate ids again. Blocks that brokers allocate themselves have no such order.
Source: KIP-730, org.apache.kafka.controller.ProducerIdControlManager.replay.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.producer_ids.events import ProducerIdBlockAllocated

NAME = "next-producer-id-monotonic"
ITSELF = "itself"
"""A broker that allocates its blocks itself."""


class AlwaysAbove:
    """Compares each block's end with that of the block before it."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._previous: tuple[int, str] | None = None

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an allocated block."""
        assert isinstance(event, ProducerIdBlockAllocated)
        if event.given_by == ITSELF:
            return None
        self._findings.examined += 1
        previous, self._previous = self._previous, (event.next_producer_id, envelope.event_id)
        if previous is None or event.next_producer_id > previous[0]:
            return None
        message = f"the next producer id went from {previous[0]} to {event.next_producer_id}"
        return self._findings.violation(envelope.event_id, message, previous[1], envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="In the order in which producer-id blocks are allocated, the next producer id only grows.",
    source="KIP-730",
    watches=(ProducerIdBlockAllocated,),
    check=AlwaysAbove,
    examined="SELECT run, count(*) FROM producer_id_block_allocated WHERE given_by <> 'itself' "
    "GROUP BY run",
    violations="""
        WITH ordered AS (
            SELECT
                run, node, incarnation, n, position, next_producer_id,
                lag(next_producer_id) OVER (PARTITION BY run
                    ORDER BY position) AS previous_next_producer_id,
                lag(position) OVER (PARTITION BY run ORDER BY position) AS previous_position
            FROM producer_id_block_allocated WHERE given_by <> 'itself'
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat('the next producer id went from ', previous_next_producer_id, ' to ',
                next_producer_id) AS message,
            previous_position AS first_witness,
            position AS second_witness
        FROM ordered WHERE next_producer_id <= previous_next_producer_id
    """,
)

"""A controller returns a producer-id block only after it knows that the block's record is
committed.

This implies that blocks share no id. But that invariant is violated only if the controller fails
between the response and the commit, while this one reports every early response.
Source: KIP-730, org.apache.kafka.controller.QuorumController (ControllerWriteEvent,
deferredEventQueue).
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.producer_ids.events import ProducerIdBlockAllocated
from kraftsim.raft.events import HighWatermarkMoved

NAME = "producer-id-block-allocated-after-commit"
QUORUM = "quorum"


class CommittedBlocks:
    """Tracks the highest high watermark of each incarnation of a controller."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._known: dict[tuple[str, int], int] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a high watermark, or an allocated block."""
        assert isinstance(event, HighWatermarkMoved | ProducerIdBlockAllocated)
        controller = (envelope.node, envelope.incarnation)
        if isinstance(event, HighWatermarkMoved):
            self._known[controller] = max(event.high_watermark, self._known.get(controller, 0))
            return None
        if event.given_by != QUORUM:
            return None
        self._findings.examined += 1
        known = self._known.get(controller, 0)
        if event.offset < known:
            return None
        message = (
            f"{envelope.node} gave the block at offset {event.offset} away, and knew of the "
            f"records below {known} to be committed"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A controller returns a producer-id block only after it knows that the block's record is "
    "committed.",
    source="KIP-730",
    watches=(HighWatermarkMoved, ProducerIdBlockAllocated),
    check=CommittedBlocks,
    examined="SELECT run, count(*) FROM producer_id_block_allocated WHERE given_by = 'quorum' "
    "GROUP BY run",
    violations="""
        WITH compared AS (
            SELECT b.run, b.node, b.incarnation, b.n, b.position, b.offset,
                coalesce(max(k.high_watermark), 0) AS known
            FROM producer_id_block_allocated AS b LEFT JOIN high_watermark_moved AS k
                ON k.run = b.run AND k.node = b.node AND k.incarnation = b.incarnation
                    AND k.position < b.position
            WHERE b.given_by = 'quorum'
            GROUP BY b.run, b.node, b.incarnation, b.n, b.position, b.offset
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(node, ' gave the block at offset ', c.offset,
                ' away, and knew of the records below ', known, ' to be committed') AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM compared AS c WHERE c.offset >= known
    """,
)

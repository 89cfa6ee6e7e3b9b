"""A broker returns only producer ids from blocks that it received since it started.

Any other id belongs to another broker's block, or to a block of an earlier incarnation of the
broker, whose ids may be used already.
Source: KIP-730, org.apache.kafka.coordinator.transaction.RPCProducerIdManager.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.producer_ids.events import ProducerIdBlockReceived, ProducerIdReturned

NAME = "producer-id-inside-owned-block"


class OwnedBlocks:
    """Tracks the blocks of each incarnation of each broker, the latest last."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._blocks: dict[tuple[str, int], list[tuple[int, int]]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a received block or a returned id."""
        blocks = self._blocks.setdefault((envelope.node, envelope.incarnation), [])
        if isinstance(event, ProducerIdBlockReceived):
            blocks.append((event.first_producer_id, event.next_producer_id))
            return None
        assert isinstance(event, ProducerIdReturned)
        if not event.fresh:
            return None
        self._findings.examined += 1
        if any(first_id <= event.producer_id < next_id for first_id, next_id in reversed(blocks)):
            return None
        message = (
            f"{envelope.node} handed out producer id {event.producer_id}, which is in no block "
            "that it received since it started"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A broker returns only producer ids from blocks that it received since it started.",
    source="KIP-730",
    watches=(ProducerIdBlockReceived, ProducerIdReturned),
    check=OwnedBlocks,
    examined="SELECT run, count(*) FROM producer_id_returned WHERE fresh GROUP BY run",
    # One sorted pass finds for each id the block with the closest first id below it, which normally
    # holds it. Only an id that is not in that block, or that was returned before the block arrived,
    # is compared with all blocks.
    violations="""
        WITH point AS (
            SELECT run, node, incarnation, n, position, first_producer_id AS id, first_producer_id,
                0 AS is_answer FROM producer_id_block_received
            UNION ALL
            SELECT run, node, incarnation, n, position, producer_id AS id,
                NULL AS first_producer_id, 1 AS is_answer
            FROM producer_id_returned WHERE fresh
        ), swept AS (
            SELECT
                run, node, incarnation, n, position, id, is_answer,
                max(first_producer_id) OVER (
                    PARTITION BY run, node, incarnation ORDER BY id, is_answer,
                        position ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
                ) AS nearest
            FROM point
        ), suspect AS (
            SELECT s.* FROM swept AS s
            WHERE s.is_answer = 1 AND NOT EXISTS (
                SELECT 1 FROM producer_id_block_received AS b
                WHERE b.run = s.run AND b.node = s.node AND b.incarnation = s.incarnation
                    AND b.first_producer_id = s.nearest
                    AND b.next_producer_id > s.id AND b.position < s.position
            )
        )
        SELECT
            s.run,
            concat(s.node, '.', s.incarnation, '.', s.n) AS key,
            concat(s.node, ' handed out producer id ', s.id,
                ', which is in no block that it received since it started') AS message,
            s.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM suspect AS s
        WHERE NOT EXISTS (
            SELECT 1 FROM producer_id_block_received AS b
            WHERE b.run = s.run AND b.node = s.node AND b.incarnation = s.incarnation
                AND b.position < s.position
                AND b.first_producer_id <= s.id AND b.next_producer_id > s.id
        )
    """,
)

"""No two blocks of producer ids overlap.

Brokers can return producer ids without a request to the controller because each owns its block. If
a block is returned before its record is durable, a power loss makes the controller allocate it
again, and two brokers own it.
Source: KIP-730, KAFKA-10533 for the way it fails.
"""

from bisect import bisect_right, insort

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.producer_ids.events import ProducerIdBlockAllocated

NAME = "producer-id-blocks-disjoint"


class SortedBlocks:
    """Keeps the blocks sorted by first id; compares a new block with those that it may overlap."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._blocks: list[
            tuple[int, int, int, str, int]
        ] = []  # first id, order of arrival, next id, event id, broker
        self._longest = 0

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an allocated block."""
        assert isinstance(event, ProducerIdBlockAllocated)
        self._findings.examined += 1
        first_id, next_id = event.first_producer_id, event.next_producer_id
        start = bisect_right(self._blocks, (first_id - self._longest,))
        end = bisect_right(self._blocks, (next_id,))
        touching = [
            block for block in self._blocks[start:end] if block[2] > first_id and block[0] < next_id
        ]
        insort(
            self._blocks,
            (first_id, self._findings.examined, next_id, envelope.event_id, event.broker_id),
        )
        self._longest = max(self._longest, next_id - first_id)
        if not touching:
            return None
        other = min(touching, key=lambda block: block[1])
        message = (
            f"the block {first_id}..{next_id - 1} of broker {event.broker_id} "
            f"shares ids with the earlier block {other[0]}..{other[2] - 1} of broker {other[4]}"
        )
        return self._findings.violation(envelope.event_id, message, other[3], envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="No two blocks of producer ids overlap.",
    source="KIP-730",
    watches=(ProducerIdBlockAllocated,),
    check=SortedBlocks,
    examined="SELECT run, count(*) FROM producer_id_block_allocated GROUP BY run",
    # Sorted by first id, a block overlaps an earlier one exactly if it begins below the highest end
    # so far: only such blocks are compared in pairs.
    violations="""
        WITH swept AS (
            SELECT
                run, position, first_producer_id, next_producer_id,
                max(next_producer_id) OVER (
                    PARTITION BY run ORDER BY first_producer_id,
                        position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) AS highest_end
            FROM producer_id_block_allocated
        ), suspect AS (
            SELECT run, position, first_producer_id, next_producer_id FROM swept
                WHERE first_producer_id < highest_end
        ), pair AS (
            SELECT suspect.run, greatest(suspect.position, other.position) AS later,
                least(suspect.position, other.position) AS earlier
            FROM suspect JOIN producer_id_block_allocated AS other
                ON suspect.run = other.run AND suspect.first_producer_id < other.next_producer_id
                AND other.first_producer_id < suspect.next_producer_id
                AND suspect.position <> other.position
        ), first_pair AS (
            SELECT run, later, min(earlier) AS earlier FROM pair GROUP BY run, later
        )
        SELECT
            b.run,
            concat(b.node, '.', b.incarnation, '.', b.n) AS key,
            concat(
                'the block ', b.first_producer_id, '..', b.next_producer_id - 1, ' of broker ',
                    b.broker_id,
                ' shares ids with the earlier block ', a.first_producer_id, '..',
                    a.next_producer_id - 1, ' of broker ', a.broker_id
            ) AS message,
            a.position AS first_witness,
            b.position AS second_witness
        FROM first_pair
        JOIN producer_id_block_allocated AS a ON a.run = first_pair.run
            AND a.position = first_pair.earlier
        JOIN producer_id_block_allocated AS b ON b.run = first_pair.run
            AND b.position = first_pair.later
    """,
)

"""A producer id is given to one producer only, in the life of a cluster.

Brokers take ids from blocks, and controllers allocate blocks with a record in the metadata log, or
with a znode. Blocks are disjoint because the next id only grows and a block is allocated after its
record is committed; ids are unique because a broker uses each id of its own blocks once.
"""

from bisect import bisect_right, insort

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import BrokerRegistered
from kraftsim.producer_ids.events import (
    ProducerIdBlockAllocated,
    ProducerIdBlockReceived,
    ProducerIdBlockRefused,
    ProducerIdBlockRequested,
    ProducerIdReturned,
)
from kraftsim.raft.events import HighWatermarkMoved


class OnceEach:
    """No two InitProducerId responses return the same fresh producer id.

    Producer state distinguishes producers by this number only. With one id for two producers, the
    records of one would be treated as duplicates of the other's.

    Tracks the first response that returned each fresh id.

    Source: KIP-98, KIP-730.
    """

    def __init__(self) -> None:
        self._findings = Findings("producer-id-unique")
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


PRODUCER_ID_UNIQUE = Invariant(
    name="producer-id-unique",
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


class SortedBlocks:
    """No two blocks of producer ids overlap.

    Brokers can return producer ids without a request to the controller because each owns its block.
    If a block is returned before its record is durable, a power loss makes the controller allocate
    it again, and two brokers own it.

    Keeps the blocks sorted by first id; compares a new block with those that it may overlap.

    Source: KIP-730, KAFKA-10533 for the way it fails.
    """

    def __init__(self) -> None:
        self._findings = Findings("producer-id-blocks-disjoint")
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


PRODUCER_ID_BLOCKS_DISJOINT = Invariant(
    name="producer-id-blocks-disjoint",
    decides_without_nodes=True,
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


ITSELF = "itself"
"""A broker that allocates its blocks itself."""


class AlwaysAbove:
    """In the order in which producer-id blocks are allocated, the next producer id only grows.

    Every ProducerIdsRecord has the first id after its block. Replaying a record that is not above
    the previous one would allocate ids again. Blocks that brokers allocate themselves have no such
    order.

    Compares each block's end with that of the block before it.

    Source: KIP-730, org.apache.kafka.controller.ProducerIdControlManager.replay.
    """

    def __init__(self) -> None:
        self._findings = Findings("next-producer-id-monotonic")
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


NEXT_PRODUCER_ID_MONOTONIC = Invariant(
    name="next-producer-id-monotonic",
    decides_without_nodes=True,
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


QUORUM = "quorum"


class CommittedBlocks:
    """A controller returns a producer-id block only after it knows that the block's record is
    committed.

    This implies that blocks share no id. But that invariant is violated only if the controller
    fails between the response and the commit, while this one reports every early response.

    Tracks the highest high watermark of each incarnation of a controller.

    Source: KIP-730, org.apache.kafka.controller.QuorumController (ControllerWriteEvent,
    deferredEventQueue).
    """

    def __init__(self) -> None:
        self._findings = Findings("producer-id-block-allocated-after-commit")
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


PRODUCER_ID_BLOCK_ALLOCATED_AFTER_COMMIT = Invariant(
    name="producer-id-block-allocated-after-commit",
    within_metadata_log=True,
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


class LaterRegistrations:
    """A producer-id block is allocated only to the registered incarnation of a broker, never to one
    that was replaced.

    The epoch of a registration is the offset of its record. A block whose record has a higher
    offset than a later registration of the same broker was allocated to a process that is dead, or
    must no longer serve.

    Tracks the epochs of each broker, in order.

    Source: KIP-730, org.apache.kafka.controller.ProducerIdControlManager
    (ClusterControlManager.checkBrokerEpoch).
    """

    def __init__(self) -> None:
        self._findings = Findings("producer-id-block-to-current-incarnation")
        self._registered: dict[int, list[tuple[int, str]]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a registration, or an allocated block."""
        assert isinstance(event, BrokerRegistered | ProducerIdBlockAllocated)
        registered = self._registered.setdefault(event.broker_id, [])
        if isinstance(event, BrokerRegistered):
            if all(epoch != event.broker_epoch for epoch, _ in registered):
                insort(registered, (event.broker_epoch, envelope.event_id))
            return None
        self._findings.examined += 1
        place = bisect_right(registered, (event.broker_epoch, chr(0x10FFFF)))
        if place == len(registered) or registered[place][0] >= event.offset:
            return None
        later, witness = registered[place]
        message = (
            f"broker {event.broker_id} of epoch {event.broker_epoch} got a block at offset "
            f"{event.offset}, after it had registered at {later}"
        )
        return self._findings.violation(str(event.offset), message, witness, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


PRODUCER_ID_BLOCK_TO_CURRENT_INCARNATION = Invariant(
    name="producer-id-block-to-current-incarnation",
    within_metadata_log=True,
    decides_without_nodes=True,
    rule="A producer-id block is allocated only to the registered incarnation of a broker, never "
    "to one that was replaced.",
    source="KIP-730",
    watches=(BrokerRegistered, ProducerIdBlockAllocated),
    check=LaterRegistrations,
    examined="SELECT run, count(*) FROM producer_id_block_allocated GROUP BY run",
    violations="""
        WITH registered AS (
            SELECT run, broker_id, broker_epoch, min(position) AS position FROM broker_registered
                GROUP BY run, broker_id, broker_epoch
        ), outdated AS (
            SELECT
                block.run, block.broker_id, block.broker_epoch, block.offset AS block_offset,
                    block.position, later.broker_epoch AS later_epoch,
                later.position AS later_position,
                row_number() OVER (PARTITION BY block.run, block.offset ORDER BY block.position,
                    later.broker_epoch) AS place
            FROM producer_id_block_allocated AS block JOIN registered AS later
                ON block.run = later.run AND block.broker_id = later.broker_id
                AND later.broker_epoch > block.broker_epoch AND later.broker_epoch < block.offset
            WHERE later.position < block.position
        )
        SELECT
            run,
            concat('', block_offset) AS key,
            concat(
                'broker ', broker_id, ' of epoch ', broker_epoch, ' got a block at offset ',
                    block_offset,
                ', after it had registered at ', later_epoch
            ) AS message,
            later_position AS first_witness,
            position AS second_witness
        FROM outdated WHERE place = 1
    """,
)


class Outstanding:
    """A broker requests its next producer-id block only after the previous request was answered,
    rejected or timed out.

    Two responses would give the broker two blocks where it keeps one, and the ids of one block
    would be lost unused.

    Tracks the request in flight of each incarnation of each broker.

    Source: KIP-730, KAFKA-14694, org.apache.kafka.coordinator.transaction.RPCProducerIdManager
    (requestInFlight).
    """

    def __init__(self) -> None:
        self._findings = Findings("one-block-request-in-flight")
        self._asked: dict[tuple[str, int], str] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a request, or its end."""
        process = (envelope.node, envelope.incarnation)
        if not isinstance(event, ProducerIdBlockRequested):
            self._asked.pop(process, None)
            return None
        self._findings.examined += 1
        before = self._asked.get(process)
        self._asked[process] = envelope.event_id
        if before is None:
            return None
        message = f"{envelope.node} asked for another block of producer ids while it waited for one"
        return self._findings.violation(envelope.event_id, message, before, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


ONE_BLOCK_REQUEST_IN_FLIGHT = Invariant(
    name="one-block-request-in-flight",
    rule="A broker requests its next producer-id block only after the previous request has ended.",
    source="KIP-730, KAFKA-14694",
    watches=(ProducerIdBlockRequested, ProducerIdBlockReceived, ProducerIdBlockRefused),
    check=Outstanding,
    examined="SELECT run, count(*) FROM producer_id_block_requested GROUP BY run",
    violations="""
        WITH step AS (
            SELECT run, node, incarnation, n, position, 1 AS is_request
                FROM producer_id_block_requested
            UNION ALL SELECT run, node, incarnation, n, position, 0 AS is_request
                FROM producer_id_block_received
            UNION ALL SELECT run, node, incarnation, n, position, 0 AS is_request
                FROM producer_id_block_refused
        ), ordered AS (
            SELECT
                run, node, incarnation, n, position, is_request,
                lag(is_request) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS previous_is_request,
                lag(position) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS previous_position
            FROM step
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(node, ' asked for another block of producer ids while it waited for one')
                AS message,
            previous_position AS first_witness,
            position AS second_witness
        FROM ordered WHERE is_request = 1 AND previous_is_request = 1
    """,
)


class OwnedBlocks:
    """A broker returns only producer ids from blocks that it received since it started.

    Any other id belongs to another broker's block, or to a block of an earlier incarnation of the
    broker, whose ids may be used already.

    Tracks the blocks of each incarnation of each broker, the latest last.

    Source: KIP-730, org.apache.kafka.coordinator.transaction.RPCProducerIdManager.
    """

    def __init__(self) -> None:
        self._findings = Findings("producer-id-inside-owned-block")
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


PRODUCER_ID_INSIDE_OWNED_BLOCK = Invariant(
    name="producer-id-inside-owned-block",
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


INVARIANTS = (
    PRODUCER_ID_UNIQUE,
    PRODUCER_ID_BLOCKS_DISJOINT,
    NEXT_PRODUCER_ID_MONOTONIC,
    PRODUCER_ID_BLOCK_ALLOCATED_AFTER_COMMIT,
    PRODUCER_ID_BLOCK_TO_CURRENT_INCARNATION,
    ONE_BLOCK_REQUEST_IN_FLIGHT,
    PRODUCER_ID_INSIDE_OWNED_BLOCK,
)

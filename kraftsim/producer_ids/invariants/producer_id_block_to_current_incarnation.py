"""A producer-id block is allocated only to the registered incarnation of a broker, never to one
that was replaced.

The epoch of a registration is the offset of its record. A block whose record has a higher offset
than a later registration of the same broker was allocated to a process that is dead, or must no
longer serve.
Source: KIP-730, org.apache.kafka.controller.ProducerIdControlManager
(ClusterControlManager.checkBrokerEpoch).
"""

from bisect import bisect_right, insort

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import BrokerRegistered
from kraftsim.producer_ids.events import ProducerIdBlockAllocated

NAME = "producer-id-block-to-current-incarnation"


class LaterRegistrations:
    """Tracks the epochs of each broker, in order."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
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


INVARIANT = Invariant(
    name=NAME,
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

"""A broker requests its next producer-id block only after the previous request was answered,
rejected or timed out.

Two responses would give the broker two blocks where it keeps one, and the ids of one block would be
lost unused.
Source: KIP-730, KAFKA-14694, org.apache.kafka.coordinator.transaction.RPCProducerIdManager
(requestInFlight).
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.producer_ids.events import (
    ProducerIdBlockReceived,
    ProducerIdBlockRefused,
    ProducerIdBlockRequested,
)

NAME = "one-block-request-in-flight"


class Outstanding:
    """Tracks the request in flight of each incarnation of each broker."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
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


INVARIANT = Invariant(
    name=NAME,
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

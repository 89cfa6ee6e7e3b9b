"""An offset that was committed in a transaction is still there when a consumer asks for it.

From what clients see alone: the group coordinator has accepted the offset, the transaction
coordinator has committed, and a consumer that fetches stable offsets afterwards must not get the
answer that there is none. It would begin anywhere, and process records again or skip them.
Source: KIP-98, KIP-447, KAFKA-19163; GroupCoordinatorService.fetchOffsets.
"""

from typing import Final

from kraftsim.clients.events_transactions import (
    OffsetLearned,
    OffsetsAsked,
    TransactionEnded,
    TransactionOffsetAccepted,
)
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

NAME: Final = "committed-offsets-returned"
COMMITTED: Final = "committed"
NO_OFFSET: Final = -1
GroupPartition = tuple[str, str, int]
"""Group, topic, partition."""


class OffsetsReturned:
    """Checks each stable answer that says that there is no offset."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._accepted: dict[str, list[GroupPartition]] = {}
        self._committed: dict[GroupPartition, str] = {}
        """The event that ended the first transaction with an offset of the partition."""
        self._asked: dict[tuple[str, str, int], dict[GroupPartition, str]] = {}
        """What was committed when a question was sent: client, group, question."""

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an accepted offset, the end of its transaction, or a question and its answer."""
        match event:
            case TransactionOffsetAccepted():
                where = (event.group_id, event.topic, event.partition)
                self._accepted.setdefault(event.transaction, []).append(where)
            case TransactionEnded(outcome=outcome, transaction=transaction):
                accepted = self._accepted.pop(transaction, [])
                if outcome == COMMITTED:
                    for where in accepted:
                        self._committed.setdefault(where, envelope.event_id)
            case OffsetsAsked():
                question = (event.client_id, event.group_id, event.question)
                self._asked[question] = dict(self._committed)
            case OffsetLearned(is_stable=True, error_code=0):
                return self._check(event, envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _check(self, learned: OffsetLearned, event_id: str) -> Violation | None:
        asked = self._asked.get((learned.client_id, learned.group_id, learned.question), {})
        ended = asked.get((learned.group_id, learned.topic, learned.partition))
        if ended is None:
            return None
        self._findings.examined += 1
        if learned.offset != NO_OFFSET:
            return None
        where = f"{learned.topic}-{learned.partition}"
        return self._findings.violation(
            f"{learned.group_id}/{learned.topic}/{learned.partition}",
            f"group {learned.group_id} has no offset of {where}, which a transaction committed",
            ended,
            event_id,
        )


_ANSWERS = f"""
    committed AS (
        SELECT a.run, a.group_id, a.topic, a.partition, min(e.position) AS position
        FROM transaction_offset_accepted AS a
        JOIN transaction_ended AS e ON e.run = a.run AND e.transaction = a.transaction
            AND e.outcome = '{COMMITTED}' AND a.position < e.position
        GROUP BY a.run, a.group_id, a.topic, a.partition
    ), answer AS (
        SELECT l.run, l.group_id, l.topic, l.partition, l.offset AS learned, l.position,
            c.position AS ended
        FROM offset_learned AS l
        JOIN offsets_asked AS q ON q.run = l.run AND q.client_id = l.client_id
            AND q.group_id = l.group_id AND q.question = l.question AND q.position < l.position
        JOIN committed AS c ON c.run = l.run AND c.group_id = l.group_id AND c.topic = l.topic
            AND c.partition = l.partition AND c.position < q.position
        WHERE l.is_stable AND l.error_code = 0
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="A consumer that asks for stable offsets after a transaction with an offset of its group "
    "was committed gets an offset.",
    source="KIP-98, KIP-447",
    watches=(TransactionOffsetAccepted, TransactionEnded, OffsetsAsked, OffsetLearned),
    check=OffsetsReturned,
    examined=f"WITH {_ANSWERS} SELECT run, count(*) FROM answer GROUP BY run",
    violations=f"""
        WITH {_ANSWERS}, missing AS (
            SELECT run, group_id, topic, partition, min(ended) AS ended, min(position) AS position
            FROM answer WHERE learned = {NO_OFFSET} GROUP BY run, group_id, topic, partition
        )
        SELECT
            run,
            concat(group_id, '/', topic, '/', partition) AS key,
            concat('group ', group_id, ' has no offset of ', topic, '-', partition,
                ', which a transaction committed') AS message,
            ended AS first_witness,
            position AS second_witness
        FROM missing
    """,
)

"""In one member epoch of a consumer group a partition has one owner, as its members see it.

A fenced member may still believe that it owns a partition: then its epoch is an earlier one, and
the coordinator rejects its commits. With the same epoch it could not tell the two apart.
Source: KIP-848.
"""

from typing import Final

from kraftsim.clients.events_transactions import PartitionTaken
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

NAME: Final = "partitions-owned-once-per-epoch"


class OwnedOnce:
    """Compares each owner of a partition with the first one in that epoch; a static member keeps
    its partitions under another member id.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._owners: dict[tuple[str, str, int, int], tuple[str, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a partition that a member takes."""
        if not isinstance(event, PartitionTaken):
            return None
        self._findings.examined += 1
        key = (event.group_id, event.topic, event.partition, event.member_epoch)
        owner, event_id = self._owners.setdefault(key, (event.owner, envelope.event_id))
        if owner == event.owner:
            return None
        return self._findings.violation(
            "/".join(map(str, (*key, event.owner))),
            f"{event.group_id}: {event.topic}-{event.partition} is owned by {owner} and by "
            f"{event.owner} in epoch {event.member_epoch}",
            event_id,
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    decides_without_nodes=True,
    rule="In one member epoch of a consumer group a partition has one owner.",
    source="KIP-848",
    watches=(PartitionTaken,),
    check=OwnedOnce,
    examined="SELECT run, count(*) FROM partition_taken GROUP BY run",
    violations="""
        WITH taken AS (
            SELECT run, group_id, topic, partition, member_epoch, owner, min(position) AS position
            FROM partition_taken GROUP BY run, group_id, topic, partition, member_epoch, owner
        ), placed AS (
            SELECT *, row_number() OVER (PARTITION BY run, group_id, topic, partition, member_epoch
                ORDER BY position) AS place FROM taken
        )
        SELECT
            l.run,
            concat(l.group_id, '/', l.topic, '/', l.partition, '/', l.member_epoch, '/', l.owner)
                AS key,
            concat(l.group_id, ': ', l.topic, '-', l.partition, ' is owned by ', f.owner,
                ' and by ', l.owner, ' in epoch ', l.member_epoch) AS message,
            f.position AS first_witness,
            l.position AS second_witness
        FROM placed AS l JOIN placed AS f ON f.run = l.run AND f.group_id = l.group_id
            AND f.topic = l.topic AND f.partition = l.partition
            AND f.member_epoch = l.member_epoch AND f.place = 1
        WHERE l.place > 1
    """,
)

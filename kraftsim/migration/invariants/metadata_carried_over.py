"""A migration loses no metadata: what ZooKeeper had before is in the metadata log afterwards.

Topics keep their ids and replicas, leader epochs do not go back, configurations, quotas,
credentials and ACLs stay, and the next block of producer ids is not before the last one of
ZooKeeper. It holds for each migration of a cluster, whichever metadata log it writes. That
ZooKeeper and the log are equal (`zookeeper-mirrors-log`) does not imply it: what is not copied is
deleted from ZooKeeper.
Source: KIP-866.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.migration.events import MetadataCarriedOver

NAME = "metadata-carried-over"


class NothingLost:
    """Checks each comparison that the harness made."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a comparison."""
        assert isinstance(event, MetadataCarriedOver)
        self._findings.examined += 1
        if not event.differences:
            return None
        message = (
            f"the log of {event.controller} lacks {event.differences} things that ZooKeeper had: "
            f"{event.what}"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="After a migration the metadata log has what ZooKeeper had before it.",
    source="KIP-866",
    watches=(MetadataCarriedOver,),
    check=NothingLost,
    examined="SELECT run, count(*) FROM metadata_carried_over GROUP BY run",
    violations="""
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat('the log of ', controller, ' lacks ', differences,
                ' things that ZooKeeper had: ', what) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM metadata_carried_over WHERE differences > 0
    """,
)

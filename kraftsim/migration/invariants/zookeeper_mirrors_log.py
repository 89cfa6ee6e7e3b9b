"""During a migration to KRaft, ZooKeeper has the same metadata as the metadata log, up to the
offset in /migration.

A migration can be rolled back only because of this. What a failed controller did not write to
ZooKeeper must be written by the next one (KAFKA-15010).
Source: KIP-866.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.migration.events import ZookeeperCompared

NAME = "zookeeper-mirrors-log"


class NoDifference:
    """Checks each comparison that the harness made."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a comparison."""
        assert isinstance(event, ZookeeperCompared)
        self._findings.examined += 1
        if not event.differences:
            return None
        message = (
            f"at offset {event.offset} ZooKeeper and the log of {event.controller} differ in "
            f"{event.differences} things: {event.what}"
        )
        return self._findings.violation(
            f"{event.controller}/{event.offset}", message, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="In dual-write mode ZooKeeper has the same metadata as the metadata log up to the "
    "recorded offset.",
    source="KIP-866, KAFKA-15010",
    watches=(ZookeeperCompared,),
    check=NoDifference,
    examined="SELECT run, count(*) FROM zookeeper_compared GROUP BY run",
    violations="""
        SELECT
            run,
            concat(controller, '/', z.offset) AS key,
            concat('at offset ', z.offset, ' ZooKeeper and the log of ', controller, ' differ in ',
                differences, ' things: ', what) AS message,
            min(position) AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM zookeeper_compared AS z WHERE differences > 0
        GROUP BY run, controller, z.offset, differences, what
    """,
)

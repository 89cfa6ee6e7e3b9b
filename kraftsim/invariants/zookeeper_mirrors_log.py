"""While a cluster is on its way from ZooKeeper to KRaft, ZooKeeper says what the metadata log says, up to the offset that stands in /migration.

Only because of this can one go back. What a controller that failed did not get to write must be written by the next one (KAFKA-15010).
Source: KIP-866.
"""

from kraftsim.events.event import Event
from kraftsim.events.migration import ZookeeperCompared
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

NAME = "zookeeper-mirrors-log"


class NoDifference:
    """Looks at each comparison that the harness made."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Take in a comparison."""
        assert isinstance(event, ZookeeperCompared)
        self._findings.examined += 1
        if not event.differences:
            return None
        message = f"at offset {event.offset} ZooKeeper and the log of {event.controller} differ in {event.differences} things: {event.what}"
        return self._findings.violation(f"{event.controller}/{event.offset}", message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="In dual write ZooKeeper says what the metadata log says up to the recorded offset.",
    source="KIP-866, KAFKA-15010",
    watches=(ZookeeperCompared,),
    check=NoDifference,
    examined="SELECT run, count(*) FROM zookeeper_compared GROUP BY run",
    violations="""
        SELECT
            run,
            concat(controller, '/', z.offset) AS key,
            concat('at offset ', z.offset, ' ZooKeeper and the log of ', controller, ' differ in ', differences, ' things: ', what) AS message,
            min(position) AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM zookeeper_compared AS z WHERE differences > 0
        GROUP BY run, controller, z.offset, differences, what
    """,
)

"""Each incarnation of a broker has its own broker epoch and starts fenced.

The epoch distinguishes the requests of a process from those of the previous process with the same
id. A broker that serves before it has read its own registration would serve with the metadata of
the previous process.
Source: KIP-631 (broker epochs, the FENCED state),
org.apache.kafka.controller.ClusterControlManager.registerBroker.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import BrokerRegistered

NAME = "broker-epoch-per-incarnation"


class FirstOfEachEpoch:
    """Tracks the first registration of each broker epoch; the same incarnation may register again
    when it is already unfenced.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._first: dict[tuple[int, int], tuple[str, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a registration."""
        assert isinstance(event, BrokerRegistered)
        self._findings.examined += 1
        key, known = (
            (event.broker_id, event.broker_epoch),
            self._first.get((event.broker_id, event.broker_epoch)),
        )
        if known is None:
            self._first[key] = (event.incarnation_id, envelope.event_id)
            if event.fenced:
                return None
            message = (
                f"broker {event.broker_id} is in service with the registration that gave it "
                f"epoch {event.broker_epoch}"
            )
            return self._findings.violation(envelope.event_id, message, envelope.event_id)
        if known[0] == event.incarnation_id:
            return None
        message = (
            f"epoch {event.broker_epoch} of broker {event.broker_id} belongs to {known[0]} and "
            f"to {event.incarnation_id}"
        )
        return self._findings.violation(envelope.event_id, message, known[1], envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="Each incarnation of a broker has its own broker epoch and starts fenced.",
    source="KIP-631",
    watches=(BrokerRegistered,),
    check=FirstOfEachEpoch,
    examined="SELECT run, count(*) FROM broker_registered GROUP BY run",
    violations="""
        WITH place AS (
            SELECT run, broker_id, broker_epoch, min(position) AS position FROM broker_registered
                GROUP BY run, broker_id, broker_epoch
        ), first AS (
            SELECT f.run, f.node, f.incarnation, f.n, f.position, f.broker_id, f.broker_epoch,
                f.incarnation_id, f.fenced
            FROM place AS p JOIN broker_registered AS f ON f.run = p.run AND f.position = p.position
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat('broker ', broker_id, ' is in service with the registration that gave it epoch ',
                broker_epoch) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM first WHERE NOT fenced
        UNION ALL
        SELECT
            r.run,
            concat(r.node, '.', r.incarnation, '.', r.n) AS key,
            concat('epoch ', r.broker_epoch, ' of broker ', r.broker_id, ' belongs to ',
                f.incarnation_id, ' and to ', r.incarnation_id) AS message,
            f.position AS first_witness,
            r.position AS second_witness
        FROM broker_registered AS r
        JOIN first AS f ON f.run = r.run AND f.broker_id = r.broker_id
            AND f.broker_epoch = r.broker_epoch
        WHERE r.incarnation_id <> f.incarnation_id
    """,
)

"""The controller's view of brokers: which incarnation is registered, and which ones are alive.

A request of a killed incarnation must not count as one of the next. A new controller knows from the
log who is registered, not who is alive: it gives each broker the time to send a heartbeat first.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import BrokerFenced, BrokerRegistered, ControllerElected


class FirstOfEachEpoch:
    """Each incarnation of a broker has its own broker epoch and starts fenced.

    The epoch distinguishes the requests of a process from those of the previous process with the
    same id. A broker that serves before it has read its own registration would serve with the
    metadata of the previous process.

    Tracks the first registration of each broker epoch; the same incarnation may register again when
    it is already unfenced.

    Source: KIP-631 (broker epochs, the FENCED state),
    org.apache.kafka.controller.ClusterControlManager.registerBroker.
    """

    def __init__(self) -> None:
        self._findings = Findings("broker-epoch-per-incarnation")
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


BROKER_EPOCH_PER_INCARNATION = Invariant(
    name="broker-epoch-per-incarnation",
    within_metadata_log=True,
    decides_without_nodes=True,
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


SHARE = 4
NANOSECONDS_PER_MILLISECOND = 1_000_000


class LongEnough:
    """A new controller fences a broker for missing heartbeats only after it has been active long
    enough to receive one.

    Broker sessions are not replicated: a new active controller has received no heartbeat yet, and
    starts a full session for every unfenced broker. Clocks may run at different rates, here at most
    twice as fast as real time, so the check requires that the controller has been active for a
    quarter of the session.

    Tracks when each process became the active controller.

    Source: KIP-631, org.apache.kafka.controller.BrokerHeartbeatManager
    (QuorumController.CompleteActivationEvent).
    """

    def __init__(self) -> None:
        self._findings = Findings("new-controller-awaits-heartbeats")
        self._elected: dict[tuple[str, int], tuple[int, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an election, or the fencing of a broker."""
        process = (envelope.node, envelope.incarnation)
        if isinstance(event, ControllerElected):
            self._elected[process] = (envelope.t_ns, envelope.event_id)
            return None
        assert isinstance(event, BrokerFenced)
        if event.session_timeout_ms == 0 or process not in self._elected:
            return None
        self._findings.examined += 1
        since_ns, witness = self._elected[process]
        if (
            envelope.t_ns - since_ns
        ) * SHARE >= event.session_timeout_ms * NANOSECONDS_PER_MILLISECOND:
            return None
        led_ms = (envelope.t_ns - since_ns) // NANOSECONDS_PER_MILLISECOND
        message = (
            f"{envelope.node} had led for {led_ms} ms when it fenced broker {event.broker_id} "
            f"for {event.session_timeout_ms} ms of silence"
        )
        return self._findings.violation(envelope.event_id, message, witness, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


NEW_CONTROLLER_AWAITS_HEARTBEATS = Invariant(
    name="new-controller-awaits-heartbeats",
    rule="A new controller fences a broker for missing heartbeats only after it has been active "
    "long enough to receive one.",
    source="KIP-631",
    watches=(ControllerElected, BrokerFenced),
    check=LongEnough,
    examined="""
        WITH began AS (SELECT run, node, incarnation, min(position) AS position
            FROM controller_elected GROUP BY run, node, incarnation)
        SELECT f.run, count(*)
        FROM broker_fenced AS f JOIN began AS b ON b.run = f.run AND b.node = f.node
            AND b.incarnation = f.incarnation AND b.position < f.position
        WHERE f.session_timeout_ms <> 0 GROUP BY f.run
    """,
    violations=f"""
        WITH step AS (
            SELECT run, node, incarnation, n, t_ns, position, position AS elected_at,
                0 AS broker_id, 0 AS session_timeout_ms FROM controller_elected
            UNION ALL
            SELECT run, node, incarnation, n, t_ns, position, NULL AS elected_at, broker_id,
                session_timeout_ms
            FROM broker_fenced WHERE session_timeout_ms <> 0
        ), led AS (
            SELECT
                run, node, incarnation, n, t_ns, position, broker_id, session_timeout_ms,
                max(elected_at) OVER (
                    PARTITION BY run, node, incarnation
                        ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) AS elected_at
            FROM step
        )
        SELECT
            f.run,
            concat(f.node, '.', f.incarnation, '.', f.n) AS key,
            concat(
                f.node, ' had led for ', CAST(floor((f.t_ns
                    - e.t_ns) / {NANOSECONDS_PER_MILLISECOND}) AS BIGINT),
                ' ms when it fenced broker ', f.broker_id, ' for ', f.session_timeout_ms,
                    ' ms of silence'
            ) AS message,
            e.position AS first_witness,
            f.position AS second_witness
        FROM led AS f JOIN controller_elected AS e ON e.run = f.run AND e.position = f.elected_at
        WHERE f.session_timeout_ms <> 0 AND (f.t_ns - e.t_ns) * {SHARE}
            < f.session_timeout_ms * {NANOSECONDS_PER_MILLISECOND}
    """,
)


INVARIANTS = (
    BROKER_EPOCH_PER_INCARNATION,
    NEW_CONTROLLER_AWAITS_HEARTBEATS,
)

"""A new controller fences a broker for missing heartbeats only after it has been active long enough
to receive one.

Broker sessions are not replicated: a new active controller has received no heartbeat yet, and
starts a full session for every unfenced broker. Clocks may run at different rates, here at most
twice as fast as real time, so the check requires that the controller has been active for a quarter
of the session.
Source: KIP-631, org.apache.kafka.controller.BrokerHeartbeatManager
(QuorumController.CompleteActivationEvent).
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import BrokerFenced, ControllerElected

NAME = "new-controller-awaits-heartbeats"
SHARE = 4
NANOSECONDS_PER_MILLISECOND = 1_000_000


class LongEnough:
    """Tracks when each process became the active controller."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
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


INVARIANT = Invariant(
    name=NAME,
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

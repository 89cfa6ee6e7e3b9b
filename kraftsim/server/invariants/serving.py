"""Nodes understand what other nodes and clients send, and serve again when faults are over."""

from typing import Final

from kraftsim.events.event import Event
from kraftsim.events.runs import RunStarted, Settled
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.server.events_connections import ConnectionOpened, RequestRefused

VIRTUAL: Final = "sim"
"""The mode of runs in virtual time."""
CLOSED: Final = "closed"
"""The action on a connection whose request cannot be read."""


OF_CONTROLLERS: Final = (4, 5, 6)
"""LeaderAndIsr, StopReplica, UpdateMetadata."""
NOT_OFFERED: Final = "is not offered on this listener"


class EveryRequestUnderstood:
    """In virtual time no node closes a connection because a request is unreadable or unsupported.

    In virtual time every client is part of kraftsim and sends only APIs that the node supports. An
    impossible frame size, an unknown API or a malformed body therefore means that a connection has
    lost its position in the byte stream. Clients retry on a new connection, so nothing else would
    show it. A real cluster may receive any request from any client. A broker that has just left
    ZooKeeper mode may get requests of a controller that does not know that yet, and closes the
    connection, as Apache Kafka's do.

    Counts connections and checks the requests that are rejected on them, in runs in virtual time.

    Source: kafka.network.SocketServer (what cannot be read ends the connection),
    org.apache.kafka.common.network.NetworkReceive.
    """

    def __init__(self) -> None:
        self._findings = Findings("requests-well-formed")
        self._is_virtual = False

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a new connection, or a rejected request."""
        match event:
            case RunStarted(mode=mode):
                self._is_virtual = self._is_virtual or mode == VIRTUAL
            case ConnectionOpened() if self._is_virtual:
                self._findings.examined += 1
            case RequestRefused(
                connection=connection, api_key=api_key, reason=reason, action=action
            ) if self._is_virtual and action == CLOSED:
                if api_key in OF_CONTROLLERS and NOT_OFFERED in reason:
                    return None
                message = (
                    f"{envelope.node} refused a request of api {api_key} on connection "
                    f"{connection}: {reason}"
                )
                return self._findings.violation(envelope.event_id, message, envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


REQUESTS_WELL_FORMED = Invariant(
    name="requests-well-formed",
    rule="In virtual time no request is rejected because it is unreadable or unsupported.",
    source="kafka.network.SocketServer",
    watches=(RunStarted, ConnectionOpened, RequestRefused),
    check=EveryRequestUnderstood,
    examined=f"""
        WITH since AS (SELECT run, min(position) AS began FROM run_started WHERE mode = '{VIRTUAL}'
            GROUP BY run)
        SELECT c.run, count(*) FROM connection_opened AS c JOIN since AS s ON s.run = c.run
            AND s.began < c.position GROUP BY c.run
    """,
    violations=f"""
        WITH since AS (SELECT run, min(position) AS began FROM run_started WHERE mode = '{VIRTUAL}'
            GROUP BY run)
        SELECT
            r.run,
            concat(r.node, '.', r.incarnation, '.', r.n) AS key,
            concat(r.node, ' refused a request of api ', r.api_key, ' on connection ', r.connection,
                ': ', r.reason) AS message,
            r.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM request_refused AS r JOIN since AS s ON s.run = r.run AND s.began < r.position
        WHERE r.action = '{CLOSED}'
            AND NOT (r.api_key IN {OF_CONTROLLERS} AND r.reason LIKE '%{NOT_OFFERED}%')
    """,
)


class WithinBounds:
    """After all faults are healed there is a leader, brokers serve, controllers catch up, and
    client calls complete, each within its bound.

    A cluster that does nothing would satisfy every other invariant. Source: TigerBeetle's liveness
    mode.

    Compares each duration with its bound.
    """

    def __init__(self) -> None:
        self._findings = Findings("recovers-after-heal")

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a duration after the last fault was healed."""
        assert isinstance(event, Settled)
        self._findings.examined += 1
        if event.is_settled and event.after_ms <= event.limit_ms:
            return None
        message = (
            f"{event.what}: {event.after_ms} ms after all faults were healed, not within "
            f"{event.limit_ms} ms"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


RECOVERS_AFTER_HEAL = Invariant(
    name="recovers-after-heal",
    rule="After all faults are healed there is a leader within 10 s, all brokers serve and all "
    "controllers have caught up within 30 s, and every call"
    " of a client is settled within 2 delivery time-outs.",
    source="TigerBeetle's liveness mode",
    watches=(Settled,),
    check=WithinBounds,
    examined="SELECT run, count(*) FROM settled GROUP BY run",
    violations="""
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(what, ': ', after_ms, ' ms after all faults were healed, not within ', limit_ms,
                ' ms') AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM settled WHERE NOT is_settled OR after_ms > limit_ms
    """,
)


INVARIANTS = (
    REQUESTS_WELL_FORMED,
    RECOVERS_AFTER_HEAL,
)

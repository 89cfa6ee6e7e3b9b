"""In virtual time no node closes a connection because a request is unreadable or unsupported.

In virtual time every client is part of kraftsim and sends only APIs that the node supports. An
impossible frame size, an unknown API or a malformed body therefore means that a connection has lost
its position in the byte stream. Clients retry on a new connection, so nothing else would show it. A
real cluster may receive any request from any client.

Source: kafka.network.SocketServer (what cannot be read ends the connection),
org.apache.kafka.common.network.NetworkReceive.
"""

from typing import Final

from kraftsim.events.event import Event
from kraftsim.events.runs import RunStarted
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.server.events_connections import ConnectionOpened, RequestRefused

NAME = "requests-well-formed"
VIRTUAL: Final = "sim"
"""The mode of runs in virtual time."""
CLOSED: Final = "closed"
"""The action on a connection whose request cannot be read."""


class EveryRequestUnderstood:
    """Counts connections and checks the requests that are rejected on them, in runs in virtual
    time.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
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
                message = (
                    f"{envelope.node} refused a request of api {api_key} on connection "
                    f"{connection}: {reason}"
                )
                return self._findings.violation(envelope.event_id, message, envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
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
    """,
)

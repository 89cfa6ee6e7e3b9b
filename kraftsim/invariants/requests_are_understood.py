"""In virtual time no node refuses a request as one that it cannot read or does not offer.

Everybody who asks there is one of us, and asks only what he was told to be offered: a frame of an impossible size, an unknown API or a malformed body
comes from a connection that has lost its place in the stream of bytes. Clients ask again on a new connection, so that nothing else would show it.
Whoever runs a real cluster may be asked anything by anybody.

Source: kafka.network.SocketServer (what cannot be read ends the connection), org.apache.kafka.common.network.NetworkReceive.
"""

from typing import Final

from kraftsim.events.connections import ConnectionOpened, RequestRefused
from kraftsim.events.event import Event
from kraftsim.events.runs import RunStarted
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

NAME = "requests-are-understood"
VIRTUAL: Final = "sim"
"""The mode of runs in virtual time."""
CLOSED: Final = "closed"
"""What becomes of the connection of a request that cannot be read."""


class EveryRequestUnderstood:
    """Counts connections and looks at what is refused on them, from the beginning of a run in virtual time."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._is_virtual = False

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Take in a connection, or a refusal."""
        match event:
            case RunStarted(mode=mode):
                self._is_virtual = self._is_virtual or mode == VIRTUAL
            case ConnectionOpened() if self._is_virtual:
                self._findings.examined += 1
            case RequestRefused(connection=connection, api_key=api_key, reason=reason, action=action) if self._is_virtual and action == CLOSED:
                message = f"{envelope.node} refused a request of api {api_key} on connection {connection}: {reason}"
                return self._findings.violation(envelope.event_id, message, envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="In virtual time no request is refused because it cannot be read or is not offered.",
    source="kafka.network.SocketServer",
    watches=(RunStarted, ConnectionOpened, RequestRefused),
    check=EveryRequestUnderstood,
    examined=f"""
        WITH since AS (SELECT run, min(position) AS began FROM run_started WHERE mode = '{VIRTUAL}' GROUP BY run)
        SELECT c.run, count(*) FROM connection_opened AS c JOIN since AS s ON s.run = c.run AND s.began < c.position GROUP BY c.run
    """,
    violations=f"""
        WITH since AS (SELECT run, min(position) AS began FROM run_started WHERE mode = '{VIRTUAL}' GROUP BY run)
        SELECT
            r.run,
            concat(r.node, '.', r.incarnation, '.', r.n) AS key,
            concat(r.node, ' refused a request of api ', r.api_key, ' on connection ', r.connection, ': ', r.reason) AS message,
            r.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM request_refused AS r JOIN since AS s ON s.run = r.run AND s.began < r.position
        WHERE r.action = '{CLOSED}'
    """,
)

"""Connections to brokers, this one included, for one purpose: each is opened on demand, and
reopened when the broker's address has changed.

Source: kafka.common.InterBrokerSendThread, of which each purpose has its own.
"""

from collections.abc import Callable, Mapping

from kraftsim.server.outbound import PeerConnection, VersionRange
from kraftsim.server.shell import NodeShell

AddressOf = Callable[[int], tuple[str, int] | None]


class BrokerConnections:
    """At most one connection to each broker. `purpose` is the suffix of the client id."""

    def __init__(
        self,
        shell: NodeShell,
        purpose: str,
        *,
        address_of: AddressOf,
        own_versions: Mapping[int, VersionRange],
    ) -> None:
        self._shell = shell
        self._purpose = purpose
        self._address_of = address_of
        self._own_versions = own_versions
        self._connections: dict[int, PeerConnection] = {}

    async def to(self, broker_id: int) -> PeerConnection:
        """Return an open connection. Raises OSError if the broker is not alive or not reachable."""
        known, address = self._connections.get(broker_id), self._address_of(broker_id)
        if address is None:
            raise ConnectionError(f"broker {broker_id} is not known to be alive")
        if known is not None and known.is_open and (known.host, known.port) == address:
            return known
        self.leave(broker_id)
        shell = self._shell
        connection = self._connections[broker_id] = PeerConnection(
            *address,
            client_id=f"broker-{shell.config.node_id}-{self._purpose}",
            world=shell.world,
            request_timeout_ms=shell.config.request_timeout_ms,
            own_versions=self._own_versions,
            frame_events=shell.config.frame_events,
            number=shell.next_connection_number(),
            local_host=shell.config.outgoing_host,
            security=shell.security.to_brokers,
        )
        await connection.connect()
        return connection

    def leave(self, broker_id: int) -> None:
        """Close the connection to a broker, if there is one."""
        connection = self._connections.pop(broker_id, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._connections.values()):
            connection.close()

    def abort(self) -> None:
        """Close every connection at once, like a killed process."""
        for connection in self._connections.values():
            connection.abort()

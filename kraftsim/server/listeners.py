"""The listeners of a node: one server socket each, and their connections.

Source: kafka.network.SocketServer (Acceptor).
"""

import asyncio
from collections.abc import Iterable

from kraftsim.metadata.rules_described_configs import BrokerSettings, static_settings
from kraftsim.server.connection import REASON_STOPPING, ServerConnection
from kraftsim.server.connection_admission import ConnectionAdmission
from kraftsim.server.endpoints import ListenerEndpoint
from kraftsim.server.events import ListenerOpened
from kraftsim.server.events_connections import TlsHandshakeFailed
from kraftsim.server.frame_server import FrameServer
from kraftsim.server.rules_quotas import ConnectionLimits, connection_settings
from kraftsim.server.security.sasl_gate import SaslGate
from kraftsim.server.security.tls import report_handshakes
from kraftsim.server.shell import NodeShell
from protocol.metadata.settings import ClientQuotaRecord


class ListenerError(OSError):
    """A listener that cannot be opened, described in one line: the port is in use, the address is
    not local.
    """


class Listeners:
    """All listeners of a node."""

    def __init__(self, shell: NodeShell) -> None:
        self._shell = shell
        self._servers: list[asyncio.AbstractServer] = []
        self._connections: dict[int, ServerConnection] = {}
        config = shell.config
        limits = ConnectionLimits(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self.admission = ConnectionAdmission(limits, shell.world.clock, self._connections.values)
        self.follow(BrokerSettings(static=static_settings(config.given)))
        self.bound: dict[str, ListenerEndpoint] = {}
        """Listener name -> bound endpoint (a port of 0 is replaced)."""

    @property
    def connection_count(self) -> int:
        """The number of connected clients."""
        return len(self._connections)

    def follow(self, settings: BrokerSettings) -> None:
        """Apply changed connection limits and creation rates."""
        config = self._shell.config
        names = [endpoint.listener for endpoint in config.listeners]
        self.admission.limits.follow(
            connection_settings(settings, names, config.inter_broker_listener_name)
        )
        self.admission.recheck()

    def follow_quotas(self, records: Iterable[ClientQuotaRecord]) -> None:
        """Apply changed quotas of IP addresses."""
        self.admission.limits.follow_ips(records)

    async def open(self, endpoints: Iterable[ListenerEndpoint], server: FrameServer) -> None:
        """Bind and accept.

        Raises ListenerError naming the listener; listeners opened before it are closed again.
        """
        for endpoint in endpoints:
            try:
                await self._open(endpoint, server)
            except OSError as reason:
                await self.close()
                raise ListenerError(
                    f"listeners: cannot listen on {endpoint}: {reason.strerror or reason}"
                ) from reason

    async def close(self) -> None:
        """Stop accepting, close every connection after its last response, and wait until all are
        closed.
        """
        for server in self._servers:
            server.close()
        for connection in list(self._connections.values()):
            connection.close(REASON_STOPPING)
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

    def abort(self) -> None:
        """Close everything immediately, as a killed process would."""
        for server in self._servers:
            server.close()
        for connection in list(self._connections.values()):
            connection.abort()

    async def _open(self, endpoint: ListenerEndpoint, server: FrameServer) -> None:
        loop = asyncio.get_running_loop()
        security = self._shell.security

        def accept() -> ServerConnection:
            connection = ServerConnection(
                self._shell, server, endpoint.listener, self._on_made, self._forget
            )
            if (settings := security.sasl_of(endpoint.listener)) is not None:
                connection.serve_through(SaslGate(server, self._shell, settings, security.accounts))
            return connection

        backlog = self._shell.config.socket_listen_backlog_size
        tls = security.tls_of(endpoint.listener)
        if tls is None:
            opened = await loop.create_server(
                accept, endpoint.bind_host, endpoint.port, backlog=backlog
            )
        else:
            report_handshakes(
                tls, lambda reason: self._on_handshake_failed(endpoint.listener, reason)
            )
            opened = await loop.create_server(
                accept, endpoint.bind_host, endpoint.port, backlog=backlog, ssl=tls
            )
        self._servers.append(opened)
        host, port = opened.sockets[0].getsockname()[:2]
        self.bound[endpoint.listener] = ListenerEndpoint(
            endpoint.listener, endpoint.bind_host, port
        )
        self._shell.world.emit(
            ListenerOpened(listener=endpoint.listener, host=str(host), port=port)
        )

    def _on_made(self, connection: ServerConnection) -> None:
        """Register a connection at this point: after a failed TLS handshake `accept` was called and
        no connection follows.
        """
        self._connections[connection.number] = connection
        self.admission.on_connection(connection)

    def _on_handshake_failed(self, listener: str, reason: str) -> None:
        if not self._shell.is_dead:
            self._shell.world.emit(TlsHandshakeFailed(listener=listener, reason=reason))

    def _forget(self, connection: ServerConnection) -> None:
        self._connections.pop(connection.number, None)
        self.admission.left(connection)

"""The listeners of a node: one server socket each, and their connections.

Source: kafka.network.SocketServer (Acceptor).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kraftsim.metadata.rules_described_configs import BrokerSettings, static_settings
from kraftsim.server.connection import REASON_STOPPING, ServerConnection
from kraftsim.server.endpoints import ListenerEndpoint
from kraftsim.server.events import ListenerOpened
from kraftsim.server.events_connections import TlsHandshakeFailed
from kraftsim.server.frame_server import FrameServer
from kraftsim.server.rules_quotas import ConnectionLimits, connection_settings
from kraftsim.server.security.sasl_gate import SaslGate
from kraftsim.server.security.tls import report_handshakes
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import Clock
from protocol.metadata.settings import ClientQuotaRecord

# --------------------------------------------------------------------------------------------------
# Connection quotas: accepts connections per listener in order, within the connection limits and
# creation rates
#
# As in Kafka a connection above the rate or limit is not refused: it stays open, and its requests
# are not read until it is admitted. Only connections above the limit of one address are closed.
# Source: kafka.network.{Acceptor, ConnectionQuotas}, Processor.closeExcessConnections (KIP-402,
# KIP-612).

REASON_TOO_MANY = "too many connections"


@dataclass(slots=True)
class _AcceptQueue:
    """One listener: its queue of waiting connections, and the earliest time of the next
    admission.
    """

    waiting: deque[ServerConnection] = field(default_factory=deque)
    not_before_ms: int = 0


class ConnectionAdmission:
    """`connections` returns all connections: the one idle longest is closed if the inter-broker
    listener needs room.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        clock: Clock,
        connections: Callable[[], Iterable[ServerConnection]],
    ) -> None:
        self.limits = limits
        self._clock = clock
        self._connections = connections
        self._queues: dict[str, _AcceptQueue] = {}
        self._is_closed = False
        self._admitted: dict[int, tuple[str, str]] = {}
        """Connection number -> listener and address of an admitted connection."""

    def shut(self) -> None:
        """Admit no connections until `open`: the node is not ready to serve."""
        self._is_closed = True

    def open(self) -> None:
        """Admit waiting connections, within the limits."""
        self._is_closed = False
        self.recheck()

    def on_connection(self, connection: ServerConnection) -> None:
        """A new connection: admit it, or queue it."""
        queue = self._queues.setdefault(connection.listener, _AcceptQueue())
        if queue.waiting:
            self._enqueue(queue, connection)
        elif not self._may_admit(queue, connection.listener):
            self._enqueue(queue, connection)
            self._schedule(connection.listener, queue)
        else:
            self._admit(connection)

    def left(self, connection: ServerConnection) -> None:
        """A connection closed: others may be admitted."""
        known = self._admitted.pop(connection.number, None)
        if known is None:
            return
        self.limits.leave(*known)
        self.recheck()

    def recheck(self) -> None:
        """Admit waiting connections, within the limits, which may have changed."""
        for listener, queue in self._queues.items():
            if queue.waiting:
                self._admit_waiting(listener)

    def _may_admit(self, queue: _AcceptQueue, listener: str) -> bool:
        """Charge the creation rate for the next connection, and return whether it is admitted
        now.
        """
        now_ms = self._clock.monotonic_ms()
        queue.not_before_ms = now_ms + self.limits.pause_ms(listener, now_ms)
        return self._is_free(queue, listener)

    def _is_free(self, queue: _AcceptQueue, listener: str) -> bool:
        return (
            not self._is_closed
            and self._clock.monotonic_ms() >= queue.not_before_ms
            and self.limits.has_room(listener)
        )

    @staticmethod
    def _enqueue(queue: _AcceptQueue, connection: ServerConnection) -> None:
        connection.pause_writing()
        queue.waiting.append(connection)

    def _schedule(self, listener: str, queue: _AcceptQueue) -> None:
        wait_ms = queue.not_before_ms - self._clock.monotonic_ms()
        if wait_ms > 0:
            asyncio.get_running_loop().call_later(wait_ms / 1000, self._admit_waiting, listener)

    def _admit_waiting(self, listener: str) -> None:
        """Admit as many waiting connections as possible."""
        queue = self._queues[listener]
        while queue.waiting and self._is_free(queue, listener):
            first = queue.waiting.popleft()
            self._admit(first)
            first.resume_writing()
            if queue.waiting:
                self._may_admit(queue, listener)
        if queue.waiting:
            self._schedule(listener, queue)

    def _admit(self, connection: ServerConnection) -> None:
        if connection.close_reason is not None:
            return  # closed while it waited
        ip = connection.peer.rpartition(":")[0]
        away = self.limits.enter(connection.listener, ip, self._clock.monotonic_ms())
        if away is None:
            self._admitted[connection.number] = (connection.listener, ip)
            self._close_idle()
        elif away.after_ms:
            connection.pause_writing()
            asyncio.get_running_loop().call_later(
                away.after_ms / 1000, connection.close, REASON_TOO_MANY
            )
        else:
            connection.close(REASON_TOO_MANY)

    def _close_idle(self) -> None:
        """A connection of the inter-broker listener exceeded the limit: close the connection of
        another listener that has been idle longest.
        """
        if not self.limits.are_too_many:
            return
        others = [
            each
            for each in self._connections()
            if each.number in self._admitted
            and self.limits.may_go(each.listener)
            and not each.close_reason
        ]
        if others:
            min(others, key=lambda each: (each.last_received, each.number)).close(REASON_TOO_MANY)


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
        self._server: FrameServer | None = None
        """What serves all connections, once they are open."""
        self._in_front: Callable[[FrameServer], FrameServer] | None = None
        self.on_closed: Callable[[int], None] | None = None
        """Called with the number of each connection that has ended."""

    @property
    def connection_count(self) -> int:
        """The number of connected clients."""
        return len(self._connections)

    def connections(self) -> Iterable[ServerConnection]:
        """Return the connections of all clients, in the order in which they were opened."""
        return list(self._connections.values())

    def put_in_front(self, in_front: Callable[[FrameServer], FrameServer]) -> None:
        """Put something between all connections, present and future ones, and the node, such as
        faults of requests.
        """
        self._in_front = in_front
        if self._server is not None:
            self._server = in_front(self._server)
            for connection in self._connections.values():
                connection.serve_by(self._server)

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
        self._server = server if self._in_front is None else self._in_front(server)
        for endpoint in endpoints:
            try:
                await self._open(endpoint)
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

    async def _open(self, endpoint: ListenerEndpoint) -> None:
        loop = asyncio.get_running_loop()
        security = self._shell.security

        def accept() -> ServerConnection:
            server = self._server
            assert server is not None, "set by `open`"
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
        if self._server is not None and connection.server is not self._server:
            connection.serve_by(self._server)  # put in front during a TLS handshake
        self.admission.on_connection(connection)

    def _on_handshake_failed(self, listener: str, reason: str) -> None:
        if not self._shell.is_dead:
            self._shell.world.emit(TlsHandshakeFailed(listener=listener, reason=reason))

    def _forget(self, connection: ServerConnection) -> None:
        self._connections.pop(connection.number, None)
        self.admission.left(connection)
        if self.on_closed is not None:
            self.on_closed(connection.number)

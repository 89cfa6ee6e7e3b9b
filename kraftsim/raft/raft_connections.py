"""Connections of a replica to the other replicas: one per node, opened on demand, with API version
negotiation.

A request fails if its connection cannot be made, closes, or times out; the Raft rules decide about
retries. After a refused connection, attempts to a peer back off exponentially.
Source: kafka.raft.KafkaNetworkChannel, org.apache.kafka.clients.{NetworkClient,
ClusterConnectionStates}.
"""

from collections.abc import Callable, Mapping

from kraftsim.raft.rules_effects import Send
from kraftsim.raft.rules_messages import fitted_request, is_unknown_pre_vote
from kraftsim.raft.rules_voters import Address
from kraftsim.server.outbound import NoCommonVersion, PeerConnection, VersionRange, api_key_of
from kraftsim.server.shell import NodeShell
from kraftsim.version import __version__
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.schema import Message

RECONNECT_BACKOFF_MS = 50
RECONNECT_BACKOFF_MAX_MS = 500
DOUBLINGS_MAX = 10
JITTER = 0.2
OnAnswer = Callable[[int, Message], None]
OnFailure = Callable[[int, bool], None]


class _Link:
    """A connection or connection attempt to one node, with the requests that wait for it."""

    __slots__ = ("address", "connection", "failures", "is_connecting", "next_attempt_ms", "waiting")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.connection: PeerConnection | None = None
        self.is_connecting = False
        self.waiting: list[Send] = []
        self.failures = 0
        self.next_attempt_ms = 0


class RaftConnections:
    """`on_answer(number, body)` or `on_failure(number, is_unsupported)` is called once for each
    sent request.
    """

    def __init__(
        self,
        shell: NodeShell,
        own_versions: Mapping[int, VersionRange],
        on_answer: OnAnswer,
        on_failure: OnFailure,
    ) -> None:
        self._shell = shell
        self._own_versions = own_versions
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._links: dict[int, _Link] = {}
        self._rng = shell.world.random("raft reconnects")
        self._timeout_ms = shell.config.controller_quorum_request_timeout_ms

    def send(self, send: Send) -> None:
        """Send a request to a node."""
        link = self._links.get(send.node_id)
        if link is None or link.address != send.address:
            if link is not None:
                self._disconnect(link)
            link = self._links[send.node_id] = _Link(send.address)
        if link.connection is not None and link.connection.is_open:
            self._ask(link.connection, send)
            return
        if link.next_attempt_ms > self._shell.world.clock.monotonic_ms():
            self._on_failure(send.number, False)
            return
        link.waiting.append(send)
        if not link.is_connecting:
            link.is_connecting = True
            self._shell.tasks.spawn(self._connect(link), f"connect-raft-{send.node_id}")

    def is_migration_ready(self, node_id: int) -> bool | None:
        """Return whether a node reported that it is ready for a migration from ZooKeeper; None
        while there is no connection to it.
        """
        link = self._links.get(node_id)
        return (
            None
            if link is None or link.connection is None or not link.connection.is_open
            else link.connection.is_migration_ready
        )

    def close(self) -> None:
        """Close all connections."""
        links, self._links = list(self._links.values()), {}
        for link in links:
            self._disconnect(link)

    def abort(self) -> None:
        """Abort all connections, as a killed process would."""
        for link in self._links.values():
            link.waiting.clear()
            if link.connection is not None:
                link.connection.abort()

    async def _connect(self, link: _Link) -> None:
        shell = self._shell
        connection = link.connection = PeerConnection(
            link.address.host,
            link.address.port,
            client_id=f"raft-client-{shell.config.node_id}",
            world=shell.world,
            request_timeout_ms=self._timeout_ms,
            own_versions=self._own_versions,
            frame_events=shell.config.frame_events,
            number=shell.next_connection_number(),
            local_host=shell.config.outgoing_host,
            security=shell.security.to_controllers,
        )
        try:
            await connection.connect(timeout_ms=self._timeout_ms)
        except OSError:
            link.is_connecting = False
            self._back_off(link)
            self._fail_waiting(link)
            return
        link.is_connecting = False
        link.failures = 0
        waiting, link.waiting = link.waiting, []
        for send in waiting:
            self._ask(connection, send)

    def _ask(self, connection: PeerConnection, send: Send) -> None:
        def on_outcome(outcome: Message | OSError) -> None:
            if isinstance(outcome, OSError):
                self._on_failure(send.number, False)
            else:
                self._on_answer(send.number, outcome)

        body = send.body
        if isinstance(body, ApiVersionsRequest):
            body.client_software_name, body.client_software_version = "kraftsim", __version__
        try:
            kind: type = type(body)
            version = connection.version_for(api_key_of(kind))
            if is_unknown_pre_vote(body, version):
                self._on_failure(send.number, True)
                return
            connection.send(fitted_request(body, version), on_outcome, api_version=version)
        except NoCommonVersion:
            self._on_failure(send.number, True)
        except OSError:
            self._on_failure(send.number, False)

    def _back_off(self, link: _Link) -> None:
        pause_ms = min(
            RECONNECT_BACKOFF_MAX_MS, RECONNECT_BACKOFF_MS << min(link.failures, DOUBLINGS_MAX)
        )
        pause_ms = int(pause_ms * (1 + JITTER * (2 * self._rng.random() - 1)))
        link.failures += 1
        link.next_attempt_ms = self._shell.world.clock.monotonic_ms() + pause_ms

    def _disconnect(self, link: _Link) -> None:
        if link.connection is not None:
            link.connection.close()
        self._fail_waiting(link)

    def _fail_waiting(self, link: _Link) -> None:
        waiting, link.waiting = link.waiting, []
        for send in waiting:
            self._on_failure(send.number, False)

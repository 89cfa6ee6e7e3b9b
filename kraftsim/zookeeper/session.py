"""A broker's session with ZooKeeper: an expired session is replaced by a new one, and dependents
are notified in order.

Source: kafka.zookeeper.ZooKeeperClient (reinitialize, stateChangeHandlers),
kafka.zk.KafkaZkClient.retryRequestsUntilConnected.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kraftsim.server.config import NodeConfig
from kraftsim.server.shell import NodeShell
from kraftsim.zookeeper.client import SessionState, ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.events import BrokerSessionBegan, BrokerSessionLost
from protocol.zookeeper.op_codes import EventType, ZookeeperError

T = TypeVar("T")
OnEvent = Callable[[EventType, str], None]


class ZookeeperUnreachable(OSError):
    """No ZooKeeper server accepted this node within zookeeper.connection.timeout.ms."""


class ZookeeperSession:
    """`on_expired` is called immediately when the session expires, `on_renewed` is awaited when a
    new session is established.
    """

    def __init__(
        self,
        shell: NodeShell,
        on_expired: Callable[[], None],
        on_renewed: Callable[[], Awaitable[None]],
    ) -> None:
        self._shell = shell
        self._on_expired = on_expired
        self._on_renewed = on_renewed
        self._listeners: list[OnEvent] = []
        self._is_over = False
        self._connected = asyncio.Event()
        self.former_session = 0
        """The previous session: its ephemeral znodes belong to this broker."""
        self.client = self._new_client()

    def listen(self, on_event: OnEvent) -> None:
        """Register a callback for all watch events of this and later sessions; watches must be set
        again after `on_renewed`.
        """
        self._listeners.append(on_event)

    async def start(self) -> None:
        """Open a session.

        Raises ZookeeperUnreachable, and ConfigError if the chroot cannot be created.
        """
        config = self._shell.config
        self.client.start()
        timeout_ms = config.zookeeper_connection_timeout_ms
        timeout_ms = config.zookeeper_session_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._connected.wait()
        except TimeoutError as timeout:
            self.client.abort()
            raise ZookeeperUnreachable(
                f"zookeeper.connect: no server of {config.zookeeper_connect} accepted this "
                f"broker within {timeout_ms} ms"
            ) from timeout

    async def until_connected(self, work: Callable[[ZookeeperClient], Awaitable[T]]) -> T:
        """Run `work`, and retry it after a lost connection, when it may have happened already.

        Raises ZookeeperRefused.
        """
        while True:
            try:
                return await work(self.client)
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.CONNECTION_LOSS or self._is_over:
                    raise

    async def until_there_is_one(self) -> None:
        """Return immediately if there is a session, otherwise when a new one is established."""
        await self._connected.wait()

    async def close(self) -> None:
        """Close the session, which deletes its ephemeral znodes immediately."""
        self._is_over = True
        await self.client.close()

    def abort(self) -> None:
        """Drop the connection immediately, as a killed process would: the session ends when it
        times out.
        """
        self._is_over = True
        self.client.abort()

    def _new_client(self) -> ZookeeperClient:
        config: NodeConfig = self._shell.config
        return ZookeeperClient(
            self._shell.world,
            config.zookeeper.servers,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            on_event=self._dispatch_event,
            on_state=self._on_state,
            local_host=config.outgoing_host,
            chroot=config.zookeeper.chroot,
        )

    def _dispatch_event(self, event_type: EventType, path: str) -> None:
        for listener in self._listeners:
            listener(event_type, path)

    def _on_state(self, state: SessionState) -> None:
        if self._is_over or self._shell.is_dead:
            return
        if state is SessionState.CONNECTED:
            self._connected.set()
        elif state is SessionState.EXPIRED:
            self._shell.world.emit(BrokerSessionLost(session=self.client.session))
            self._connected.clear()
            self._on_expired()
            self._shell.tasks.spawn(self._renew(), "zookeeper-session-renewal")

    async def _renew(self) -> None:
        """Establish a new session, however long that takes."""
        self.former_session = self.client.session
        self.client = self._new_client()
        self.client.start()
        await self._connected.wait()
        self.emit_session_started()
        await self._on_renewed()

    def emit_session_started(self) -> None:
        """Emit an event for the start of a session."""
        self._shell.world.emit(
            BrokerSessionBegan(
                session=self.client.session, timeout_ms=self.client.session_timeout_ms
            )
        )

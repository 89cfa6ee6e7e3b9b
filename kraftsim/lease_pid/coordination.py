"""Shared state of lease_pid servers in ZooKeeper: live brokers, partition leaders, in-sync
replicas, and the producer-id counter.

The counter is advanced by compare-and-set; if the outcome of a write is unknown, its ids are not
used.
Source: the lease_pid draft; KIP-98 for the counter.
"""

from typing import Final

from kraftsim.lease_pid.replica import PartitionState
from kraftsim.lease_pid.rules_broker import NumberBlock
from kraftsim.lease_pid.settings import Address
from kraftsim.world.interface import World
from kraftsim.zookeeper.client import SessionState, ZookeeperClient, ZookeeperRefused
from protocol.zookeeper.op_codes import CreateMode, ZookeeperError

ROOT: Final = "/lease_pid"
COUNTER: Final = f"{ROOT}/next_id"
BROKERS: Final = f"{ROOT}/brokers"
STATES: Final = f"{ROOT}/partitions"
UNKNOWN_OUTCOME: Final = (ZookeeperError.CONNECTION_LOSS, ZookeeperError.OPERATION_TIMEOUT)


class Coordination:
    """A sequence of ZooKeeper sessions; all methods raise ZookeeperRefused while there is none."""

    def __init__(
        self, world: World, addresses: tuple[Address, ...], broker_id: int, session_timeout_ms: int
    ) -> None:
        self._world = world
        self._addresses = addresses
        self._broker_id = broker_id
        self._session_timeout_ms = session_timeout_ms
        self._registered_session = 0
        self._client = self._new_client()

    @property
    def is_connected(self) -> bool:
        """Whether the session is known to be alive."""
        return self._client.state is SessionState.CONNECTED

    def start(self) -> None:
        """Start connecting to ZooKeeper."""
        self._client.start()

    async def close(self) -> None:
        """Close the session: ephemeral znodes are deleted immediately."""
        await self._client.close()

    def abort(self) -> None:
        """Drop the connection: the session ends when it times out."""
        self._client.abort()

    async def register(self) -> None:
        """Register this broker, once per session, and create the parent znodes."""
        if self._client.state is SessionState.EXPIRED:
            self._client = self._new_client()
            self._client.start()
        if self._registered_session == self._client.session != 0:
            return
        for path in (ROOT, BROKERS, STATES):
            await self._make(path, b"")
        await self._make(COUNTER, b"0")
        path = f"{BROKERS}/{self._broker_id}"
        stat = await self._client.exists(path)
        if stat is not None and stat.ephemeral_owner != self._client.session:
            await self._client.delete(path)  # of this broker's previous incarnation
            stat = None
        if stat is None:
            await self._client.create(path, b"", CreateMode.EPHEMERAL)
        self._registered_session = self._client.session

    async def live_brokers(self) -> tuple[int, ...]:
        """Return the ids of live brokers."""
        names, _ = await self._client.children(BROKERS)
        return tuple(sorted(map(int, names)))

    async def state_of(self, topic: str, partition: int) -> PartitionState | None:
        """Return the state of a partition; None: it was never written."""
        try:
            data, stat = await self._client.get(f"{STATES}/{topic}-{partition}")
        except ZookeeperRefused as refused:
            if refused.error == ZookeeperError.NO_NODE:
                return None
            raise
        return PartitionState.parse(data or b"", stat.version)

    async def propose(
        self, topic: str, partition: int, state: PartitionState, known: PartitionState | None
    ) -> PartitionState | None:
        """Replace the known state of a partition; None: it has changed meanwhile."""
        path = f"{STATES}/{topic}-{partition}"
        try:
            if known is None:
                await self._client.create(path, state.text())
                version = 0
            else:
                version = (await self._client.set(path, state.text(), known.version)).version
        except ZookeeperRefused as refused:
            if refused.error in (ZookeeperError.BAD_VERSION, ZookeeperError.NODE_EXISTS):
                return None
            raise
        return PartitionState(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            in_sync=state.in_sync,
            version=version,
        )

    async def allocate_ids(self, count: int) -> NumberBlock:
        """Allocate ids from the counter.

        An allocation with unknown outcome is skipped, and followed by another.
        """
        while True:
            data, stat = await self._client.get(COUNTER)
            first = int(data or b"0")
            try:
                await self._client.set(COUNTER, str(first + count).encode(), stat.version)
            except ZookeeperRefused as refused:
                if refused.error in (ZookeeperError.BAD_VERSION, *UNKNOWN_OUTCOME):
                    continue
                raise
            return NumberBlock(first_number=first, next_number=first + count)

    async def _make(self, path: str, data: bytes) -> None:
        try:
            await self._client.create(path, data)
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.NODE_EXISTS:
                raise

    def _new_client(self) -> ZookeeperClient:
        return ZookeeperClient(
            self._world, self._addresses, session_timeout_ms=self._session_timeout_ms
        )

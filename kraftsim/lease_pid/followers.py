"""Replica management of a server: watches live brokers, takes leadership, replicates from leaders,
and changes the in-sync replicas.

Source: the lease_pid draft leaves all of this as it is in Kafka; KIP-101 for diverging logs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kraftsim.lease_pid.events import LeasedLogTruncated, LeasedPartitionLed
from kraftsim.lease_pid.links import ClientLink
from kraftsim.lease_pid.replica import NO_LEADER, LeaseReplica, PartitionState
from kraftsim.lease_pid.rules_broker import NumberBlock
from kraftsim.lease_pid.settings import Address, LeaseSettings
from kraftsim.world.interface import World
from kraftsim.zookeeper.client import SessionState, ZookeeperClient, ZookeeperRefused
from protocol.errors import ErrorCode
from protocol.lease_pid.messages import LeaseApi, LeasedFetchRequest, LeasedFetchResponse
from protocol.zookeeper.op_codes import CreateMode, ZookeeperError

# --------------------------------------------------------------------------------------------------
# Shared state of lease_pid servers in ZooKeeper: live brokers, partition leaders, in-sync replicas,
# and the producer-id counter
#
# The counter is advanced by compare-and-set; if the outcome of a write is unknown, its ids are not
# used.
# Source: the lease_pid draft; KIP-98 for the counter.

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


LOOK_SECONDS: Final = 0.1
FETCH_WAIT_MS: Final = 100
CALL_SECONDS: Final = 2.0


class ReplicaManager:
    """The replica management tasks of one server. `on_truncated` is called after a log was
    truncated.
    """

    def __init__(
        self,
        world: World,
        settings: LeaseSettings,
        coordination: Coordination,
        replicas: Mapping[tuple[str, int], LeaseReplica],
        on_truncated: Callable[[], Awaitable[None]],
    ) -> None:
        self._world = world
        self._settings = settings
        self._coordination = coordination
        self._replicas = replicas
        self._on_truncated = on_truncated
        self._states: dict[tuple[str, int], PartitionState] = {}

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the last known leader of a partition."""
        state = self._states.get((topic, partition))
        return state.leader if state is not None else NO_LEADER

    async def run(self) -> None:
        """Refresh periodically.

        While ZooKeeper is unavailable nothing changes: a candidate leader waits for this server, or
        is in sync.
        """
        while True:
            try:
                await self._coordination.register()
                await self._refresh()
            except ZookeeperRefused:
                pass
            await asyncio.sleep(LOOK_SECONDS)

    async def _refresh(self) -> None:
        live = await self._coordination.live_brokers()
        for topic, count in self._settings.topics.items():
            for partition in range(count):
                state = await self._coordination.state_of(topic, partition)
                replica = self._replicas.get((topic, partition))
                if replica is not None:
                    state = await self._decide(replica, state, live)
                if state is not None:
                    self._states[topic, partition] = state

    async def _decide(
        self, replica: LeaseReplica, state: PartitionState | None, live: tuple[int, ...]
    ) -> PartitionState | None:
        """Become leader if this server is elected, maintain the in-sync replicas as leader, or
        follow.
        """
        mine = self._settings.broker_id
        replicas = self._settings.replicas_of(replica.partition)
        if state is None:
            if replicas[0] != mine:
                return None
            first = PartitionState(
                leader=mine,
                leader_epoch=0,
                in_sync=tuple(each for each in replicas if each in live),
            )
            state = await self._coordination.propose(replica.topic, replica.partition, first, None)
        elif (
            replica.state is None
            and mine in state.in_sync
            and any(each in live for each in state.in_sync if each != mine)
        ):
            state = await self._leave_in_sync(replica, state, live)
        elif state.leader not in live and mine == next(
            (each for each in state.in_sync if each in live), NO_LEADER
        ):
            in_sync = tuple(each for each in state.in_sync if each in live)
            taken = PartitionState(
                leader=mine, leader_epoch=state.leader_epoch + 1, in_sync=in_sync
            )
            state = (
                await self._coordination.propose(replica.topic, replica.partition, taken, state)
                or state
            )
        if state is not None and state.leader == mine:
            return await self._lead(replica, state, replicas, live)
        if replica.is_led or replica.state != state:
            replica.follow(state)
        return state

    async def _leave_in_sync(
        self, replica: LeaseReplica, state: PartitionState, live: tuple[int, ...]
    ) -> PartitionState:
        """Leave the in-sync replicas: this server has restarted, and may have lost unflushed
        messages that the others have.
        """
        others = tuple(
            each for each in state.in_sync if each in live and each != self._settings.broker_id
        )
        is_leader = state.leader == self._settings.broker_id
        given = PartitionState(
            leader=others[0] if is_leader else state.leader,
            leader_epoch=state.leader_epoch + is_leader,
            in_sync=others,
        )
        return (
            await self._coordination.propose(replica.topic, replica.partition, given, state)
            or state
        )

    async def _lead(
        self,
        replica: LeaseReplica,
        state: PartitionState,
        replicas: list[int],
        live: tuple[int, ...],
    ) -> PartitionState:
        if (
            not replica.is_led
            or replica.state is None
            or replica.state.leader_epoch != state.leader_epoch
        ):
            if self._settings.broker_id in live:
                # A leader that restarts under its own leadership begins a new epoch: followers must
                # not mistake its log for the earlier one.
                if replica.state is None and state.version > 0:
                    renewed = PartitionState(
                        leader=state.leader,
                        leader_epoch=state.leader_epoch + 1,
                        in_sync=state.in_sync,
                    )
                    proposed = await self._coordination.propose(
                        replica.topic, replica.partition, renewed, state
                    )
                    if proposed is None:
                        return state
                    state = proposed
                replica.lead(state, replicas, self._settings.broker_id)
                self._world.emit(
                    LeasedPartitionLed(
                        topic=replica.topic,
                        partition=replica.partition,
                        leader_epoch=state.leader_epoch,
                        end_offset=replica.log.end_offset,
                    )
                )
            return state
        return await self._change_in_sync(replica, state)

    async def _change_in_sync(self, replica: LeaseReplica, state: PartitionState) -> PartitionState:
        """Remove lagging replicas, and add those that caught up; the high watermark passes a
        replica only once it is removed.
        """
        now_ms = self._world.clock.monotonic_ms()
        lagging = {
            number
            for number, facts in replica.followers.items()
            if now_ms - facts.caught_up_ms > self._settings.lag_max_ms
        }
        replica.joining = {
            number
            for number, facts in replica.followers.items()
            if number not in state.in_sync
            and number not in lagging
            and facts.next_offset >= replica.high_watermark
            and facts.next_offset >= 0
        }
        in_sync = tuple(each for each in state.in_sync if each not in lagging) + tuple(
            sorted(replica.joining)
        )
        if in_sync != state.in_sync:
            wanted = PartitionState(
                leader=state.leader, leader_epoch=state.leader_epoch, in_sync=in_sync
            )
            state = (
                await self._coordination.propose(replica.topic, replica.partition, wanted, state)
                or state
            )
        if replica.is_led:
            replica.state = state
            replica.joining.clear()
            replica.advance_high_watermark()
            replica.wake()
        return state

    # Replication
    # ----------------------------------------------------------------------------------------------

    async def copy(self, replica: LeaseReplica) -> None:
        """Fetch from the leader, as long as this server is a follower."""
        link: ClientLink | None = None
        linked_to = NO_LEADER
        while True:
            state = replica.state
            if (
                replica.is_led
                or state is None
                or state.leader in (NO_LEADER, self._settings.broker_id)
            ):
                await self._pause(replica)
                continue
            try:
                if link is None or not link.is_open or linked_to != state.leader:
                    if link is not None:
                        link.abort()
                    host, port = self._settings.brokers[state.leader]
                    link = await ClientLink.open(
                        f"broker-{self._settings.broker_id}", host, port, CALL_SECONDS
                    )
                    linked_to = state.leader
                request = LeasedFetchRequest(
                    replica_id=self._settings.broker_id,
                    topic=replica.topic,
                    partition=replica.partition,
                    leader_epoch=state.leader_epoch,
                    offset=replica.log.end_offset,
                    last_epoch=replica.log.last_epoch,
                    max_wait_ms=FETCH_WAIT_MS,
                )
                answer: LeasedFetchResponse = await link.ask(LeaseApi.FETCH, request, CALL_SECONDS)
            except OSError:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            if (
                replica.is_led
                or replica.state is None
                or replica.state.leader_epoch != state.leader_epoch
            ):
                continue  # the response is from an earlier leader epoch
            await self._append_fetched(replica, answer)

    async def _append_fetched(self, replica: LeaseReplica, answer: LeasedFetchResponse) -> None:
        """Append the fetched messages, or truncate diverging ones."""
        if answer.error_code != ErrorCode.NONE:
            await asyncio.sleep(LOOK_SECONDS)
            return
        if answer.diverging_offset >= 0:
            await self._truncate(replica, answer.diverging_offset)
            return
        now_ms = self._world.clock.wall_ms()
        for found in answer.messages:
            if found.offset == replica.log.end_offset:
                replica.append(found, now_ms)
        replica.high_watermark = max(
            replica.high_watermark, min(answer.high_watermark, replica.log.end_offset)
        )

    async def _truncate(self, replica: LeaseReplica, end_offset: int) -> None:
        replica.log.truncate(end_offset)
        replica.high_watermark = min(replica.high_watermark, end_offset)
        replica.leased.restore(())
        replica.replay(0)
        self._world.emit(
            LeasedLogTruncated(
                topic=replica.topic, partition=replica.partition, end_offset=end_offset
            )
        )
        await self._on_truncated()

    async def _pause(self, replica: LeaseReplica) -> None:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await replica.move()
        except TimeoutError:
            pass

"""Replica management of a server: watches live brokers, takes leadership, replicates from leaders,
and changes the in-sync replicas.

Source: the lease_pid draft leaves all of this as it is in Kafka; KIP-101 for diverging logs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kraftsim.lease_pid.coordination import Coordination
from kraftsim.lease_pid.events import LeasedLogTruncated, LeasedPartitionLed
from kraftsim.lease_pid.links import ClientLink
from kraftsim.lease_pid.replica import NO_LEADER, LeaseReplica, PartitionState
from kraftsim.lease_pid.settings import LeaseSettings
from kraftsim.world.interface import World
from kraftsim.zookeeper.client import ZookeeperRefused
from protocol.errors import ErrorCode
from protocol.lease_pid.frames import LeaseApi
from protocol.lease_pid.messages import LeasedFetchRequest, LeasedFetchResponse

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

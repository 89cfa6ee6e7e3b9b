"""What a server does to keep up with the others: look who is there, lead where it must, copy where it may, and let replicas in and out of sync.

Source: the lease_pid draft leaves all of this to Kafka as it was; KIP-101 for logs that diverge.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from kraftsim.events.lease_pid import LeasedLogCut, LeasedPartitionLed
from kraftsim.node.lease_pid.links import ClientLink
from kraftsim.node.lease_pid.replica import NOBODY, PartitionState, Replica
from kraftsim.node.zookeeper.client import ZookeeperRefused
from protocol.errors import ErrorCode
from protocol.lease_pid.frames import LeaseApi
from protocol.lease_pid.reading import LeasedFetchRequest, LeasedFetchResponse

if TYPE_CHECKING:
    from kraftsim.node.lease_pid.server import LeaseServer

LOOK_SECONDS: Final = 0.1
FETCH_WAIT_MS: Final = 100
CALL_SECONDS: Final = 2.0


class Keeper:
    """The tasks of one server around its replicas."""

    def __init__(self, server: "LeaseServer") -> None:
        self._server = server
        self._settings = server.settings
        self._states: dict[tuple[str, int], PartitionState] = {}

    def leader_of(self, topic: str, partition: int) -> int:
        """Return who was last seen to lead a partition."""
        state = self._states.get((topic, partition))
        return state.leader if state is not None else NOBODY

    async def run(self) -> None:
        """Look again and again. While ZooKeeper is silent everything stays as it is: whoever could take over waits for this server, or is in sync."""
        while True:
            try:
                await self._server.coordination.register()
                await self._look()
            except ZookeeperRefused:
                pass
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        live = await self._server.coordination.live_brokers()
        for topic, count in self._settings.topics.items():
            for partition in range(count):
                state = await self._server.coordination.state_of(topic, partition)
                replica = self._server.replicas.get((topic, partition))
                if replica is not None:
                    state = await self._decide(replica, state, live)
                if state is not None:
                    self._states[topic, partition] = state

    async def _decide(self, replica: Replica, state: PartitionState | None, live: tuple[int, ...]) -> PartitionState | None:
        """Lead if this server is the one, go on leading with whoever keeps up, or follow."""
        mine = self._settings.broker_id
        replicas = self._settings.replicas_of(replica.partition)
        if state is None:
            if replicas[0] != mine:
                return None
            first = PartitionState(leader=mine, leader_epoch=0, in_sync=tuple(each for each in replicas if each in live))
            state = await self._server.coordination.propose(replica.topic, replica.partition, first, None)
        elif replica.state is None and mine in state.in_sync and any(each in live for each in state.in_sync if each != mine):
            state = await self._step_back(replica, state, live)
        elif state.leader not in live and mine == next((each for each in state.in_sync if each in live), NOBODY):
            in_sync = tuple(each for each in state.in_sync if each in live)
            taken = PartitionState(leader=mine, leader_epoch=state.leader_epoch + 1, in_sync=in_sync)
            state = await self._server.coordination.propose(replica.topic, replica.partition, taken, state) or state
        if state is not None and state.leader == mine:
            return await self._lead(replica, state, replicas, live)
        if replica.is_led or replica.state != state:
            replica.follow(state)
        return state

    async def _step_back(self, replica: Replica, state: PartitionState, live: tuple[int, ...]) -> PartitionState:
        """Count as in sync no more: this server has started, and what it had not flushed may be gone. Others have it."""
        others = tuple(each for each in state.in_sync if each in live and each != self._settings.broker_id)
        is_leader = state.leader == self._settings.broker_id
        given = PartitionState(leader=others[0] if is_leader else state.leader, leader_epoch=state.leader_epoch + is_leader, in_sync=others)
        return await self._server.coordination.propose(replica.topic, replica.partition, given, state) or state

    async def _lead(self, replica: Replica, state: PartitionState, replicas: list[int], live: tuple[int, ...]) -> PartitionState:
        if not replica.is_led or replica.state is None or replica.state.leader_epoch != state.leader_epoch:
            if self._settings.broker_id in live:
                # A leader that comes back to its own leadership begins another one: followers must not mistake its log for the one before.
                if replica.state is None and state.version > 0:
                    renewed = PartitionState(leader=state.leader, leader_epoch=state.leader_epoch + 1, in_sync=state.in_sync)
                    proposed = await self._server.coordination.propose(replica.topic, replica.partition, renewed, state)
                    if proposed is None:
                        return state
                    state = proposed
                replica.lead(state, replicas, self._settings.broker_id)
                self._server.world.note(
                    LeasedPartitionLed(
                        topic=replica.topic, partition=replica.partition, leader_epoch=state.leader_epoch, end_offset=replica.log.end_offset
                    )
                )
            return state
        return await self._change_in_sync(replica, state)

    async def _change_in_sync(self, replica: Replica, state: PartitionState) -> PartitionState:
        """Let go of who lags, and take in who has caught up; the mark moves over a replica only once it is out."""
        now_ms = self._server.world.clock.monotonic_ms()
        lagging = {number for number, facts in replica.followers.items() if now_ms - facts.caught_up_ms > self._settings.lag_max_ms}
        replica.joining = {
            number
            for number, facts in replica.followers.items()
            if number not in state.in_sync and number not in lagging and facts.next_offset >= replica.high_watermark and facts.next_offset >= 0
        }
        in_sync = tuple(each for each in state.in_sync if each not in lagging) + tuple(sorted(replica.joining))
        if in_sync != state.in_sync:
            wanted = PartitionState(leader=state.leader, leader_epoch=state.leader_epoch, in_sync=in_sync)
            state = await self._server.coordination.propose(replica.topic, replica.partition, wanted, state) or state
        if replica.is_led:
            replica.state = state
            replica.joining.clear()
            replica.move_mark()
            replica.wake()
        return state

    # Copying ------------------------------------------------------------------------------------------------------------------------------

    async def copy(self, replica: Replica) -> None:
        """Fetch from whoever leads, as long as that is somebody else."""
        link: ClientLink | None = None
        linked_to = NOBODY
        while True:
            state = replica.state
            if replica.is_led or state is None or state.leader in (NOBODY, self._settings.broker_id):
                await self._pause(replica)
                continue
            try:
                if link is None or not link.is_open or linked_to != state.leader:
                    if link is not None:
                        link.abort()
                    host, port = self._settings.brokers[state.leader]
                    link = await ClientLink.open(f"broker-{self._settings.broker_id}", host, port, CALL_SECONDS)
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
            if replica.is_led or replica.state is None or replica.state.leader_epoch != state.leader_epoch:
                continue  # of a leadership that is over
            await self._take(replica, answer)

    async def _take(self, replica: Replica, answer: LeasedFetchResponse) -> None:
        """Append what came, or cut what is not the leader's."""
        if answer.error_code != ErrorCode.NONE:
            await asyncio.sleep(LOOK_SECONDS)
            return
        if answer.diverging_offset >= 0:
            await self._cut(replica, answer.diverging_offset)
            return
        now_ms = self._server.world.clock.wall_ms()
        for found in answer.messages:
            if found.offset == replica.log.end_offset:
                replica.append(found, now_ms)
        replica.high_watermark = max(replica.high_watermark, min(answer.high_watermark, replica.log.end_offset))

    async def _cut(self, replica: Replica, end_offset: int) -> None:
        replica.log.cut(end_offset)
        replica.high_watermark = min(replica.high_watermark, end_offset)
        replica.leased.restore(())
        replica.replay(0)
        self._server.world.note(LeasedLogCut(topic=replica.topic, partition=replica.partition, end_offset=end_offset))
        await self._server.rewrite_snapshot()

    async def _pause(self, replica: Replica) -> None:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await replica.move()
        except TimeoutError:
            pass

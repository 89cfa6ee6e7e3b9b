"""A lease_pid server: serves leases, messages and fetches for the partitions it leads, and
replicates those it follows.

Source: the lease_pid draft.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.lease_pid.events import LeasedServerRecovered, LeaseGranted, LeaseIdsReserved
from kraftsim.lease_pid.followers import Coordination, ReplicaManager
from kraftsim.lease_pid.links import ServerLink
from kraftsim.lease_pid.replica import NO_LEADER, LeaseReplica
from kraftsim.lease_pid.rules_broker import (
    EndsWith,
    IdReserve,
    NeedsIds,
    decide_lease,
    restore,
    snapshot_of,
)
from kraftsim.lease_pid.settings import LeaseSettings
from kraftsim.producer_state.rules_entries import LAST_SEQUENCE
from kraftsim.server.endpoints import ListenerEndpoint
from kraftsim.server.events import ListenerOpened, NodeFailed, NodeStopped
from kraftsim.server.listeners import ListenerError
from kraftsim.server.tasks import NodeTasks
from kraftsim.world.interface import World
from kraftsim.zookeeper.client import ZookeeperRefused
from protocol.errors import ErrorCode
from protocol.lease_pid.messages import (
    ASKS_FOR_ONE,
    GrantedLease,
    LeasedFetchRequest,
    LeasedFetchResponse,
    LeasedLeader,
    LeasedLeadersRequest,
    LeasedLeadersResponse,
    LeasedProduceRequest,
    LeasedProduceResponse,
    LeasePidRequest,
    LeasePidResponse,
    WantedLease,
)
from protocol.lease_pid.stored import StoredSnapshot, build_stored, parse_snapshot
from protocol.malformed import MalformedMessage
from protocol.schema import Message

# --------------------------------------------------------------------------------------------------
# The snapshot of a server: written periodically, and loaded first at startup.
#
# The logs are flushed before it is written: a snapshot must not be newer than the logs after a
# power failure. After a truncation the snapshot may describe truncated messages, so a new one is
# written before the next message.
# Source: the lease_pid draft.

FILE: Final = "leases.snapshot"


class LeaseSnapshots:
    """One file for all partitions of a server."""

    def __init__(
        self, world: World, replicas: Mapping[tuple[str, int], LeaseReplica], interval_ms: int
    ) -> None:
        self._world = world
        self._replicas = replicas
        self._interval_ms = interval_ms

    def recover(self) -> None:
        """Read the logs, and restore the producer state of each partition from snapshot and log.

        Raises OSError.
        """
        snapshot = self.stored()
        messages = replayed = producers = 0
        for where, replica in self._replicas.items():
            replica.log.recover()
            replayed += replica.replay(
                restore(snapshot, where, replica.leased, replica.log.end_offset)
            )
            messages += replica.log.end_offset
            producers += len(replica.leased)
        self._world.emit(
            LeasedServerRecovered(messages=messages, replayed=replayed, producers=producers)
        )

    def stored(self) -> StoredSnapshot | None:
        """Return the snapshot on disk; None if there is no readable one: then logs are replayed
        from the start.
        """
        try:
            return parse_snapshot(self._world.disk.read(FILE))
        except (FileNotFoundError, MalformedMessage):
            return None

    async def run(self) -> None:
        """Write a snapshot periodically."""
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            await self.write()

    async def write(self) -> None:
        """Write a snapshot. Raises OSError."""
        snapshot = snapshot_of(
            {
                where: (replica.leased, replica.log.end_offset)
                for where, replica in self._replicas.items()
            }
        )
        for replica in self._replicas.values():
            await replica.log.flush()
        await self._world.disk.replace(FILE, build_stored(snapshot))


LISTENER: Final = "LEASE"
EXPIRIES_PER_PERIOD: Final = 10
EXPIRY_PAUSE_MAX_S: Final = 60.0


class LeaseServer:
    """Implements `kraftsim.cluster.launch.Node`."""

    def __init__(self, world: World, settings: LeaseSettings) -> None:
        self.world = world
        self.settings = settings
        self.tasks = NodeTasks(self._fail)
        self.replicas: dict[tuple[str, int], LeaseReplica] = {
            (topic, partition): LeaseReplica(world, topic, partition, settings.readings, world.emit)
            for topic, count in settings.topics.items()
            for partition in range(count)
            if settings.broker_id in settings.replicas_of(partition)
        }
        self.coordination = Coordination(
            world, settings.zookeeper, settings.broker_id, settings.session_timeout_ms
        )
        self.port = settings.port
        self.reserve = IdReserve(settings.readings.id_bits)
        self._draw = world.random("first generations")
        self._replicas = ReplicaManager(
            world, settings, self.coordination, self.replicas, self.rewrite_snapshot
        )
        self._snapshots = LeaseSnapshots(world, self.replicas, settings.snapshot_interval_ms)
        self._links: dict[int, ServerLink] = {}
        self._written_by: dict[int, dict[tuple[str, int], dict[int, None]]] = {}
        """The producers that have written over each connection, if leases end with connections."""
        self._server: asyncio.Server | None = None
        self._refilling = asyncio.Lock()
        self._is_dead = False
        self._failure: asyncio.Future[BaseException] | None = None

    # Node lifecycle
    # ----------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> Mapping[str, ListenerEndpoint]:
        """Listener name -> bound endpoint."""
        return (
            {LISTENER: ListenerEndpoint(LISTENER, self.settings.host, self.port)}
            if self._server is not None
            else {}
        )

    async def start(self) -> None:
        """Recover the files and open the listener. Raises ListenerError, OSError kinds."""
        self._failure = asyncio.get_running_loop().create_future()
        self._snapshots.recover()
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: ServerLink(self), self.settings.host, self.settings.port
            )
        except OSError as reason:
            raise ListenerError(
                f"cannot listen on {self.settings.host}:{self.settings.port}: "
                f"{reason.strerror or reason}"
            ) from reason
        self.port = self._server.sockets[0].getsockname()[1]
        self.world.emit(ListenerOpened(listener=LISTENER, host=self.settings.host, port=self.port))
        self.coordination.start()
        self.tasks.spawn(self._replicas.run(), "keep-in-touch")
        self.tasks.spawn(self._snapshots.run(), "snapshots")
        self.tasks.spawn(self._expire(), "expire-leases")
        for replica in self.replicas.values():
            self.tasks.spawn(
                self._replicas.copy(replica), f"copy-{replica.topic}-{replica.partition}"
            )

    async def ready(self) -> None:
        """Wait until every partition has a leader."""
        while not all(
            each.state is not None and each.state.leader != NO_LEADER
            for each in self.replicas.values()
        ):
            await asyncio.sleep(0.02)

    async def failed(self) -> BaseException:
        """Wait until the server fails, and return why."""
        assert self._failure is not None, "it was started"
        return await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """Stop cleanly: close the ZooKeeper session, write a last snapshot, close the files."""
        if self._is_dead:
            return
        if self._server is not None:
            self._server.close()
        for replica in self.replicas.values():
            replica.follow(replica.state)
        await self.coordination.close()
        await self.tasks.join()
        await self._snapshots.write()
        self._end()
        self.world.emit(NodeStopped(reason="stopped"))
        self.world.flush_events()

    def abort(self) -> None:
        """Stop immediately, as a killed process would."""
        if self._is_dead:
            return
        if self._server is not None:
            self._server.close()
        self.tasks.cancel()
        self.coordination.abort()
        self._end()

    async def rewrite_snapshot(self) -> None:
        """Write a new snapshot after a truncation, because the old one may describe truncated
        messages.

        Raises OSError.
        """
        await self._snapshots.write()

    def _end(self) -> None:
        self._is_dead = True
        for link in list(self._links.values()):
            link.abort()
        for replica in self.replicas.values():
            replica.log.close()

    def _fail(self, mistake: BaseException) -> None:
        if self._is_dead:
            return
        self.world.emit(NodeFailed(reason=f"{type(mistake).__name__}: {mistake}"))
        self.world.flush_events()
        self.abort()
        if self._failure is not None and not self._failure.done():
            self._failure.set_result(mistake)

    # Callbacks of connections
    # ----------------------------------------------------------------------------------------------

    def on_made(self, link: ServerLink) -> None:
        """Track a connection, to close it at shutdown."""
        self._links[id(link)] = link

    def on_lost(self, link: ServerLink) -> None:
        """A connection closed.

        If leases end with connections, remove the producers that wrote over it.
        """
        self._links.pop(id(link), None)
        for where, producer_ids in self._written_by.pop(id(link), {}).items():
            self.replicas[where].forget(producer_ids)

    def flush_events(self) -> None:
        """Write pending events before a response is sent."""
        self.world.flush_events()

    def begin(self, body: Message, link: ServerLink) -> Coroutine[None, None, Message]:
        """Do the ordered part of a request immediately, and return the part that may wait."""
        match body:
            case LeasePidRequest():
                return self._lease_all(body)
            case LeasedProduceRequest():
                self._track_producers(body, link)
                return self._produce(body)
            case LeasedFetchRequest():
                return self._fetch(body)
            case LeasedLeadersRequest():
                return self._leaders(body)
            case _:
                raise AssertionError(f"{type(body).__name__} is a request of lease_pid")

    # Leases
    # ----------------------------------------------------------------------------------------------

    async def _lease_all(self, request: LeasePidRequest) -> LeasePidResponse:
        wanted = request.leases or [
            WantedLease(
                topic=request.topic,
                partition=request.partition,
                producer_id=request.producer_id,
                expire_ms=request.expire_ms,
            )
        ]
        granted = [await self._lease(each) for each in wanted]
        if request.leases:
            return LeasePidResponse(leases=granted)
        [one] = granted
        return LeasePidResponse(
            error_code=one.error_code,
            producer_id=one.producer_id,
            generation=one.generation,
            sequence_number=one.sequence_number,
            expire_ms=one.expire_ms,
        )

    async def _lease(self, wanted: WantedLease) -> GrantedLease:
        """Grant one lease; allocate more ids from the counter if none is left."""
        while True:
            replica = self.replicas.get((wanted.topic, wanted.partition))
            if replica is None or not replica.is_led:
                return self._refused(
                    wanted,
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if replica is None
                    else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                )
            replica.expire(self.world.clock.wall_ms())
            found = decide_lease(
                replica.leased,
                self.reserve,
                producer_id=wanted.producer_id,
                expire_ms=wanted.expire_ms,
                is_check=wanted.is_check,
                drawn_generation=lambda: self._draw.randint(0, LAST_SEQUENCE),
            )
            if isinstance(found, Refusal):
                return self._refused(wanted, found.error)
            if isinstance(found, NeedsIds):
                try:
                    await self._refill()
                except ZookeeperRefused:
                    return self._refused(wanted, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                continue
            # Messages that are not on all in-sync replicas may be lost: they must not affect a
            # response before.
            if wanted.producer_id != ASKS_FOR_ONE and not await replica.replicated(
                replica.log.end_offset, self.settings.session_timeout_ms
            ):
                return self._refused(wanted, ErrorCode.REQUEST_TIMED_OUT)
            self.world.emit(
                LeaseGranted(
                    topic=wanted.topic,
                    partition=wanted.partition,
                    producer_id=found.producer_id,
                    generation=found.generation,
                    sequence_number=found.sequence_number,
                    is_new=wanted.producer_id == ASKS_FOR_ONE,
                    is_check=wanted.is_check,
                )
            )
            return GrantedLease(
                topic=wanted.topic,
                partition=wanted.partition,
                producer_id=found.producer_id,
                generation=found.generation,
                sequence_number=found.sequence_number,
                expire_ms=found.expire_ms,
            )

    async def _refill(self) -> None:
        """Allocate another block of ids, unless a concurrent request has just done so.

        Raises ZookeeperRefused.
        """
        async with self._refilling:
            if self.reserve.left:
                return
            block = await self.coordination.allocate_ids(self.settings.readings.ids_per_block)
            self.reserve.take(block)
            self.world.emit(
                LeaseIdsReserved(first_number=block.first_number, next_number=block.next_number)
            )

    def _refused(self, wanted: WantedLease, error: ErrorCode) -> GrantedLease:
        return GrantedLease(
            topic=wanted.topic,
            partition=wanted.partition,
            error_code=error,
            producer_id=wanted.producer_id,
        )

    async def _expire(self) -> None:
        period_s = min(
            self.settings.readings.expire_ms / 1000 / EXPIRIES_PER_PERIOD, EXPIRY_PAUSE_MAX_S
        )
        while True:
            await asyncio.sleep(period_s)
            for replica in self.replicas.values():
                replica.expire(self.world.clock.wall_ms())

    # Messages
    # ----------------------------------------------------------------------------------------------

    def _track_producers(self, request: LeasedProduceRequest, link: ServerLink) -> None:
        """Track the producers of a connection, if leases end with connections."""
        where = (request.topic, request.partition)
        if self.settings.readings.ends_with is EndsWith.CONNECTION and where in self.replicas:
            written = self._written_by.setdefault(id(link), {}).setdefault(where, {})
            written.update(dict.fromkeys(message.producer_id for message in request.messages))

    def _produce(
        self, request: LeasedProduceRequest
    ) -> Coroutine[None, None, LeasedProduceResponse]:
        """Append immediately, in request order; then wait for replication."""
        replica = self.replicas.get((request.topic, request.partition))
        if replica is None or not replica.is_led:
            error = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if replica is None
                else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
            return self._produced(None, LeasedProduceResponse(error_code=error), 0, 0)
        answer, end_offset = replica.write(request)
        return self._produced(replica, answer, end_offset, request.timeout_ms)

    async def _produced(
        self,
        replica: LeaseReplica | None,
        answer: LeasedProduceResponse,
        end_offset: int,
        timeout_ms: int,
    ) -> LeasedProduceResponse:
        if replica is None or not answer.taken or await replica.replicated(end_offset, timeout_ms):
            return answer
        return LeasedProduceResponse(
            error_code=ErrorCode.REQUEST_TIMED_OUT
            if replica.is_led
            else ErrorCode.NOT_LEADER_OR_FOLLOWER
        )

    async def _fetch(self, request: LeasedFetchRequest) -> LeasedFetchResponse:
        replica = self.replicas.get((request.topic, request.partition))
        error = ErrorCode.NONE
        if replica is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not replica.is_led or replica.state is None:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif request.replica_id >= 0 and request.leader_epoch != replica.state.leader_epoch:
            is_older = request.leader_epoch < replica.state.leader_epoch
            error = ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH
        elif request.offset < 0:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        if error or replica is None:
            return LeasedFetchResponse(error_code=error)
        answer = replica.read(request)
        if answer.messages or answer.diverging_offset >= 0 or request.max_wait_ms <= 0:
            return answer
        mark = replica.high_watermark
        try:
            async with asyncio.timeout(request.max_wait_ms / 1000):
                while (
                    replica.is_led
                    and replica.log.end_offset <= request.offset
                    and replica.high_watermark <= mark
                ):
                    await replica.move()
        except TimeoutError:
            pass
        return (
            replica.read(request)
            if replica.is_led
            else LeasedFetchResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        )

    async def _leaders(self, request: LeasedLeadersRequest) -> LeasedLeadersResponse:
        count = self.settings.topics.get(request.topic)
        if count is None:
            return LeasedLeadersResponse(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        answer = LeasedLeadersResponse()
        for partition in range(count):
            leader = self._replicas.leader_of(request.topic, partition)
            host, port = self.settings.brokers.get(leader, ("", 0))
            answer.partitions.append(
                LeasedLeader(partition=partition, leader_id=leader, host=host, port=port)
            )
        return answer

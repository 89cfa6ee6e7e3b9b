"""The fetcher for one leader broker: one Fetch after the other for all partitions, and ListOffsets
for those that are out of range.

If the connection fails, every partition backs off for replica.fetch.backoff.ms; if one partition
has an error, only that one does.
Source: AbstractFetcherThread, ReplicaFetcherThread, RemoteLeaderEndPoint.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from kraftsim.partitions.events import ReplicationFailed
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.rules_fetch_sessions import FetchPlan, FetchSessionClient, ReadKey
from kraftsim.partitions.rules_follower import (
    IGNORE,
    Accept,
    AskForOffsets,
    BackOff,
    Diverging,
    FetchWish,
    Following,
    Halt,
    NextStep,
    OffsetWish,
    RebuildFromTier,
    RestartAt,
    TruncateTo,
)
from kraftsim.partitions.rules_log import NO_LEADER_EPOCH
from kraftsim.partitions.throttles import ReplicationThrottle
from kraftsim.server.outbound import PeerConnection, VersionRange
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import YieldPoint
from kraftsim.zookeeper.rules_control_requests import is_derived
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from protocol.messages.k02_list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.records.record import MalformedBatch

FIRST_FETCH_WITH_LAST_EPOCH = 12
FIRST_FETCH_WITH_TOPIC_IDS = 13
FIRST_FETCH_WITH_REPLICA_STATE = 15
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
EMPTY = b""
PartitionKey = tuple[str, int]


Rebuild = Callable[[HostedPartition, Following, PeerConnection, int], Awaitable[str | None]]


@dataclass(slots=True)
class _FetchState:
    """The fetch state of a partition; it is not fetched before `not_before_ms` of the monotonic
    clock.

    `lag`: the number of records behind the high watermark in the last response; with 0 the replica
    is in sync as far as it knows. `is_compared`: the log is known to be a prefix of the leader's.
    Before 2.7 Fetch does not return a diverging epoch, so that this is checked by
    OffsetForLeaderEpoch first.
    """

    hosted: HostedPartition
    following: Following
    not_before_ms: int = 0
    lag: int | None = None
    is_compared: bool = False
    asked: tuple[FetchWish, int, FetchPartition] | None = None
    """The last fetch position, the request version, and the row built from both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherPorts:
    """What a fetcher needs of its broker.

    `address` returns the leader's endpoint, None if it is not known to be alive.
    """

    address: Callable[[], tuple[str, int] | None]
    broker_epoch: Callable[[], int]
    directory_id: bytes
    own_versions: dict[int, VersionRange]
    on_moved: Callable[[PartitionKey], None]
    disk_failed: Callable[[str, str, OSError], None]
    throttle: ReplicationThrottle
    rebuild: Rebuild
    """Restarts a replica after the offsets that are in remote storage only; returns the reason if
    that is not possible now.
    """


class ReplicaFetcher:
    """One of the fetchers of a leader. It sleeps while it has no partitions."""

    def __init__(self, shell: NodeShell, leader_id: int, number: int, ports: FetcherPorts) -> None:
        self.leader_id = leader_id
        self._shell = shell
        self._config = shell.config
        self._number = number
        self._ports = ports
        self._states: dict[PartitionKey, _FetchState] = {}
        self._has_work = asyncio.Event()
        self._connection: PeerConnection | None = None
        self._session = FetchSessionClient()
        self._names: dict[bytes, str] = {}
        """Topics of the last Fetch, by id: leaders before topic ids need the names in
        forgotten_topics_data.
        """
        self._is_running = False
        self._is_over = False
        self._in_flight: list[_FetchState] = []
        """The partitions of the current request: on a connection error they back off; those added
        in the meantime are fetched at once.
        """

    @property
    def is_idle(self) -> bool:
        """Whether it has no partitions."""
        return not self._states

    def add(self, hosted: HostedPartition, following: Following) -> None:
        """Start to fetch a partition."""
        self._states[hosted.topic, hosted.partition] = _FetchState(hosted, following)
        self._has_work.set()
        if not self._is_running:
            self._is_running = True
            self._shell.tasks.spawn(self._run(), f"fetcher-{self._number}-{self.leader_id}")

    def remove(self, key: PartitionKey) -> None:
        """Stop to fetch a partition; a response in flight is ignored."""
        self._states.pop(key, None)

    def stop(self) -> None:
        """Shut down. A request in flight is dropped; a write in progress is completed."""
        self._is_over = True
        self._leave()
        self._has_work.set()

    def close(self) -> None:
        """Remove all partitions, and close the connection."""
        self._states.clear()
        self._leave()

    def abort(self) -> None:
        """Close the connection at once, like a killed process."""
        if self._connection is not None:
            self._connection.abort()

    # Rounds
    # ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._is_over:
            if not self._states:
                self._has_work.clear()
                await self._has_work.wait()
                continue
            self._in_flight = []
            try:
                await self._round()
            except OSError as failure:
                if self._is_over:
                    return
                self._leave()
                for each in self._in_flight:
                    self._back_off(each, str(failure))

    async def _round(self) -> None:
        """Send one request for the partitions that are due and not throttled."""
        now_ms = self._now_ms()
        due = [
            (each, wish)
            for each in self._states.values()
            if each.not_before_ms <= now_ms and (wish := each.following.wish()) is not None
        ]
        if due and self._ports.throttle.is_set:
            free = self._not_throttled(due)
            if not free:
                await asyncio.sleep(self._config.replica_fetch_backoff_ms / 1000)
                return
            due = free
        if not due:
            await self._sleep()
            return
        self._in_flight = [each for each, _ in due]
        connection = await self._connected()
        lost = [(each, wish) for each, wish in due if isinstance(wish, OffsetWish)]
        if lost:
            await self._list_offsets(connection, lost)
            return
        wished = [(each, wish) for each, wish in due if isinstance(wish, FetchWish)]
        if connection.version_for(ApiKey.FETCH) < FIRST_FETCH_WITH_LAST_EPOCH:
            unverified = [
                (each, wish)
                for each, wish in wished
                if not each.is_compared and wish.last_fetched_epoch != NO_LEADER_EPOCH
            ]
            if unverified:
                await self._truncate_by_epochs(connection, unverified)
                return
        await self._fetch(connection, wished)

    def _not_throttled(
        self, due: list[tuple[_FetchState, FetchWish | OffsetWish]]
    ) -> list[tuple[_FetchState, FetchWish | OffsetWish]]:
        """Exclude the throttled partitions while the quota is exceeded; in-sync replicas are never
        throttled.
        """
        throttle = self._ports.throttle
        if not throttle.is_exceeded:
            return due
        return [
            (each, wish)
            for each, wish in due
            if each.lag == 0
            or isinstance(wish, OffsetWish)
            or not throttle.holds(each.hosted.topic, each.hosted.partition)
        ]

    async def _sleep(self) -> None:
        """Wait until a backoff ends or a partition is added."""
        self._has_work.clear()
        waiting = [
            each.not_before_ms
            for each in self._states.values()
            if each.following.wish() is not None
        ]
        if not waiting:
            await self._has_work.wait()
            return
        try:
            async with asyncio.timeout(max(min(waiting) - self._now_ms(), 1) / 1000):
                await self._has_work.wait()
        except TimeoutError:
            return

    async def _connected(self) -> PeerConnection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        address = self._ports.address()
        if address is None:
            raise ConnectionError(f"broker {self.leader_id} is not known to be alive")
        self._leave()
        connection = self._connection = PeerConnection(
            *address,
            client_id=f"broker-{self._config.node_id}-fetcher-{self._number}",
            world=self._shell.world,
            request_timeout_ms=self._config.replica_socket_timeout_ms,
            own_versions=self._ports.own_versions,
            frame_events=self._config.frame_events,
            number=self._shell.next_connection_number(),
            local_host=self._config.outgoing_host,
            security=self._shell.security.to_brokers,
        )
        await connection.connect(timeout_ms=self._config.replica_socket_timeout_ms)
        return connection

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Requests
    # ----------------------------------------------------------------------------------------------

    async def _fetch(
        self, connection: PeerConnection, due: list[tuple[_FetchState, FetchWish]]
    ) -> None:
        version = connection.version_for(ApiKey.FETCH)
        if any(
            is_derived(each.hosted.topic_id) for each, _ in due
        ):  # the leader knows such topics by name only
            version = min(version, FIRST_FETCH_WITH_TOPIC_IDS - 1)
        asked = {(each.hosted.topic_id, each.hosted.partition): (each, wish) for each, wish in due}
        plan = self._session.plan(
            {key: self._wanted(each, wish, version) for key, (each, wish) in asked.items()}
        )
        names = {each.hosted.topic_id: each.hosted.topic for each, _ in due}
        request = self._fetch_request(plan, self._names | names, version)
        self._names = names
        try:
            answer = await connection.request(request, api_version=version)
        except OSError:
            self._session.on_failure()
            raise
        assert isinstance(answer, FetchResponse), "the response of Fetch"
        ids = {name: topic_id for topic_id, name in names.items()}
        rows: dict[ReadKey, PartitionData] = {
            (
                topic.topic_id
                if version >= FIRST_FETCH_WITH_TOPIC_IDS
                else ids.get(topic.topic, EMPTY),
                partition.partition_index,
            ): partition
            for topic in answer.responses
            for partition in topic.partitions
        }
        error = ErrorCode(answer.error_code)
        is_fit = self._session.on_answer(error, answer.session_id, rows)
        if error in SESSION_ERRORS:
            return
        if not is_fit:
            raise ConnectionError(
                f"broker {self.leader_id} returned {error.name} and {len(rows)} partitions of "
                f"{len(asked)} in a Fetch response"
            )
        for key, (each, wish) in asked.items():
            row = rows.get(key)
            if row is None:
                continue
            await self._shell.world.yield_point(YieldPoint.PARTITION_FETCHED)
            if self._states.get(
                (each.hosted.topic, each.hosted.partition)
            ) is not each or not await self._take(each, wish, row):
                # start a new session: the leader omits what it considers as delivered
                self._session.on_failure()

    def _wanted(self, each: _FetchState, wish: FetchWish, version: int) -> FetchPartition:
        """Return the request row of a fetch position; the same object if it is unchanged, as it is
        for most partitions.
        """
        if each.asked is None or each.asked[0] is not wish or each.asked[1] != version:
            each.asked = (wish, version, self._build_row(wish, each.hosted.partition, version))
        return each.asked[2]

    def _build_row(self, wish: FetchWish, partition: int, version: int) -> FetchPartition:
        return FetchPartition(
            partition=partition,
            current_leader_epoch=wish.leader_epoch,
            fetch_offset=wish.fetch_offset,
            last_fetched_epoch=wish.last_fetched_epoch
            if version >= FIRST_FETCH_WITH_LAST_EPOCH
            else NO_LEADER_EPOCH,
            log_start_offset=wish.log_start_offset,
            partition_max_bytes=self._config.replica_fetch_max_bytes,
            replica_directory_id=self._ports.directory_id,
        )

    def _fetch_request(
        self, plan: FetchPlan, names: Mapping[bytes, str], version: int
    ) -> FetchRequest:
        topics: dict[bytes, FetchTopic] = {}
        for (topic_id, _), asked in plan.asked.items():
            topics.setdefault(
                topic_id, FetchTopic(topic=names[topic_id], topic_id=topic_id)
            ).partitions.append(asked)
        forgotten: dict[bytes, ForgottenTopic] = {}
        for topic_id, partition in (
            plan.forgotten
            if version >= FIRST_FETCH_WITH_TOPIC_IDS
            else plan.forgotten_by_name(names)
        ):
            forgotten.setdefault(
                topic_id, ForgottenTopic(topic=names[topic_id], topic_id=topic_id)
            ).partitions.append(partition)
        request = FetchRequest(
            max_wait_ms=self._config.replica_fetch_wait_max_ms,
            min_bytes=self._config.replica_fetch_min_bytes,
            max_bytes=self._config.replica_fetch_response_max_bytes,
            session_id=plan.session_id,
            session_epoch=plan.session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )
        if version >= FIRST_FETCH_WITH_REPLICA_STATE:
            request.replica_state = ReplicaState(
                replica_id=self._config.node_id, replica_epoch=self._ports.broker_epoch()
            )
        else:
            request.replica_id = self._config.node_id
        return request

    async def _truncate_by_epochs(
        self, connection: PeerConnection, unverified: list[tuple[_FetchState, FetchWish]]
    ) -> None:
        """Find the leader's end offset of our last epoch, and truncate what the leader does not
        have; without such an epoch, retry.

        Source: KIP-101, KIP-279; AbstractFetcherThread.truncateToEpochEndOffsets.
        """
        topics: dict[str, OffsetForLeaderTopic] = {}
        for each, wish in unverified:
            topics.setdefault(
                each.hosted.topic, OffsetForLeaderTopic(topic=each.hosted.topic)
            ).partitions.append(
                OffsetForLeaderPartition(
                    partition=each.hosted.partition,
                    current_leader_epoch=wish.leader_epoch,
                    leader_epoch=wish.last_fetched_epoch,
                )
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._config.node_id, topics=list(topics.values())
        )
        answer = await connection.request(request)
        assert isinstance(answer, OffsetForLeaderEpochResponse), (
            "the response of OffsetForLeaderEpoch"
        )
        rows = {
            (topic.topic, row.partition): row for topic in answer.topics for row in topic.partitions
        }
        for each, wish in unverified:
            key = (each.hosted.topic, each.hosted.partition)
            row = rows.get(key)
            if row is None or self._states.get(key) is not each:
                continue
            error = ErrorCode(row.error_code)
            if (
                error is ErrorCode.NONE
                and row.leader_epoch == wish.last_fetched_epoch
                and row.end_offset >= wish.fetch_offset
            ):
                each.is_compared = True
                continue
            diverging = Diverging(leader_epoch=row.leader_epoch, end_offset=row.end_offset)
            step = each.following.on_fetched(wish, error=error, diverging=diverging)
            await self._carry_out(each, step)
            each.is_compared = isinstance(step, TruncateTo) and row.leader_epoch in (
                wish.last_fetched_epoch,
                NO_LEADER_EPOCH,
            )

    async def _list_offsets(
        self, connection: PeerConnection, lost: list[tuple[_FetchState, OffsetWish]]
    ) -> None:
        topics: dict[str, ListOffsetsTopic] = {}
        for each, wish in lost:
            hosted = each.hosted
            topics.setdefault(hosted.topic, ListOffsetsTopic(name=hosted.topic)).partitions.append(
                ListOffsetsPartition(
                    partition_index=hosted.partition,
                    current_leader_epoch=each.following.leader_epoch,
                    timestamp=LATEST_TIMESTAMP if wish is OffsetWish.LATEST else EARLIEST_TIMESTAMP,
                )
            )
        answer = await connection.request(
            ListOffsetsRequest(replica_id=self._config.node_id, topics=list(topics.values()))
        )
        assert isinstance(answer, ListOffsetsResponse), "the response of ListOffsets"
        rows = {
            (topic.name, partition.partition_index): partition
            for topic in answer.topics
            for partition in topic.partitions
        }
        for each, wish in lost:
            key = (each.hosted.topic, each.hosted.partition)
            row = rows.get(key)
            if row is not None and self._states.get(key) is each:
                await self._carry_out(
                    each,
                    each.following.on_offset(
                        wish, error=ErrorCode(row.error_code), offset=row.offset
                    ),
                )

    # Responses
    # ----------------------------------------------------------------------------------------------

    async def _take(self, each: _FetchState, wish: FetchWish, row: PartitionData) -> bool:
        """Process a row of a response.

        Returns False if it was ignored, because the replica has changed since the request.
        """
        diverging = None
        if row.diverging_epoch.end_offset >= 0:
            diverging = Diverging(
                leader_epoch=row.diverging_epoch.epoch, end_offset=row.diverging_epoch.end_offset
            )
        step = each.following.on_fetched(
            wish,
            error=ErrorCode(row.error_code),
            high_watermark=row.high_watermark,
            log_start_offset=row.log_start_offset,
            diverging=diverging,
        )
        if isinstance(step, Accept):
            records = row.records or EMPTY
            if self._ports.throttle.is_set and self._ports.throttle.holds(
                each.hosted.topic, each.hosted.partition
            ):
                self._ports.throttle.record(len(records))
            await self._append(each, records, step)
            each.lag = max(row.high_watermark - each.hosted.replica.log_end_offset, 0)
        else:
            await self._carry_out(each, step)
        return step is not IGNORE

    async def _append(
        self, each: _FetchState, records: bytes | memoryview, accepted: Accept
    ) -> None:
        hosted = each.hosted
        latest_epoch = hosted.log.epochs.latest_epoch
        try:
            has_moved = hosted.copy(records, accepted)
        except MalformedBatch as malformed:
            self._back_off(each, malformed.reason)
            has_moved = True
        except OSError as failure:
            self._ports.disk_failed(hosted.log.directory, "write", failure)
            return
        if has_moved or records:
            self._ports.on_moved((hosted.topic, hosted.partition))
        if hosted.log.epochs.latest_epoch != latest_epoch:
            await self._on_disk(hosted, "write", hosted.log.store_epochs)
        if hosted.owes_flush:
            await self._on_disk(
                hosted, "flush", hosted.flush
            )  # the next Fetch acknowledges the records

    async def _carry_out(self, each: _FetchState, step: NextStep) -> None:
        match step:
            case TruncateTo() | RestartAt():
                await self.truncate(each.hosted, step)
            case RebuildFromTier():
                await self._rebuild(each, step.log_start_offset)
            case BackOff():
                self._back_off(each, step.why)
            case Halt():
                self._emit_failure(each, step.why)
            case _:
                assert not isinstance(step, Accept), "processed by the caller"
                assert isinstance(step, AskForOffsets) or step, "retried in the next request"

    async def truncate(self, hosted: HostedPartition, step: TruncateTo | RestartAt) -> None:
        """Truncate a log to where it may match the leader's."""
        following = hosted.replica.following
        try:
            async with hosted.log.gate:
                if hosted.replica.following is not following or not hosted.log.is_open:
                    return  # the leader has changed in the meantime
                hosted.truncate(step)
                await hosted.log.complete_truncation()
                await hosted.home.lower_recovery_point(hosted.key, hosted.log.flushed_offset)
                await hosted.home.lower_log_start(hosted.key, hosted.log.log_start_offset)
        except OSError as failure:
            self._ports.disk_failed(hosted.log.directory, "truncate", failure)
            return
        await self._on_disk(hosted, "write", hosted.log.store_epochs)
        self._ports.on_moved((hosted.topic, hosted.partition))

    async def _rebuild(self, each: _FetchState, log_start_offset: int) -> None:
        """Restart the log after the offsets that are in the leader's remote storage only.

        Failures are retried.
        """
        assert self._connection is not None, "the leader has just responded"
        try:
            why = await self._ports.rebuild(
                each.hosted, each.following, self._connection, log_start_offset
            )
        except (OSError, MalformedMessage) as failure:
            why = str(failure) or type(failure).__name__
        if why is not None:
            self._back_off(each, why)
        self._ports.on_moved((each.hosted.topic, each.hosted.partition))

    async def _on_disk(
        self, hosted: HostedPartition, operation: str, work: Callable[[], Awaitable[None]]
    ) -> None:
        try:
            await work()
        except OSError as failure:
            self._ports.disk_failed(hosted.log.directory, operation, failure)

    def _back_off(self, each: _FetchState, why: str) -> None:
        each.not_before_ms = self._now_ms() + self._config.replica_fetch_backoff_ms
        self._emit_failure(each, why)

    def _emit_failure(self, each: _FetchState, why: str) -> None:
        hosted = each.hosted
        self._shell.world.emit(
            ReplicationFailed(
                topic=hosted.topic, partition=hosted.partition, leader_id=self.leader_id, reason=why
            )
        )

    def _now_ms(self) -> int:
        return self._shell.world.clock.monotonic_ms()

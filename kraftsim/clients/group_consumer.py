"""kraftsim's group consumer: joins a group, reads committed records of its assignment, and starts
at the group's committed offsets. `group_protocol` of its settings chooses between the classic, the
consumer and the streams protocol.

One application task calls `poll`; the membership runs in the background. A transaction never spans
two polls, so that partitions are always revoked between transactions.
Source: org.apache.kafka.clients.consumer.KafkaConsumer, KIP-447.
"""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from kraftsim.clients.cluster_connections import (
    Address,
    ClientIdentity,
    ClusterConnections,
    find_coordinator,
)
from kraftsim.clients.events import ClientStarted, ClientStopped, RecordRead
from kraftsim.clients.events_transactions import (
    MembershipLost,
    MemberStable,
    OffsetCommitSent,
    OffsetLearned,
    OffsetsAsked,
    PartitionTaken,
)
from kraftsim.clients.member_requests import (
    JOIN_GRACE_MS,
    answered_to_member,
    commit_offsets,
    fetch_offsets,
    request_of_member,
)
from kraftsim.clients.producer import LIBRARY
from kraftsim.clients.reader import Fetched, PartitionFetching, ReadRecord
from kraftsim.clients.rules_consumer_member import ConsumerGroupMembership
from kraftsim.clients.rules_group_member import GroupMember
from kraftsim.clients.rules_member_steps import (
    AssignmentChanged,
    ClientMemberState,
    CountPartitions,
    GroupProtocol,
    Join,
    LeaveAsked,
    MemberLost,
    MemberQuestionLost,
    MemberSettings,
    MembershipEffect,
    MembershipInput,
    MemberStarted,
    NameTopics,
    PartitionsCounted,
    Released,
    ReleaseWanted,
    SendMemberRequest,
    SubscriptionChanged,
    TopicsNamed,
)
from kraftsim.clients.rules_producer_steps import TimePassed, TopicPartition
from kraftsim.clients.rules_transaction_steps import (
    CoordinatorFound,
    CoordinatorKind,
    CoordinatorLost,
    FindCoordinator,
    GroupIdentity,
)
from kraftsim.clients.step_loop import StepLoop
from kraftsim.server.tasks import NodeTasks
from kraftsim.world.interface import World
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kraftsim.clients.rules_streams_member import StreamsGroupMembership

FETCH_MAX_WAIT_MS = 200
LEAVE_SECONDS = 5.0

OnPartitions = Callable[[tuple[TopicPartition, ...]], Awaitable[None]]


class MembershipFailed(RuntimeError):
    """The membership failed with a fatal error, which is `error_code`."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(f"the group membership failed: {error_code.name}")
        self.error_code = error_code


async def _nothing(_: tuple[TopicPartition, ...]) -> None:
    """The default callback: do nothing."""


class GroupConsumerClient:
    """A group member: `start`, then `poll` repeatedly, then `close`.

    With `require_stable` False it fetches offsets as pre-KIP-447 clients do.

    `on_released`, `on_lost` and `on_assigned` are called within `poll`, as Kafka's rebalance
    listeners are.
    """

    def __init__(
        self,
        world: World,
        *,
        bootstrap: Sequence[Address],
        client_id: str,
        settings: MemberSettings,
        frame_events: bool = False,
        require_stable: bool = True,
    ) -> None:
        self.client_id = client_id
        self.on_released: OnPartitions = _nothing
        self.on_lost: OnPartitions = _nothing
        self.on_assigned: OnPartitions = _nothing
        self._world = world
        self._settings = settings
        self._require_stable = require_stable
        self._rules = _membership(world, client_id, settings)
        self._topics = settings.topics
        """The topics to read: those of the subscription, or, unless the protocol is the classic
        one, of the assignment.
        """
        identity = ClientIdentity(
            client_id=client_id, bootstrap=tuple(bootstrap), frame_events=frame_events
        )
        self.connections = ClusterConnections(world, identity)
        self._fetching = PartitionFetching(self.connections, FETCH_MAX_WAIT_MS)
        self._loop: StepLoop[MembershipInput, MembershipEffect] = StepLoop(
            world, self._rules, self._carry_out, TimePassed()
        )
        self._tasks = NodeTasks(self._loop.fail)
        self._positions: dict[TopicPartition, int] = {}
        self._without_position: tuple[TopicPartition, ...] = ()
        self._released: tuple[TopicPartition, ...] | None = None
        self._lost: tuple[TopicPartition, ...] = ()
        self._added: tuple[TopicPartition, ...] = ()
        self._fatal: ErrorCode | None = None
        self._identity = (-1, "")
        """Generation and member id of the last assignment: commits after the member was removed
        must be rejected.
        """
        self._question_count = 0

    @property
    def group(self) -> GroupIdentity:
        """The group metadata for offset commits."""
        generation_id, member_id = self._identity
        return GroupIdentity(
            group_id=self._settings.group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=self._settings.group_instance_id,
        )

    @property
    def assigned(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions."""
        return self._rules.assigned

    def subscribe(self, topics: tuple[str, ...], expression: str | None = None) -> None:
        """Change the subscription of a member of a consumer group."""
        self._loop.take(SubscriptionChanged(topics, expression))

    @property
    def assigned_version(self) -> int:
        """The version of the last assignment, if members probe versions (KIP-268); 0: none."""
        return self._rules.assigned_version

    async def start(self) -> None:
        """Subscribe; the member joins the group in the background."""
        self._world.emit(ClientStarted(client_id=self.client_id, library=LIBRARY))
        self._loop.take(MemberStarted())

    async def poll(self) -> list[ReadRecord]:
        """Return the next committed records, or nothing if there are none for a while.

        Raises MembershipFailed.
        """
        if self._fatal is not None:
            raise MembershipFailed(self._fatal)
        if self._loop.failure is not None:
            raise self._loop.failure
        await self._settle_membership()
        try:
            if self._fetching.is_stale:
                await self._fetching.refresh(self._topics)
            if not self._without_position or await self._find_positions():
                return await self._fetch()
        except OSError:
            self._fetching.is_stale = True
        await asyncio.sleep(self._settings.retry_backoff_ms / 1000)
        return []

    def rewind(self) -> None:
        """Drop the positions after an abort: the next poll starts at the committed offsets."""
        self._without_position = tuple(dict.fromkeys((*self._without_position, *self._positions)))
        self._positions = {}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> ErrorCode:
        """Commit without a transaction. Raises OSError; the result is unknown then."""
        for where, offset in offsets.items():
            self._world.emit(
                OffsetCommitSent(
                    client_id=self.client_id,
                    group_id=self._settings.group_id,
                    topic=where.topic,
                    partition=where.partition,
                    offset=offset,
                )
            )
        found = await find_coordinator(
            self.connections, CoordinatorKind.GROUP, self._settings.group_id
        )
        if isinstance(found, ErrorCode):
            return found
        return await commit_offsets(await self.connections.to_broker(found), self.group, offsets)

    def freeze(self) -> None:
        """Pause the client, heartbeats included: see `StepLoop.freeze`."""
        self._loop.freeze()

    def thaw(self) -> None:
        """Resume."""
        self._loop.thaw()

    async def close(self, *, leaves: bool = True) -> None:
        """Stop the client.

        Without `leaves` the group removes it after the session timeout, as after a crash.
        """
        if self._loop.is_over:
            return
        if leaves and self._loop.failure is None:
            self._loop.take(LeaveAsked())
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    while self._rules.state is not ClientMemberState.GONE:
                        await self._loop.change()
        self._loop.end()
        self._world.emit(
            ClientStopped(
                client_id=self.client_id,
                reason="closed" if self._loop.failure is None else "failed",
            )
        )
        self.connections.close()
        await self._tasks.join()
        self._world.flush_events()

    # Called by the application
    # ----------------------------------------------------------------------------------------------

    async def _settle_membership(self) -> None:
        """Call the listeners for revoked, lost and added partitions."""
        if self._lost:
            lost, self._lost = self._lost, ()
            self._drop(lost)
            await self.on_lost(lost)
        if self._rules.state is ClientMemberState.EXPELLED:
            self._loop.take(Released())
        if self._released is not None:
            released, self._released = self._released, None
            self._drop(released)
            await self.on_released(released)
            self._loop.take(Released())
        if self._added:
            added, self._added = self._added, ()
            self._without_position = tuple(dict.fromkeys((*self._without_position, *added)))
            await self.on_assigned(added)

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        self._positions = {
            where: offset for where, offset in self._positions.items() if where not in partitions
        }
        self._without_position = tuple(
            where for where in self._without_position if where not in partitions
        )

    async def _find_positions(self) -> bool:
        """Fetch the missing committed offsets; return whether every partition has a position.

        Raises OSError.
        """
        found = await find_coordinator(
            self.connections, CoordinatorKind.GROUP, self._settings.group_id
        )
        if isinstance(found, ErrorCode):
            return False
        asked = self._without_position
        self._question_count += 1
        question = self._question_count
        self._world.emit(
            OffsetsAsked(
                client_id=self.client_id,
                group_id=self._settings.group_id,
                question=question,
                is_stable=self._require_stable,
            )
        )
        connection = await self.connections.to_broker(found)
        answers = await fetch_offsets(
            connection,
            self._settings.group_id,
            asked,
            require_stable=self._require_stable,
            member=None if self._settings.group_protocol is GroupProtocol.CLASSIC else self.group,
        )
        for where, (error, offset) in answers.items():
            self._emit_offset(question, where, error, offset)
        for where, (error, offset) in answers.items():
            if error is ErrorCode.NONE and where in self._without_position:
                start = offset if offset >= 0 else await self._fetching.first_offset(where)
                if start is not None and where in self._without_position:
                    self._positions[where] = start
                    self._without_position = tuple(
                        each for each in self._without_position if each != where
                    )
        return not self._without_position

    async def _fetch(self) -> list[ReadRecord]:
        """Fetch from all leaders concurrently.

        Records of partitions revoked in the meantime are dropped.
        """
        led = self._fetching.led(self._positions)
        if not led:
            await asyncio.sleep(self._settings.retry_backoff_ms / 1000)
            return []
        answers = await asyncio.gather(
            *(self._fetching.fetch(broker_id, positions) for broker_id, positions in led.items()),
            return_exceptions=True,
        )
        records: list[ReadRecord] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                if not isinstance(answer, OSError):
                    raise answer
                continue
            for fetched in answer:
                records += self._take(fetched, led)
        if not records and self._fetching.is_stale:
            await asyncio.sleep(self._settings.retry_backoff_ms / 1000)
        return records

    def _take(
        self, fetched: Fetched, led: Mapping[int, Mapping[TopicPartition, int]]
    ) -> tuple[ReadRecord, ...]:
        where = fetched.where
        if fetched.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.rewind()
        if (
            fetched.error_code is not ErrorCode.NONE
            or where not in self._positions
            or where not in self.assigned
        ):
            return ()
        if not any(positions.get(where) == self._positions[where] for positions in led.values()):
            return ()
        self._positions[where] = fetched.next_offset
        for record in fetched.records:
            self._world.emit(
                RecordRead(
                    client_id=self.client_id,
                    topic=record.topic,
                    partition=record.partition,
                    record_key=record.key,
                    offset=record.offset,
                    is_read_committed=True,
                )
            )
        return fetched.records

    def position(self, where: TopicPartition) -> int:
        """Return the offset to read next."""
        return self._positions[where]

    def _emit_offset(
        self, question: int, where: TopicPartition, error: ErrorCode, offset: int
    ) -> None:
        self._world.emit(
            OffsetLearned(
                client_id=self.client_id,
                group_id=self._settings.group_id,
                question=question,
                topic=where.topic,
                partition=where.partition,
                offset=offset,
                error_code=int(error),
                is_stable=self._require_stable,
            )
        )

    # Effects
    # ----------------------------------------------------------------------------------------------

    def _carry_out(self, effect: MembershipEffect) -> None:
        match effect:
            case FindCoordinator(kind=kind, key=key):
                self._tasks.spawn(self._find(kind, key), f"{self.client_id}-find")
            case SendMemberRequest():
                self._tasks.spawn(
                    self._ask(effect), f"{self.client_id}-{type(effect.question).__name__}"
                )
            case CountPartitions(topics):
                self._tasks.spawn(self._count(topics), f"{self.client_id}-count")
            case NameTopics(topic_ids):
                self._tasks.spawn(self._name(topic_ids), f"{self.client_id}-name")
            case AssignmentChanged(
                member_id=member_id, generation_id=generation_id, partitions=partitions, added=added
            ):
                self._identity = (generation_id, member_id)
                self._on_changed(partitions)
                self._added = tuple(
                    dict.fromkeys(
                        (*(where for where in self._added if where in partitions), *added)
                    )
                )
                self._emit_stable(member_id, generation_id, partitions)
            case ReleaseWanted(partitions):
                self._released = partitions
            case MemberLost(error_code=error_code, is_fatal=is_fatal):
                self._lose(error_code, is_fatal=is_fatal)

    def _on_changed(self, partitions: tuple[TopicPartition, ...]) -> None:
        """A member of a consumer, streams or share group reads the topics of its assignment, which
        it takes as they come.
        """
        if self._settings.group_protocol is GroupProtocol.CLASSIC:
            return
        topics = tuple(sorted({where.topic for where in partitions}))
        if topics != self._topics:
            self._topics, self._fetching.is_stale = topics, True
        if self._settings.group_protocol is GroupProtocol.SHARE:
            return  # members own no partitions
        generation_id, member_id = self._identity
        for where in partitions:
            self._world.emit(
                PartitionTaken(
                    client_id=self.client_id,
                    group_id=self._settings.group_id,
                    member_id=member_id,
                    owner=self._settings.group_instance_id or member_id,
                    member_epoch=generation_id,
                    topic=where.topic,
                    partition=where.partition,
                )
            )

    def _emit_stable(
        self, member_id: str, generation_id: int, partitions: tuple[TopicPartition, ...]
    ) -> None:
        self._world.emit(
            MemberStable(
                client_id=self.client_id,
                group_id=self._settings.group_id,
                member_id=member_id,
                generation_id=generation_id,
                assignment=",".join(f"{topic}-{partition}" for topic, partition in partitions),
            )
        )

    def _lose(self, error_code: ErrorCode, *, is_fatal: bool) -> None:
        self._world.emit(
            MembershipLost(
                client_id=self.client_id,
                group_id=self._settings.group_id,
                generation_id=self._rules.generation_id,
                error_code=int(error_code),
            )
        )
        self._lost = tuple(dict.fromkeys((*self._lost, *self._positions, *self._without_position)))
        self._added, self._released = (), None
        if is_fatal:
            self._fatal = error_code

    async def _find(self, kind: CoordinatorKind, key: str) -> None:
        try:
            found = await find_coordinator(self.connections, kind, key)
        except OSError:
            self._loop.take(CoordinatorLost(kind=kind, error_code=None))
            return
        if isinstance(found, ErrorCode):
            self._loop.take(CoordinatorLost(kind=kind, error_code=found))
        else:
            self._loop.take(CoordinatorFound(kind=kind, broker_id=found))

    async def _ask(self, asked: SendMemberRequest) -> None:
        timeout_ms = (
            self._settings.rebalance_timeout_ms + JOIN_GRACE_MS
            if isinstance(asked.question, Join)
            else None
        )
        try:
            connection = await self.connections.to_broker(asked.broker_id)
            leave_version = connection.version_for(ApiKey.LEAVE_GROUP)
            answer = await connection.request(
                request_of_member(asked.question, self._settings, leave_version), timeout_ms
            )
        except OSError:
            self._loop.take(MemberQuestionLost())
            return
        self._loop.take(answered_to_member(answer))

    async def _name(self, topic_ids: tuple[bytes, ...]) -> None:
        try:
            names = await self.connections.names_of(topic_ids)
        except OSError:
            self._loop.take(TopicsNamed(None))
            return
        self._loop.take(TopicsNamed(names))

    async def _count(self, topics: tuple[str, ...]) -> None:
        try:
            answer = await self.connections.metadata(topics)
        except OSError:
            self._loop.take(PartitionsCounted(None))
            return
        self._loop.take(
            PartitionsCounted(
                {
                    topic.name or "": len(topic.partitions)
                    for topic in answer.topics
                    if topic.partitions
                }
            )
        )


def _membership(
    world: World, client_id: str, settings: MemberSettings
) -> "GroupMember | ConsumerGroupMembership | StreamsGroupMembership":
    """Return the rules of a member; those of streams groups are imported where there is one."""
    match settings.group_protocol:
        case GroupProtocol.CLASSIC:
            return GroupMember(settings)
        case GroupProtocol.STREAMS:
            from kraftsim.clients.rules_streams_member import StreamsGroupMembership

            return StreamsGroupMembership(settings, _fresh_id(world, client_id, settings))
        case _:
            return ConsumerGroupMembership(settings, _fresh_id(world, client_id, settings))


def _fresh_id(world: World, client_id: str, settings: MemberSettings) -> str:
    """Return the id that a member of a consumer group gives itself (KIP-1082), or one of a share
    group, which 4.1 reads as an id of Kafka, or of a streams group.
    """
    member_id = UUID(bytes=world.random(f"member-id-{client_id}").randbytes(16), version=4)
    if settings.group_protocol in (GroupProtocol.SHARE, GroupProtocol.STREAMS):
        return urlsafe_b64encode(member_id.bytes).decode().rstrip("=")
    return str(member_id)


# --------------------------------------------------------------------------------------------------
# The alternative consumer of KIP-447: the application reads the generation, waits for rebalances
# and fetches offsets itself
#
# The rejected alternative was to support any Consumer, by `generationId()`, `fetchOffsets(all)` and
# `blockOnRebalance(timeout)`; what shipped is `groupMetadata()`, and a consumer that waits
# internally. Here the application receives two errors that the shipped consumer handles, and must
# retry.
# Source: KIP-447 (its open alternative), the document of its design.

MS_PER_SECOND = 1000


class OffsetsPending(RuntimeError):
    """These partitions have pending offset commits of an open transaction."""

    def __init__(self, partitions: tuple[TopicPartition, ...]) -> None:
        super().__init__(
            "offsets are pending for "
            f"{', '.join(f'{topic}-{partition}' for topic, partition in partitions)}"
        )
        self.partitions = partitions


class CoordinatorUnavailable(RuntimeError):
    """The group coordinator is not available."""


class GenericConsumer(GroupConsumerClient):
    """A member whose application waits explicitly: `block_on_rebalance`, `fetch_offsets`, then
    `poll`, repeatedly.
    """

    def generation_id(self) -> int:
        """Return the generation for offset commits."""
        return self.group.generation_id

    async def block_on_rebalance(self, timeout_ms: int) -> bool:
        """Revoke and add partitions as assigned; return whether the group is stable.

        Raises MembershipFailed.
        """
        try:
            async with asyncio.timeout(timeout_ms / MS_PER_SECOND):
                while True:
                    self._require_membership()
                    await self._settle_membership()
                    if self._rules.state is ClientMemberState.STABLE and not self._added:
                        return True
                    await self._loop.change()
        except TimeoutError:
            return False

    async def fetch_offsets(self) -> dict[TopicPartition, int]:
        """Fetch the committed offsets of all assigned partitions once; -1: none.

        Raises OffsetsPending, CoordinatorUnavailable.
        """
        asked = self._rules.assigned
        if not asked:
            return {}
        try:
            found = await find_coordinator(
                self.connections, CoordinatorKind.GROUP, self._settings.group_id
            )
            if isinstance(found, ErrorCode):
                raise CoordinatorUnavailable(found.name)
            connection = await self.connections.to_broker(found)
            answers = await fetch_offsets(
                connection, self._settings.group_id, asked, require_stable=True
            )
            await self._fetching.refresh(self._settings.topics)
        except OSError as trouble:
            raise CoordinatorUnavailable(str(trouble)) from trouble
        pending = tuple(
            where
            for where, (error, _) in answers.items()
            if error is ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
        if pending:
            raise OffsetsPending(pending)
        other = next((error for error, _ in answers.values() if error is not ErrorCode.NONE), None)
        if other is not None:
            raise CoordinatorUnavailable(other.name)
        offsets = {where: offset for where, (_, offset) in answers.items()}
        self._positions = {where: max(offset, 0) for where, offset in offsets.items()}
        self._without_position = ()
        return offsets

    async def poll(self) -> list[ReadRecord]:
        """Return the next committed records; none while the group rebalances or no offsets were
        fetched.

        Raises MembershipFailed.
        """
        self._require_membership()
        if self._released is not None or self._lost or self._added or self._without_position:
            return []
        try:
            return await self._fetch()
        except OSError:
            return []

    def _require_membership(self) -> None:
        if self._fatal is not None:
            raise MembershipFailed(self._fatal)
        if self._loop.failure is not None:
            raise self._loop.failure

"""The share-partitions that a broker leads: loads them, serves fetches and acknowledgements, stores
what changes, and drops them when the leadership, the topic or the group ends.

A share-partition is loaded by the first fetch of a member. Its writes go to the persister one after
another; what changes during a write is stored by the next one. One timer per share-partition ends
its locks.

Source: KIP-932; kafka.server.share.{SharePartitionManager, SharePartitionCache, DelayedShareFetch}.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_group_configs import (
    SHARE_DELIVERIES,
    SHARE_LOCK,
    SHARE_LOCKS,
    SHARE_RENEW,
    SHARE_RESET,
    GroupConfigs,
)
from kraftsim.partitions.log_directory import PartitionKey
from kraftsim.server.purgatory import Purgatory
from kraftsim.share_groups.events import ShareSessionClosed
from kraftsim.share_groups.persister import Persister
from kraftsim.share_groups.rules_share_acknowledgement import Acknowledgement, acknowledge, release
from kraftsim.share_groups.rules_share_partition import (
    ShareLimits,
    SharePartition,
    SharePhase,
    StateWrite,
)
from kraftsim.share_groups.rules_share_sessions import (
    CachedShareSession,
    SessionKey,
    SharedTopicPartition,
    ShareSessions,
    TopicIdAndPartition,
)
from kraftsim.share_groups.rules_share_states import (
    UNINITIALIZED_START_OFFSET,
    SharePartitionKey,
)
from kraftsim.share_groups.share_reading import SharedLogBroker, initial_offset, leader_of
from protocol.errors import ErrorCode

WatchKey: TypeAlias = SharePartitionKey | PartitionKey
Result: TypeAlias = Refusal | None
NOT_LOADED: Final = Refusal(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
FENCING: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors after which a share-partition is loaded again, if its leader is asked again."""

UNEXPECTED_PERSISTER_ERROR: Final = "Unable to complete operation due to server error."
COORDINATOR_ERRORS: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


def refusal_of(error: ErrorCode, message: str | None) -> Refusal:
    """Return what a client gets for an error of the persister.

    Source: SharePartition.fetchPersisterError.
    """
    if error in COORDINATOR_ERRORS:
        return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, message or "")
    if error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, message or "")
    if error in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return Refusal(error, message or "")
    if error in (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_VERSION):
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED_PERSISTER_ERROR)
    return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, message or "")


class _QueuedWrite(Struct):
    write: StateWrite
    on_stored: Callable[[Result], None]


class LedShare:
    """A share-partition that this broker leads, with what is going on around it."""

    __slots__ = (
        "alarm",
        "alarm_ms",
        "asked",
        "is_reading",
        "is_writing",
        "partition",
        "queue",
        "written",
    )

    def __init__(self, asked: SharedTopicPartition, partition: SharePartition) -> None:
        self.asked = asked
        self.partition = partition
        self.is_reading = False
        """Whether a fetch reads it in remote storage: no other one may."""
        self.queue: list[_QueuedWrite] = []
        self.is_writing = False
        self.written: asyncio.Event | None = None
        """Set when the last write of a dropped share-partition has ended."""
        self.alarm: asyncio.TimerHandle | None = None
        self.alarm_ms = 0

    @property
    def log_key(self) -> PartitionKey:
        """The partition that it is a part of."""
        assert self.asked.topic is not None, "its topic was known"
        return self.asked.topic, self.asked.id.partition


class ShareSettings(Struct, frozen=True, kw_only=True):
    """The settings of the broker and its release, apart from those of groups."""

    sessions_max: int = 2000
    throttles_deliveries: bool = True
    counts_abandoned: bool = True


class SharePartitionManager:
    """All share-partitions of a broker, and the sessions of their members."""

    def __init__(
        self,
        broker: SharedLogBroker,
        persister: Persister,
        configs: GroupConfigs,
        settings: ShareSettings,
    ) -> None:
        self.sessions = ShareSessions(settings.sessions_max)
        self.waiting: Purgatory[WatchKey] = Purgatory(broker.world)
        """Fetches that wait for records."""
        self._broker = broker
        self._persister = persister
        self._configs = configs
        self._settings = settings
        self._led: dict[SharePartitionKey, LedShare] = {}
        self._of_log: dict[PartitionKey, dict[SharePartitionKey, None]] = {}
        self._load_count = 0
        self._ending: dict[SharePartitionKey, asyncio.Event] = {}
        """Dropped share-partitions that are still written: they are not read before that."""

    def limits(self, group_id: str) -> ShareLimits:
        """Return the settings of a group as they are now."""
        configs, default = self._configs, ShareLimits()
        return ShareLimits(
            record_lock_duration_ms=configs.integer(
                group_id, SHARE_LOCK, default.record_lock_duration_ms
            ),
            delivery_count_max=configs.integer(
                group_id, SHARE_DELIVERIES, default.delivery_count_max
            ),
            record_locks_max=configs.integer(group_id, SHARE_LOCKS, default.record_locks_max),
            allows_renewal=configs.flag(group_id, SHARE_RENEW, without=True),
            throttles_deliveries=self._settings.throttles_deliveries,
            counts_abandoned=self._settings.counts_abandoned,
        )

    def now_ms(self) -> int:
        """Return the time of locks."""
        return self._broker.world.clock.monotonic_ms()

    # Loading
    # ----------------------------------------------------------------------------------------------

    def get_or_load(
        self,
        group_id: str,
        asked: SharedTopicPartition,
        on_failed: Callable[[Refusal], None],
    ) -> LedShare | Refusal:
        """Return a share-partition, and begin to load it if it is new; `on_failed` is called if
        that fails. Fetches that watch it are checked when it is loaded.
        """
        key = SharePartitionKey(group_id, *asked.id)
        led = self._led.get(key)
        if led is None:
            hosted = leader_of(self._broker, asked)
            if isinstance(hosted, Refusal):
                return hosted
            assert asked.topic is not None, "unknown topic ids are refused before"
            self._load_count += 1
            partition = SharePartition(
                key,
                asked.topic,
                hosted.replica.leader_epoch,
                self._broker.world.emit,
                self._load_count,
            )
            led = self._led[key] = LedShare(asked, partition)
            self._of_log.setdefault(led.log_key, {})[key] = None
            partition.phase = SharePhase.INITIALIZING
            self._broker.shell.tasks.spawn(
                self._load(led, on_failed), f"load share-partition {partition.text}"
            )
        elif led.partition.phase is SharePhase.FAILED:
            return Refusal(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Share partition failed to load {led.partition.text}",
            )
        return led

    async def _load(self, led: LedShare, on_failed: Callable[[Refusal], None]) -> None:
        partition = led.partition
        while (ending := self._ending.get(partition.key)) is not None:
            await ending.wait()
        found = await self._persister.read(partition.key, partition.leader_epoch)
        refusal: Result = None
        start_offset = found.start_offset
        if found.error is not ErrorCode.NONE:
            refusal = refusal_of(found.error, found.message)
        elif start_offset == UNINITIALIZED_START_OFFSET:
            strategy = self._configs.text(partition.key.group_id, SHARE_RESET)
            chosen = await initial_offset(self._broker, led.asked, strategy)
            if isinstance(chosen, Refusal):
                refusal = chosen
            else:
                start_offset = chosen
        if partition.phase is not SharePhase.INITIALIZING:
            return  # dropped meanwhile
        if refusal is None:
            refusal = partition.activate(found.state_epoch, start_offset, found.batches)
        if refusal is not None:
            partition.phase = SharePhase.FAILED
            on_failed(refusal)
            self.drop(partition.key, "it could not be loaded")
            return
        self.waiting.check(partition.key)

    def drop(self, key: SharePartitionKey, reason: str) -> None:
        """Serve a share-partition no more."""
        led = self._led.pop(key, None)
        if led is None:
            return
        of_log = self._of_log[led.log_key]
        del of_log[key]
        if not of_log:
            del self._of_log[led.log_key]
        if led.alarm is not None:
            led.alarm.cancel()
            led.alarm = None
        led.partition.fence(reason)
        if led.is_writing:
            led.written = self._ending[key] = asyncio.Event()
        self.waiting.check(key)

    def drop_if_fenced(self, key: SharePartitionKey, refusal: Refusal) -> None:
        """Drop a share-partition after an error that says that it is not this broker's any more."""
        if refusal.error in FENCING:
            self.drop(key, refusal.error.name)

    def on_partition_changed(self, key: PartitionKey) -> None:
        """A partition has new records or another role: drop what it does not lead any more, and
        check the fetches that wait for it.
        """
        for share_key in tuple(self._of_log.get(key, ())):
            hosted = leader_of(self._broker, self._led[share_key].asked)
            if isinstance(hosted, Refusal):
                self.drop(share_key, hosted.error.name)
        self.waiting.check(key)

    def clear(self, reason: str) -> None:
        """End all sessions and share-partitions: the feature was disabled."""
        self.sessions.clear()
        for key in tuple(self._led):
            self.drop(key, reason)

    def close(self) -> None:
        """The node is stopping."""
        self.waiting.close()
        for led in self._led.values():
            if led.alarm is not None:
                led.alarm.cancel()

    # Acknowledgements
    # ----------------------------------------------------------------------------------------------

    def acknowledge(
        self,
        key: SessionKey,
        asked: Mapping[TopicIdAndPartition, Sequence[Acknowledgement]],
        on_done: Callable[[dict[TopicIdAndPartition, Result]], None],
    ) -> None:
        """Apply the acknowledgements of a member, and call back with a result for each partition
        once all are stored.
        """
        limits, now_ms = self.limits(key.group_id), self.now_ms()

        def apply(led: LedShare) -> StateWrite | Result:
            acknowledgements = asked[led.asked.id]
            return acknowledge(led.partition, key.member_id, acknowledgements, limits, now_ms)

        self._change(key.group_id, tuple(asked), apply, on_done)

    def release(
        self,
        session: CachedShareSession,
        on_done: Callable[[dict[TopicIdAndPartition, Result]], None],
    ) -> None:
        """Release what the member of a session has acquired, in all its partitions."""
        key = session.key
        limits, now_ms = self.limits(key.group_id), self.now_ms()

        def apply(led: LedShare) -> StateWrite | Result:
            return release(led.partition, key.member_id, limits, now_ms)

        self._change(key.group_id, tuple(session.partitions), apply, on_done)

    def _change(
        self,
        group_id: str,
        partitions: Sequence[TopicIdAndPartition],
        apply: Callable[[LedShare], StateWrite | Result],
        on_done: Callable[[dict[TopicIdAndPartition, Result]], None],
    ) -> None:
        results: dict[TopicIdAndPartition, Result] = {}
        left = set(partitions)

        def done(place: TopicIdAndPartition, result: Result) -> None:
            if result is not None:
                self.drop_if_fenced(SharePartitionKey(group_id, *place), result)
            results[place] = result
            left.discard(place)
            if not left:
                on_done({each: results[each] for each in partitions})

        for place in partitions:
            key = SharePartitionKey(group_id, *place)
            led = self._led.get(key)
            if led is None:
                results[place] = NOT_LOADED
                left.discard(place)
                continue
            changed = apply(led)
            self._set_alarm(led)
            if isinstance(changed, StateWrite):
                self._store(led, changed, partial(done, place))
            else:
                if changed is not None:
                    self.drop_if_fenced(key, changed)
                results[place] = changed
                left.discard(place)
            self.waiting.check(key)
        if not left:
            on_done({each: results[each] for each in partitions})

    # Storing
    # ----------------------------------------------------------------------------------------------

    def _store(self, led: LedShare, write: StateWrite, on_stored: Callable[[Result], None]) -> None:
        led.queue.append(_QueuedWrite(write, on_stored))
        if not led.is_writing:
            led.is_writing = True
            self._broker.shell.tasks.spawn(
                self._write_all(led), f"store share-partition {led.partition.text}"
            )

    async def _write_all(self, led: LedShare) -> None:
        """Write until nothing is queued; what was queued during a write goes into the next one."""
        partition = led.partition
        while led.queue:
            queued, led.queue = led.queue, []
            last = queued[-1].write
            answer = await self._persister.write(
                partition.key,
                last.state_epoch,
                last.leader_epoch,
                last.start_offset,
                last.delivery_complete_count,
                [batch for each in queued for batch in each.write.batches],
            )
            is_stored = answer.error is ErrorCode.NONE
            result = None if is_stored else refusal_of(answer.error, answer.message)
            has_moved = False
            for each in queued:
                has_moved |= partition.on_written(each.write, answer.error, self.now_ms())
            self._set_alarm(led)
            for each in queued:
                each.on_stored(result)
            if has_moved or partition.may_have_available:
                self.waiting.check(partition.key)
        led.is_writing = False
        if led.written is not None:
            if self._ending.get(partition.key) is led.written:
                del self._ending[partition.key]
            led.written.set()

    # Locks
    # ----------------------------------------------------------------------------------------------

    def after_acquisition(self, led: LedShare) -> None:
        """Records were acquired: their locks have to end in time."""
        self._set_alarm(led)

    def _set_alarm(self, led: LedShare) -> None:
        deadline_ms = led.partition.next_deadline_ms
        if led.alarm is not None:
            if deadline_ms is not None and deadline_ms >= led.alarm_ms:
                return  # it is set again when it rings
            led.alarm.cancel()
            led.alarm = None
        if deadline_ms is None or not led.partition.is_active:
            return
        led.alarm_ms = deadline_ms
        delay_ms = max(deadline_ms - self.now_ms(), 0)
        led.alarm = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_alarm, led)

    def _on_alarm(self, led: LedShare) -> None:
        led.alarm = None
        partition = led.partition
        limits = self.limits(partition.key.group_id)
        write = partition.expire_locks(limits, self.now_ms())
        if write is not None:
            self._store(led, write, lambda _: None)  # what expired has expired, stored or not
            self.waiting.check(partition.key)
        self._set_alarm(led)

    # Sessions
    # ----------------------------------------------------------------------------------------------

    def close_session(self, key: SessionKey, reason: str) -> None:
        """A member closes its session."""
        session = self.sessions.remove(key)
        if session is not None:
            self._end(session, reason)

    def on_connection_lost(self, connection: int) -> None:
        """End the session of a connection; without members a group's share-partitions are dropped,
        and loaded again when a member comes back.
        """
        session, empty_group = self.sessions.lost(connection)
        if session is not None:
            self._end(session, "the connection was lost")
        if empty_group is not None:
            for key in [key for key in self._led if key.group_id == empty_group]:
                self.drop(key, "the group has no members")

    def _end(self, session: CachedShareSession, reason: str) -> None:
        self._broker.world.emit(
            ShareSessionClosed(
                group_id=session.key.group_id, member_id=session.key.member_id, reason=reason
            )
        )
        self.release(session, lambda _: None)

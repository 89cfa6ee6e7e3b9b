"""The share coordinator: the share-partitions of the `__share_group_state` partitions that this
broker leads, loaded on becoming leader.

A request is decided, appended and replayed in one step; its answer, a refusal included, waits until
everything that it rests on is replicated.
Source: KIP-932; org.apache.kafka.coordinator.share.ShareCoordinatorService,
org.apache.kafka.coordinator.common.runtime.{CoordinatorRuntime,
CoordinatorOperationExceptionHelper}.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.groups.coordinator_log import CoordinatorLog
from kraftsim.groups.rules_timing import partition_of
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_topic_names import SHARE_GROUP_STATE
from kraftsim.partitions.hosted_partition import HostedPartition, read_back
from kraftsim.partitions.partitions import PartitionKey, Partitions
from kraftsim.server.purgatory import Purgatory
from kraftsim.server.shell import NodeShell
from kraftsim.share_groups.events_states import (
    CoordinatedShareDeleted,
    CoordinatedShareLoaded,
    CoordinatedShareStored,
    ShareRecordsPruned,
    ShareStatesLoaded,
    ShareStatesUnloaded,
)
from kraftsim.share_groups.rules_share_coordinator import (
    ShareDecision,
    ShareShard,
    ShareStateLimits,
    ShareStateRecord,
)
from kraftsim.share_groups.rules_share_states import SharePartitionKey
from kraftsim.share_groups.state_answers import NotStored, StateOutcome
from kraftsim.world.interface import World, YieldPoint
from protocol.coordinator.share_states import ShareSnapshotValue
from protocol.errors import UNEXPECTED, ErrorCode
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Compression, Record
from protocol.uuids import uuid_text

Result = TypeVar("Result")
Decide = Callable[[ShareShard, int], ShareDecision[Result] | Refusal]
"""Decides at a wall time in milliseconds."""
OnEnd = Callable[[StateOutcome[Result]], None]
TOPIC_DELETION: Final = "on-topics-deleted"
COLD_SNAPSHOTS: Final = "snapshot-cold-partitions"
LEADER_ONLY: Final = 1
PRUNING: Final = "DeleteRecords"
NOT_COORDINATOR: Final = NotStored(
    ErrorCode.NOT_COORDINATOR, "This is not the correct coordinator."
)
IS_LOADING: Final = NotStored(
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "The coordinator is loading and hence can't process requests.",
)
MAPPED: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""How errors of the append are mapped for clients."""


class CoordinatedShares:
    """The share-partitions of one partition.

    While `is_loading`, requests fail with COORDINATOR_LOAD_IN_PROGRESS.
    """

    def __init__(
        self,
        world: World,
        hosted: HostedPartition,
        shard: ShareShard,
        log: CoordinatorLog,
        timeout_ms: int,
    ) -> None:
        self.hosted = hosted
        self.shard = shard
        self.is_loading = True
        self.is_over = False
        """The partition is unloaded: another broker is its coordinator."""
        self._world = world
        self._log = log
        self._timeout_ms = timeout_ms
        self._pruned_before = 0

    @property
    def number(self) -> int:
        """The number of the partition."""
        return self.hosted.partition

    # Requests
    # ----------------------------------------------------------------------------------------------

    def ask(self, operation: str, decide: Decide[Result], on_end: OnEnd[Result]) -> None:
        """Decide, append, and replay; `on_end` is called once, when the outcome is durable or has
        failed. `operation` is Kafka's name of it, for the message of a timeout.
        """
        decided = decide(self.shard, self._world.clock.wall_ms())
        if isinstance(decided, Refusal):
            self._await(operation, self.hosted.replica.log_end_offset, (), decided, on_end)
            return
        end_offset, facts = self.hosted.replica.log_end_offset, []
        if decided.records:
            appended = self._append(decided.records)
            if isinstance(appended, NotStored):
                on_end(appended)
                return
            end_offset = appended + len(decided.records)
            facts = [
                self._replayed(record, offset, decided.cause)
                for offset, record in enumerate(decided.records, appended)
            ]
        self._await(operation, end_offset, facts, decided.result, on_end)

    def _append(self, records: tuple[ShareStateRecord, ...]) -> int | NotStored:
        """Append a batch, and return the offset of its first record."""
        timestamp = self._world.clock.wall_ms()
        rows = [
            Record(timestamp=timestamp, key=key, value=value)
            for key, value in (record.encoded() for record in records)
        ]
        batch = RecordBatch(build_batch(rows, compression=self._log.compression))
        outcome = self._log.append(self.hosted, batch, LEADER_ONLY)
        if isinstance(outcome, Refusal):
            return _not_stored(outcome.error, outcome.why)
        return outcome.first_offset

    def _replayed(self, record: ShareStateRecord, offset: int, cause: str) -> Event:
        """Replay a record, and return the event that is emitted when it is replicated."""
        self.shard.replay_record(record, offset)
        key = record.share_partition
        if record.value is None:
            return CoordinatedShareDeleted(
                coordinator_partition=self.number,
                group_id=key.group_id,
                topic_id=uuid_text(key.topic_id),
                partition=key.partition,
                record_offset=offset,
            )
        state = self.shard.states[key]
        return CoordinatedShareStored(
            coordinator_partition=self.number,
            group_id=key.group_id,
            topic_id=uuid_text(key.topic_id),
            partition=key.partition,
            record_offset=offset,
            is_snapshot=isinstance(record.value, ShareSnapshotValue),
            cause=cause,
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            batch_count=len(state.batches),
        )

    def _await(
        self,
        operation: str,
        end_offset: int,
        facts: Sequence[Event],
        outcome: Result | Refusal,
        on_end: OnEnd[Result],
    ) -> None:
        """Report an outcome once everything below an offset is replicated.

        A write that times out is reported as an error, but remains in the log and in memory: it is
        a fact when it is replicated after all.
        """

        def on_late_end(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                for fact in facts:
                    self._world.emit(fact)
            elif error is ErrorCode.REQUEST_TIMED_OUT and facts and not self.is_over:
                self._log.when_replicated(self.hosted, end_offset, on_late_end)

        def on_first_end(error: ErrorCode) -> None:
            on_late_end(error)
            if error is ErrorCode.NONE:
                on_end(outcome)
            elif error is ErrorCode.REQUEST_TIMED_OUT:
                why = (
                    f"CoordinatorWriteEvent(name={operation}) timed out after {self._timeout_ms}ms"
                )
                on_end(_not_stored(error, why))
            else:
                on_end(NOT_COORDINATOR)

        self._log.when_replicated(self.hosted, end_offset, on_first_end)

    # Loading, and periodic work
    # ----------------------------------------------------------------------------------------------

    def begin(self, next_offset: int) -> None:
        """Loading is complete: emit the states."""
        self.is_loading = False
        states = self.shard.states
        self._world.emit(
            ShareStatesLoaded(
                partition=self.number, state_count=len(states), next_offset=next_offset
            )
        )
        for key, state in states.items():
            self._world.emit(
                CoordinatedShareLoaded(
                    coordinator_partition=self.number,
                    group_id=key.group_id,
                    topic_id=uuid_text(key.topic_id),
                    partition=key.partition,
                    record_offset=self.shard.record_offsets[key],
                    snapshot_epoch=state.snapshot_epoch,
                    state_epoch=state.state_epoch,
                    leader_epoch=state.leader_epoch,
                    start_offset=state.start_offset,
                )
            )

    def prune(self) -> None:
        """Delete the records that are not needed any more, once what follows them is replicated."""
        redundant_before = self.shard.redundant_before
        if redundant_before in (None, self._pruned_before):
            return

        def on_replicated(error: ErrorCode) -> None:
            hosted = self.hosted
            if error is not ErrorCode.NONE or self.is_over or redundant_before is None:
                return
            decided = hosted.replica.decide_deletion(
                redundant_before, is_deleted=hosted.settings.retention.is_deleted
            )
            if isinstance(decided, Refusal):
                return
            if hosted.advance_log_start(decided, PRUNING):
                self._world.emit(
                    ShareRecordsPruned(partition=self.number, log_start_offset=decided)
                )
            self._pruned_before = redundant_before

        self._log.when_replicated(self.hosted, self.hosted.replica.log_end_offset, on_replicated)


class ShareCoordinator:
    """Loaded partitions by number. `on_partition_changed` keeps them consistent with the
    leadership.
    """

    def __init__(
        self,
        shell: NodeShell,
        image: Callable[[], MetadataImage],
        partitions: Partitions,
        produces: Purgatory[PartitionKey],
        fetches: Purgatory[PartitionKey],
        shard_class: type[ShareShard],
        serves_shares: Callable[[], bool],
    ) -> None:
        config = shell.config
        self._shell = shell
        self._world = shell.world
        self._image = image
        self._hosted = partitions
        self._shard_class = shard_class
        self._serves_shares = serves_shares
        self._limits = ShareStateLimits(
            config.share_coordinator_snapshot_update_records_per_snapshot,
            config.share_coordinator_cold_partition_snapshot_interval_ms,
        )
        self._log = CoordinatorLog(
            partitions,
            produces,
            fetches,
            shell.world.clock,
            timeout_ms=config.share_coordinator_write_timeout_ms,
            compression=Compression(config.share_coordinator_state_topic_compression_codec),
        )
        self._led: dict[int, CoordinatedShares] = {}
        self._has_upkeep = False

    # Look-up
    # ----------------------------------------------------------------------------------------------

    def partition_of(self, coordinator_key: str) -> int:
        """Return the partition of `__share_group_state` that a key of FindCoordinator maps to."""
        topic = self._image().topic(SHARE_GROUP_STATE)
        count = (
            self._shell.config.share_coordinator_state_topic_num_partitions
            if topic is None
            else len(topic.partitions)
        )
        return partition_of(coordinator_key, count)

    def coordinated(self, key: SharePartitionKey) -> CoordinatedShares | NotStored:
        """Return the partition of a share-partition, or NOT_COORDINATOR or
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        found = self._led.get(self.partition_of(key.coordinator_key))
        if found is None:
            return NOT_COORDINATOR
        return IS_LOADING if found.is_loading else found

    def all(self) -> Iterator[CoordinatedShares]:
        """Yield every partition for which this broker is coordinator, by number."""
        for number in sorted(self._led):
            yield self._led[number]

    # Loading and unloading
    # ----------------------------------------------------------------------------------------------

    def on_partition_changed(self, key: PartitionKey) -> None:
        """Load or unload a partition if this broker became or ceased to be its leader."""
        topic, number = key
        if topic != SHARE_GROUP_STATE:
            return
        hosted = self._hosted.find(topic, number)
        known = self._led.get(number)
        if known is not None and (hosted is not known.hosted or not hosted.replica.is_leader):
            del self._led[number]
            known.is_over = True
            self._world.emit(ShareStatesUnloaded(partition=number))
            known = None
        if known is None and hosted is not None and hosted.replica.is_leader:
            shard = self._shard_class(self._limits, self._partition_count)
            led = self._led[number] = CoordinatedShares(
                self._world,
                hosted,
                shard,
                self._log,
                self._shell.config.share_coordinator_write_timeout_ms,
            )
            self._shell.tasks.spawn(self._load(led), f"states of {SHARE_GROUP_STATE}-{number}")
            self._begin_upkeep()

    def on_topics_deleted(self, topic_ids: Iterable[bytes]) -> None:
        """Delete the states of deleted topics."""
        deleted = list(topic_ids)
        for led in self.all():
            if not led.is_loading:
                led.ask(
                    TOPIC_DELETION,
                    lambda shard, _: shard.decide_topic_deletion(deleted),
                    lambda outcome: None,
                )

    async def _load(self, led: CoordinatedShares) -> None:
        """Replay the log from its start; the states are available afterwards."""
        await self._world.yield_point(YieldPoint.SHARE_COORDINATOR_ELECTED)
        try:
            offset = await read_back(
                led.hosted,
                buffer_size=self._shell.config.share_coordinator_load_buffer_size,
                is_wanted=lambda: not led.is_over,
                replay=led.shard.replay,
            )
        except OSError as failure:
            self._hosted.disk_failed(led.hosted.log.directory, "read", failure)
            return
        if not led.is_over:
            led.begin(offset)

    def _partition_count(self, topic_id: bytes) -> int | None:
        topic = self._image().topic_by_id(topic_id)
        return None if topic is None else len(topic.partitions)

    # Periodic tasks
    # ----------------------------------------------------------------------------------------------

    def _begin_upkeep(self) -> None:
        """Start the periodic tasks, with the first partition that is led: a broker without share
        groups has none.
        """
        if self._has_upkeep:
            return
        self._has_upkeep = True
        config = self._shell.config
        for work, interval_ms, name in (
            (self._prune, config.share_coordinator_state_topic_prune_interval_ms, "pruning"),
            (self._snapshot, self._limits.cold_interval_ms, "cold snapshots"),
        ):
            self._shell.tasks.spawn(self._repeat(work, interval_ms), f"share state {name}")

    async def _repeat(self, work: Callable[[CoordinatedShares], None], interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            if self._serves_shares():
                for led in self.all():
                    if not led.is_loading:
                        work(led)

    def _prune(self, led: CoordinatedShares) -> None:
        led.prune()

    def _snapshot(self, led: CoordinatedShares) -> None:
        led.ask(
            COLD_SNAPSHOTS,
            lambda shard, now_ms: shard.decide_cold_snapshots(now_ms),
            lambda outcome: None,
        )


def _not_stored(error: ErrorCode, why: str) -> NotStored:
    mapped = MAPPED.get(error, error)
    return NotStored(mapped, UNEXPECTED if mapped is ErrorCode.UNKNOWN_SERVER_ERROR else why)

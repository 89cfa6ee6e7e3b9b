"""The partitions of `__transaction_state` that this broker leads: loaded on becoming leader,
unloaded on resignation.

Source: TransactionStateManager.{loadTransactionsForTxnTopicPartition,
removeTransactionsForTxnTopicPartition}, BrokerMetadataPublisher.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.groups.coordinator_log import CoordinatorLog
from kraftsim.groups.rules_timing import partition_of
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_topic_names import TRANSACTION_STATE
from kraftsim.partitions.hosted_partition import HostedPartition, read_back
from kraftsim.partitions.partitions import PartitionKey, Partitions
from kraftsim.partitions.rules_append import ALL_REPLICAS
from kraftsim.server.shell import NodeShell
from kraftsim.transactions.events import (
    TransactionalIdExpired,
    TransactionChangeGivenUp,
    TransactionLoaded,
    TransactionsLoaded,
    TransactionStateChanged,
    TransactionsUnloaded,
)
from kraftsim.transactions.rules_coordinator import TransactionRules
from kraftsim.transactions.rules_state import (
    DEAD,
    NO_OFFSET,
    TransactionEntry,
    TransactionFacts,
    TransactionShard,
    facts_record,
    tombstone,
    value_version,
)
from kraftsim.world.interface import World, YieldPoint
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record

# --------------------------------------------------------------------------------------------------
# One partition of `__transaction_state` that this broker leads: its transactional ids, and the log
# that stores them
#
# A change takes effect once its record is on all in-sync replicas. The coordinator epoch is the
# leader epoch of the partition.
# Source: org.apache.kafka.coordinator.transaction.TransactionStateManager.appendTransactionToLog.

OnStored = Callable[[ErrorCode], None]

MAPPED_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""How errors of the append are mapped for clients."""


class CoordinatedTransactions:
    """The transactional ids of one partition.

    While `is_loading`, requests fail with COORDINATOR_LOAD_IN_PROGRESS.
    """

    def __init__(
        self,
        world: World,
        hosted: HostedPartition,
        shard: TransactionShard,
        log: CoordinatorLog,
        rules: TransactionRules,
        value_version: Callable[[], int],
    ) -> None:
        self.hosted = hosted
        self.shard = shard
        self.coordinator_epoch = hosted.replica.leader_epoch
        self.is_loading = True
        self.is_over = False
        """The partition is unloaded: another broker is its coordinator, or this one is with a later
        epoch.
        """
        self._world = world
        self._log = log
        self._rules = rules
        self._value_version = value_version

    @property
    def number(self) -> int:
        """The number of the partition."""
        return self.hosted.partition

    def store(self, entry: TransactionEntry, facts: TransactionFacts, on_stored: OnStored) -> None:
        """Write a state transition, and complete it once the record is replicated; on an error it
        is dropped.
        """
        entry.begin(facts)
        record = facts_record(entry.transactional_id, facts, self._value_version())

        def on_end(error: ErrorCode, offset: int) -> None:
            if error is ErrorCode.NONE:
                entry.finish(self._rules.held(entry.facts, facts))
                self._emit_change(entry, offset)
            else:
                entry.give_up()
                self._emit_given_up(entry, offset, error)
            on_stored(error)

        self._append([record], facts.timeout_ms, on_end)

    def store_tombstones(self, entries: list[TransactionEntry], timeout_ms: int) -> None:
        """Expire transactional ids. They cannot be used until the tombstones are committed."""
        for entry in entries:
            entry.pending = DEAD

        def on_end(error: ErrorCode, offset: int) -> None:
            for index, entry in enumerate(entries):
                entry.give_up()
                if error is ErrorCode.NONE:
                    self.shard.forget(entry.transactional_id)
                    self._emit_expiry(entry, offset + index)
                else:
                    self._emit_given_up(
                        entry, offset if offset == NO_OFFSET else offset + index, error
                    )

        self._append([tombstone(entry.transactional_id) for entry in entries], timeout_ms, on_end)

    def _append(
        self,
        rows: list[tuple[bytes, bytes | None]],
        timeout_ms: int,
        on_end: Callable[[ErrorCode, int], None],
    ) -> None:
        """Append records in one batch; `on_end` receives the result and the offset of the first."""
        timestamp = self._world.clock.wall_ms()
        records = [Record(timestamp=timestamp, key=key, value=value) for key, value in rows]
        outcome = self._log.append(self.hosted, RecordBatch(build_batch(records)), ALL_REPLICAS)
        if isinstance(outcome, Refusal):
            on_end(MAPPED_ERRORS.get(outcome.error, outcome.error), NO_OFFSET)
            return
        first_offset = outcome.first_offset

        def on_replicated(error: ErrorCode) -> None:
            mapped = ErrorCode.NOT_COORDINATOR if self.is_over else MAPPED_ERRORS.get(error, error)
            on_end(mapped, first_offset)

        self._log.when_replicated(
            self.hosted, outcome.last_offset + 1, on_replicated, timeout_ms=timeout_ms
        )

    # Events
    # ----------------------------------------------------------------------------------------------

    def emit_loaded(self, next_offset: int) -> None:
        """Loading is complete: emit the state of each transactional id."""
        for entry in self.shard.entries.values():
            facts = entry.facts
            self._world.emit(
                TransactionLoaded(
                    transactional_id=entry.transactional_id,
                    producer_id=facts.producer_id,
                    producer_epoch=facts.producer_epoch,
                    state=facts.state.label,
                    partitions=partitions_text(facts),
                    coordinator_epoch=self.coordinator_epoch,
                    partition=self.number,
                    record_offset=entry.record_offset,
                )
            )
        self._world.emit(
            TransactionsLoaded(
                partition=self.number,
                coordinator_epoch=self.coordinator_epoch,
                transaction_count=len(self.shard.entries),
                next_offset=next_offset,
            )
        )

    def _emit_change(self, entry: TransactionEntry, offset: int) -> None:
        facts = entry.facts
        self._world.emit(
            TransactionStateChanged(
                transactional_id=entry.transactional_id,
                producer_id=facts.producer_id,
                producer_epoch=facts.producer_epoch,
                state=facts.state.label,
                partitions=partitions_text(facts),
                coordinator_epoch=self.coordinator_epoch,
                partition=self.number,
                offset=offset,
                transaction_version=facts.transaction_version,
                timeout_ms=facts.timeout_ms,
            )
        )

    def _emit_given_up(self, entry: TransactionEntry, offset: int, error: ErrorCode) -> None:
        self._world.emit(
            TransactionChangeGivenUp(
                transactional_id=entry.transactional_id,
                partition=self.number,
                coordinator_epoch=self.coordinator_epoch,
                offset=offset,
                error_code=int(error),
            )
        )

    def _emit_expiry(self, entry: TransactionEntry, offset: int) -> None:
        facts = entry.facts
        self._world.emit(
            TransactionalIdExpired(
                transactional_id=entry.transactional_id,
                producer_id=facts.producer_id,
                producer_epoch=facts.producer_epoch,
                partition=self.number,
                offset=offset,
                coordinator_epoch=self.coordinator_epoch,
            )
        )


def partitions_text(facts: TransactionFacts) -> str:
    """Return the partitions of a transaction in the format of events."""
    return ",".join(sorted(f"{topic}-{number}" for topic, number in facts.partitions))


OnPartition = Callable[[CoordinatedTransactions], None]


class TransactionPartitions:
    """Partitions by number.

    `on_loaded` and `on_left` are called for each one that is loaded and unloaded.
    """

    def __init__(
        self,
        shell: NodeShell,
        image: Callable[[], MetadataImage],
        partitions: Partitions,
        log: CoordinatorLog,
        rules: TransactionRules,
        new_shard: Callable[[], TransactionShard],
        *,
        transaction_version: Callable[[], int],
        on_loaded: OnPartition,
        on_left: OnPartition,
    ) -> None:
        self._shell = shell
        self._world = shell.world
        self._image = image
        self._hosted = partitions
        self._log = log
        self._rules = rules
        self._new_shard = new_shard
        self._transaction_version = transaction_version
        self._on_loaded = on_loaded
        self._on_left = on_left
        self._led: dict[int, CoordinatedTransactions] = {}

    def partition_of(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` that a transactional id belongs to."""
        topic = self._image().topic(TRANSACTION_STATE)
        count = (
            self._shell.config.transaction_state_log_num_partitions
            if topic is None
            else len(topic.partitions)
        )
        return partition_of(transactional_id, count)

    def coordinated(self, transactional_id: str) -> CoordinatedTransactions | ErrorCode:
        """Return the partition of a transactional id, or NOT_COORDINATOR or
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        found = self._led.get(self.partition_of(transactional_id))
        if found is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if found.is_loading else found

    def is_current(self, led: CoordinatedTransactions) -> bool:
        """Return whether a partition is still loaded with the same coordinator epoch."""
        return self._led.get(led.number) is led and not led.is_loading

    def find(self, number: int) -> CoordinatedTransactions | None:
        """Return a partition that is loaded or being loaded."""
        return self._led.get(number)

    def all(self) -> Iterator[CoordinatedTransactions]:
        """Yield every partition that is loaded or being loaded, by number."""
        for number in sorted(self._led):
            yield self._led[number]

    def on_partition_changed(self, key: PartitionKey) -> None:
        """Load or unload a partition if its leader or its leader epoch has changed."""
        topic, number = key
        if topic != TRANSACTION_STATE:
            return
        hosted = self._hosted.find(topic, number)
        leads = hosted is not None and hosted.replica.is_leader
        known = self._led.get(number)
        if known is not None and not (
            hosted is known.hosted
            and leads
            and known.coordinator_epoch == known.hosted.replica.leader_epoch
        ):
            self._unload(known)
            known = None
        if known is None and hosted is not None and leads:
            led = CoordinatedTransactions(
                self._world,
                hosted,
                self._new_shard(),
                self._log,
                self._rules,
                lambda: value_version(self._transaction_version()),
            )
            self._led[number] = led
            self._shell.tasks.spawn(
                self._load(led), f"transactions of {TRANSACTION_STATE}-{number}"
            )

    def _unload(self, led: CoordinatedTransactions) -> None:
        del self._led[led.number]
        led.is_over = True
        self._on_left(led)
        self._world.emit(
            TransactionsUnloaded(partition=led.number, coordinator_epoch=led.coordinator_epoch)
        )

    async def _load(self, led: CoordinatedTransactions) -> None:
        """Read the log to its end, beyond the high watermark, too: those records may be committed,
        and no other broker writes them any more.
        """
        log = led.hosted.log
        await self._world.yield_point(YieldPoint.TRANSACTION_COORDINATOR_ELECTED)
        try:
            next_offset = await read_back(
                led.hosted,
                buffer_size=self._shell.config.transaction_state_log_load_buffer_size,
                is_wanted=lambda: not led.is_over,
                replay=led.shard.replay,
            )
        except OSError as failure:
            self._hosted.disk_failed(log.directory, "read", failure)
            return
        await self._world.yield_point(YieldPoint.TRANSACTIONS_READ_BACK)
        if led.is_over:
            return
        led.is_loading = False
        led.emit_loaded(next_offset)
        self._on_loaded(led)

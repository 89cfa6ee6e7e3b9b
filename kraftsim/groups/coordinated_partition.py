"""One partition of `__consumer_offsets` that this broker leads: its groups, and the log that stores
them.

The effects of the group state machines are executed here, in order: responses are sent, records are
appended and replicated, and the next timer is scheduled.
Source: kafka.coordinator.group.GroupMetadataManager.appendForGroup.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar, assert_never

from kraftsim.core.decision import Refusal
from kraftsim.groups.coordinator_log import CoordinatorLog
from kraftsim.groups.rules_offsets import NO_OFFSET, Append, Effect, GroupReply, Stored
from kraftsim.groups.rules_shard import GroupShard
from kraftsim.groups.rules_timing import GroupAnswer, GroupMoment
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.rules_append import ALL_REPLICAS
from kraftsim.server.pump import Pump
from kraftsim.world.interface import Clock
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record

Value = TypeVar("Value")
OnAnswer = Callable[[GroupAnswer], None]
FIRST_WAITER: Final = 1
COORDINATOR_SEQUENCE: Final = 0
LEADER_ONLY: Final = 1


class CoordinatedPartition:
    """The groups of one partition.

    While `is_loading`, requests fail with COORDINATOR_LOAD_IN_PROGRESS.

    `on_unwritten` is called when in-memory state could not be written to the log: the groups must
    then be reloaded.
    """

    def __init__(
        self,
        hosted: HostedPartition,
        shard: GroupShard,
        log: CoordinatorLog,
        clock: Clock,
        on_unwritten: Callable[[], None],
    ) -> None:
        self._on_unwritten = on_unwritten
        self.hosted = hosted
        self.shard = shard
        self.is_loading = True
        self.is_over = False
        """The partition is unloaded: another broker is its coordinator, or this one has reloaded
        it.
        """
        self._log = log
        self._clock = clock
        self._waiters: dict[int, OnAnswer] = {}
        self._next_waiter = FIRST_WAITER
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._pump: Pump[Effect] = Pump(self._carry_out)

    # Requests
    # ----------------------------------------------------------------------------------------------

    def now(self) -> GroupMoment:
        """Return the present moment."""
        return GroupMoment(self._clock.monotonic_ms(), self._clock.wall_ms())

    def ask(self, ask: Callable[[int, GroupMoment], list[Effect]], on_answer: OnAnswer) -> None:
        """Run an operation whose response is deferred: `ask` receives the id by which the response
        is matched to it.
        """
        waiter = self._next_waiter
        self._next_waiter += 1
        self._waiters[waiter] = on_answer
        self.settle(ask(waiter, self.now()))

    def settle(self, effects: list[Effect]) -> None:
        """Execute the effects of an input, and schedule the next timer."""
        self._pump.run(effects)
        self._watch()

    def settled(self, outcome: tuple[Value, list[Effect]]) -> Value:
        """Execute the effects of an input that also has a value, and return that."""
        value, effects = outcome
        self.settle(effects)
        return value

    def end_transaction(
        self, producer_id: int, producer_epoch: int, marker_offset: int, *, is_commit: bool
    ) -> None:
        """The transaction marker of a producer is replicated.

        During loading it is ignored: the log contains it.
        """
        if self.is_loading:
            return
        self.shard.end_transaction(producer_id, producer_epoch, marker_offset, is_commit=is_commit)

    def close(self) -> None:
        """Cancel the timer."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def begin(self) -> None:
        """Loading is complete."""
        self.is_loading = False
        self.settle(self.shard.begin(self.now()))

    def end(self) -> None:
        """Leadership is lost: complete all pending requests with an error."""
        self.is_over = True
        self._pump.run(self.shard.end(self.now()))
        self.close()

    def _watch(self) -> None:
        next_ms = self.shard.timers.next_ms
        if self._alarm is not None and self._alarm_ms == next_ms:
            return
        self.close()
        if next_ms is not None:
            self._alarm_ms = next_ms
            delay_ms = max(next_ms - self._clock.monotonic_ms(), 0)
            self._alarm = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        self.settle(self.shard.on_wake(self.now()))

    # Effects
    # ----------------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case GroupReply():
                self._waiters.pop(effect.waiter)(effect.answer)
            case Append():
                self._append(effect)
            case _:
                assert_never(effect)

    def _append(self, append: Append) -> None:
        """Append records, or none; the result is reported once all in-sync replicas have them, and
        what was appended before.

        Too few replicas in sync refuse the append up to 3.9, except for tombstones, whose result is
        not awaited: else what was deleted would come back with the next coordinator
        (GroupMetadataManager.cleanupGroupMetadata: requiredAcks = 0). CoordinatorRuntime appends
        (CoordinatorPartitionWriter: requiredAcks = 1), and the wait for the high watermark times
        out.
        """
        token, producer = append.token, append.producer
        if not append.records:
            assert token is not None, "what appends nothing waits for what was appended before"
            end_offset = self.hosted.replica.log_end_offset
            self._await_replicas(token, end_offset, end_offset)
            return
        is_written_anyway = (
            append.holds_already or token is None or self.shard.has_coordinator_runtime
        )
        acks = LEADER_ONLY if is_written_anyway else ALL_REPLICAS
        outcome = self._log.append(
            self.hosted, self._batch(append), acks, None if producer is None else producer.guard
        )
        if append.holds_already and isinstance(outcome, Refusal):
            self._on_unwritten()
        if token is None:
            return
        if isinstance(outcome, Refusal):
            self._on_stored(token, outcome.error, NO_OFFSET)
            return
        self._await_replicas(token, outcome.first_offset, outcome.last_offset + 1)

    def _await_replicas(self, token: int, first_offset: int, required_offset: int) -> None:
        def on_end(error: ErrorCode) -> None:
            self._on_stored(token, error, first_offset)
            if error is ErrorCode.REQUEST_TIMED_OUT and self.shard.is_awaited(token):
                self._await_replicas(token, first_offset, required_offset)

        self._log.when_replicated(self.hosted, required_offset, on_end)

    def _batch(self, append: Append) -> RecordBatch:
        """Build a batch.

        Transactional ones all have sequence number 0: the coordinator's own appends skip the
        sequence check, as in Kafka.
        """
        timestamp, producer = self._clock.wall_ms(), append.producer
        rows = [
            Record(timestamp=timestamp, key=record.key, value=record.value)
            for record in append.records
        ]
        if producer is None:
            return RecordBatch(build_batch(rows, compression=self._log.compression))
        built = build_batch(
            rows,
            compression=self._log.compression,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=COORDINATOR_SEQUENCE,
            transactional=True,
        )
        return RecordBatch(built)

    def _on_stored(self, token: int, error: ErrorCode, first_offset: int) -> None:
        self.settle(self.shard.on_stored(token, Stored(error, first_offset, self.now())))

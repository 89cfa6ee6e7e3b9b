"""Logs for the compaction tests: seeded workloads of producers, transactions and tombstones, and
what a reader makes of such a log.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_cleaner import CleanedLog, LogToClean, clean_log
from kraftsim.partitions.log_reading import LogGate
from kraftsim.partitions.partition_opening import recover_partition
from kraftsim.partitions.rules_cleaning import (
    Cleanable,
    CleaningRules,
    LogExtent,
    OffsetMap,
    cleanable,
    retained_batches_of,
)
from kraftsim.partitions.rules_log import SegmentSettings
from kraftsim.partitions.segment_swap import finish_swaps
from kraftsim.producer_state.rules_entries import ProducerStatePolicy
from kraftsim.producer_state.rules_manager import ProducerStateManager, marker_of
from kraftsim.world.interface import World
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.control_records import ControlType, EndTxnMarker, build_control_record
from protocol.records.record import Compression, Record

SEGMENTS = SegmentSettings(segment_bytes=1500, index_interval_bytes=200)
RULES = CleaningRules(is_compacted=True, segment_bytes=4000, delete_retention_ms=1000)
CODECS = (
    Compression.NONE,
    Compression.NONE,
    Compression.GZIP,
    Compression.SNAPPY,
    Compression.LZ4,
    Compression.ZSTD,
)
T = 1_700_000_000_000


Looked = TypeVar("Looked")


class Unhurried:
    """A pace without delays."""

    def __init__(self, each_step: Callable[[], None] = lambda: None) -> None:
        self._each_step = each_step

    async def spend(self, size_bytes: int) -> None:
        self._each_step()

    async def through(self, batch: RecordBatch, look: Callable[[], Looked]) -> Looked:
        return look()


@dataclass
class Observed:
    """What a read_committed consumer and a broker make of a log."""

    values: dict[bytes, bytes] = field(default_factory=dict)
    offsets: dict[bytes, int] = field(default_factory=dict)
    producers: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    unstable: int | None = None
    end_offset: int = 0


def observed(log: PartitionLog) -> Observed:
    """Read a whole log as a consumer and a broker do."""
    answer, state = Observed(end_offset=log.log_end_offset), new_state()
    pending: dict[int, list[Record]] = {}

    def take(records: list[Record]) -> None:
        for record in sorted(records):
            assert record.key is not None
            answer.offsets[record.key] = record.offset
            if record.value is None:
                answer.values.pop(record.key, None)
            else:
                answer.values[record.key] = record.value

    batches: list[RecordBatch] = []
    log.replay(batches.append)
    ready: list[Record] = []
    for batch in batches:
        assert batch.crc_is_valid()
        state.replay(batch)
        if batch.is_control:
            marker = marker_of(batch)
            done = pending.pop(batch.producer_id, [])
            if marker is not None and not marker.is_abort:
                ready += done
        elif batch.is_transactional:
            pending.setdefault(batch.producer_id, []).extend(batch.records())
        else:
            ready += batch.records()
    take(ready)
    answer.offsets = {key: offset for key, offset in answer.offsets.items() if key in answer.values}
    for producer_id, entry in sorted(state.entries.items()):
        # if only a marker is left of a producer its epoch is removed with it, in Apache Kafka as
        # well
        if entry.retained:
            answer.producers[producer_id] = (
                entry.producer_epoch,
                entry.last_sequence,
                entry.retained[-1].last_offset,
            )
    state.on_high_watermark(log.log_end_offset)
    answer.unstable = state.first_unstable_offset
    return answer


def new_state() -> ProducerStateManager:
    return ProducerStateManager(ProducerStatePolicy(verifies_transactions=False))


class KeyedLog:
    """A log with its producers, written by a workload and opened again after a crash."""

    def __init__(
        self, world: World, recovery_point: int | None, segments: SegmentSettings = SEGMENTS
    ) -> None:
        self.world = world
        self.state = new_state()
        self.log = PartitionLog(world, "t", 0, segments, on_rolled=self._take_snapshot)
        self.snapshots = recover_partition(
            world, self.log, self.state, recovery_point=recovery_point, log_start_offset=0
        )
        self._sequences: dict[int, int] = {}
        self.now_ms = T

    def _take_snapshot(self) -> None:
        self.snapshots.take(self.state, self.log.base_offsets[-1])

    def add(self, data: bytes) -> None:
        batch, offset = RecordBatch(data), self.log.log_end_offset
        self.log.append(
            batch.with_base_offset(offset, 3),
            first_offset=offset,
            last_offset=offset + batch.last_offset_delta,
            size_bytes=batch.size_bytes,
            max_timestamp=batch.max_timestamp,
            leader_epoch=3,
        )
        aborted = self.state.apply(batch, offset)
        if aborted is not None:
            self.log.add_aborted(aborted)

    def data(
        self, draw: Random, producer_id: int, *, transactional: bool = False, keys: int = 20
    ) -> None:
        self.now_ms += draw.randrange(50)
        records = [
            Record(
                timestamp=self.now_ms + index,
                key=b"key-%03d" % draw.randrange(keys)
                + (b"-and-a-long-tail" if draw.random() < 0.3 else b""),
                value=None
                if draw.random() < 0.25
                else b"%d" % draw.randrange(1 << 40) * draw.randrange(1, 4),
                headers=(("h", b"1"),) if draw.random() < 0.2 else (),
            )
            for index in range(draw.randrange(1, 6))
        ]
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(records)
        is_anonymous = producer_id < 0
        self.add(
            build_batch(
                records,
                producer_id=producer_id,
                producer_epoch=-1 if is_anonymous else 0,
                base_sequence=-1 if is_anonymous else sequence,
                compression=draw.choice(CODECS),
                transactional=transactional,
                append_timestamp=self.now_ms if draw.random() < 0.2 else None,
            )
        )

    def marker(self, producer_id: int, *, commits: bool) -> None:
        kind = ControlType.COMMIT if commits else ControlType.ABORT
        key, value = build_control_record(kind, EndTxnMarker(coordinator_epoch=1))
        record = Record(timestamp=self.now_ms, key=key, value=value)
        self.add(
            build_batch(
                [record],
                producer_id=producer_id,
                producer_epoch=0,
                transactional=True,
                control=True,
            )
        )

    def write_workload(self, draw: Random, steps: int) -> None:
        """Non-idempotent writes, idempotent producers (1, 2), one that writes once (3), and
        overlapping transactions of 10 to 12; 12 always aborts.
        """
        is_open: dict[int, int] = {}
        self.data(draw, 3)
        for step in range(steps):
            choice = draw.random()
            stale = next(
                (producer_id for producer_id, begun in is_open.items() if begun < step - 12), None
            )
            if stale is not None or (is_open and choice < 0.25):
                producer_id = draw.choice(sorted(is_open)) if stale is None else stale
                del is_open[producer_id]
                self.marker(producer_id, commits=producer_id != 12 and draw.random() < 0.6)
            elif choice < 0.6:
                self.data(draw, draw.choice((-1, 1, 2)))
            elif choice < 0.95:
                producer_id = draw.choice((10, 11, 12))
                is_open.setdefault(producer_id, step)
                self.data(draw, producer_id, transactional=True)
            else:
                self.marker(13, commits=draw.random() < 0.5)

    async def settle(self) -> None:
        """Flush everything."""
        self.state.on_high_watermark(self.log.log_end_offset)
        await self.snapshots.flush()
        await self.log.store_epochs()
        await self.log.flush()

    def dirty(
        self, checkpoint: int | None = None, rules: CleaningRules = RULES, now_ms: int | None = None
    ) -> Cleanable:
        self.state.on_high_watermark(self.log.log_end_offset)
        unstable = self.state.first_unstable_offset
        end = self.log.log_end_offset
        extent = LogExtent(
            segments=self.log.segments,
            log_start_offset=self.log.log_start_offset,
            log_end_offset=end,
            last_stable_offset=end if unstable is None else unstable,
        )
        return cleanable(
            extent,
            rules,
            checkpoint_offset=checkpoint,
            now_ms=self.now_ms if now_ms is None else now_ms,
        )

    async def clean(
        self,
        *,
        checkpoint: int | None = None,
        now_ms: int | None = None,
        offsets: OffsetMap | None = None,
        pace: Unhurried | None = None,
    ) -> CleanedLog:
        """Clean what may be cleaned, as the broker's cleaner does."""
        now_ms = self.now_ms if now_ms is None else now_ms
        work = LogToClean(
            log=self.log,
            snapshots=self.snapshots,
            rules=RULES,
            found=self.dirty(checkpoint),
            lasts=lambda: retained_batches_of(self.state.entries),
        )
        gate: LogGate = self.log.gate
        gate.begin_cleaning()
        try:
            return await clean_log(
                work,
                OffsetMap(1 << 20, 0.9) if offsets is None else offsets,
                pace or Unhurried(),
                now_ms=now_ms,
            )
        finally:
            gate.end_cleaning()


async def opened(world: World, recovery_point: int | None) -> KeyedLog:
    """Open the log as a broker does."""
    await finish_swaps(world.disk, "t-0")
    return KeyedLog(world, recovery_point)

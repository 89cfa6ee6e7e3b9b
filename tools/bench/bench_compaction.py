"""Measures how fast a broker compacts a log, and how long it blocks the event loop meanwhile.

One partition is cleaned in one process, like the broker's cleaner does: keys are read, segments
rewritten, flushed and swapped. The longest iteration of the event loop is the longest wait of a
client. The page cache is warm.

make bench ARGS=compaction, or
python -m tools.bench.bench_compaction [--mebibytes 256] [--value-bytes 1000]
                                       [--records-per-batch 16] [--keys 20000]
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_cleaner import (
    WITHOUT_LIMIT,
    CleanedLog,
    CleaningPace,
    LogToClean,
    clean_log,
)
from kraftsim.partitions.producer_snapshots import ProducerSnapshots
from kraftsim.partitions.rules_cleaning import CleaningRules, LogExtent, OffsetMap, cleanable
from kraftsim.partitions.rules_log import SegmentSettings
from kraftsim.world.real.world import RealWorld, real_world
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record
from tools.bench.result import Basis, report_cost, report_rate

MEBIBYTE = 1 << 20
SEGMENT_BYTES = 64 * MEBIBYTE
MAP_BYTES = 128 * MEBIBYTE


class TurnWatch:
    """Measures the longest delay of a task that runs in every iteration of the event loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.perf_counter() - began)


def filled(
    world: RealWorld, mebibytes: int, value_bytes: int, records_per_batch: int, keys: int
) -> PartitionLog:
    """Write a log with cyclic keys."""
    log = PartitionLog(world, "t", 0, SegmentSettings(segment_bytes=SEGMENT_BYTES))
    log.recover(lambda batch: None)
    number = 0
    while log.size_bytes < mebibytes * MEBIBYTE:
        records = [
            Record(
                timestamp=1, key=b"key-%08d" % ((number + each) % keys), value=bytes(value_bytes)
            )
            for each in range(records_per_batch)
        ]
        number += records_per_batch
        batch, offset = RecordBatch(build_batch(records)), log.log_end_offset
        log.append(
            batch.with_base_offset(offset, 0),
            first_offset=offset,
            last_offset=offset + batch.last_offset_delta,
            size_bytes=batch.size_bytes,
            max_timestamp=1,
            leader_epoch=0,
        )
    return log


async def cleaned(log: PartitionLog, world: RealWorld, watch: TurnWatch) -> CleanedLog:
    """Clean the whole cleanable part of the log."""
    rules, end_offset = (
        CleaningRules(is_compacted=True, segment_bytes=SEGMENT_BYTES),
        log.log_end_offset,
    )
    extent = LogExtent(
        segments=log.segments,
        log_start_offset=0,
        log_end_offset=end_offset,
        last_stable_offset=end_offset,
    )
    now_ms = world.clock.wall_ms()
    found = cleanable(extent, rules, checkpoint_offset=None, now_ms=now_ms)
    work = LogToClean(
        log=log,
        snapshots=ProducerSnapshots(world, log.directory),
        rules=rules,
        found=found,
        lasts=dict,
    )
    watching = asyncio.get_running_loop().create_task(watch.run())
    try:
        return await clean_log(
            work,
            OffsetMap(MAP_BYTES, 0.9),
            CleaningPace(world, log.gate, WITHOUT_LIMIT),
            now_ms=now_ms,
        )
    finally:
        watching.cancel()


def main() -> int:
    """Print the throughput, the remaining records, and the longest iteration."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (
        ("--mebibytes", 256),
        ("--value-bytes", 1000),
        ("--records-per-batch", 16),
        ("--keys", 20000),
    ):
        parser.add_argument(name, type=int, default=default)
    asked = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="bench-compaction-"))
    try:
        world = real_world(
            run="bench",
            node="broker-1",
            incarnation=1,
            data_dir=root / "data",
            events_dir=root / "events",
            seed=1,
        )
        log = filled(world, asked.mebibytes, asked.value_bytes, asked.records_per_batch, asked.keys)
        before, watch = log.size_bytes, TurnWatch()
        began, used = time.perf_counter(), time.process_time()
        done = asyncio.run(cleaned(log, world, watch))
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - used
        size = done.counts.read_bytes / MEBIBYTE
        print(
            f"{before / MEBIBYTE:.0f} MiB with {done.keys} keys: {done.counts.read_records} "
            f"records read, {done.counts.kept_records} kept"
        )
        report_rate("compaction.rate", "log compaction, both passes", "MiB/s", [size / took_s])
        title = "log compaction, both passes, of one CPU second"
        report_rate("compaction.cpu_rate", title, "MiB", [size / cpu_s], basis=Basis.CPU)
        title = "longest iteration of the event loop"
        report_cost("compaction.longest_iteration", title, "ms", [watch.longest_s * 1000])
        log.close()
        world.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Measures how long a broker takes to load the log of one partition: after a clean shutdown, and
after kill -9.

The log has --producers producers, each with an equal share of the batches. The log and its producer
state are recovered in one process, as a broker does before it can lead. The page cache is warm, as
it is after kill -9 of a process; all required checksums are verified. `recovery point` is the
offset up to which the log was flushed: what is before it need not be read.

make bench ARGS=recovery, or
python -m tools.bench.bench_recovery [--mebibytes 1024] [--producers 100000]
                                     [--batch-bytes 16384] [--rounds 3]
"""

import argparse
import asyncio
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.partition_opening import recover_partition
from kraftsim.partitions.producer_snapshots import ProducerSnapshots
from kraftsim.partitions.rules_log import SegmentSettings
from kraftsim.producer_state.rules_entries import ProducerStatePolicy
from kraftsim.producer_state.rules_manager import ProducerStateManager
from kraftsim.world.real.world import RealWorld, real_world
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record
from tools.bench.result import Basis, report_cost

MEBIBYTE = 1 << 20
SEGMENT_BYTES = 128 * MEBIBYTE
HEADERS_LEFT = 120
"""The approximate overhead of a batch with one record."""


class Subject:
    """A partition log with its producer state in a directory."""

    def __init__(self, root: Path, number: int, recovery_point: int | None) -> None:
        self.world: RealWorld = real_world(
            run="bench",
            node="broker-1",
            incarnation=number,
            data_dir=root / "data",
            events_dir=root / "events",
            seed=1,
        )
        self.state = ProducerStateManager(ProducerStatePolicy())
        settings = SegmentSettings(segment_bytes=SEGMENT_BYTES)
        self.log = PartitionLog(self.world, "t", 0, settings, on_rolled=self._roll)
        began = time.perf_counter()
        self.snapshots: ProducerSnapshots = recover_partition(
            self.world, self.log, self.state, recovery_point=recovery_point, log_start_offset=0
        )
        self.recovery_s = time.perf_counter() - began

    def _roll(self) -> None:
        self.snapshots.take(self.state, self.log.base_offsets[-1])

    def append(self, batch: RecordBatch) -> None:
        """Append a batch as a leader does."""
        offset = self.log.log_end_offset
        last_offset = offset + batch.last_offset_delta
        self.log.append(
            batch.with_base_offset(offset, 0),
            first_offset=offset,
            last_offset=last_offset,
            size_bytes=batch.size_bytes,
            max_timestamp=batch.max_timestamp,
            leader_epoch=0,
        )
        self.state.apply(batch, offset)

    def leave(self, *, cleanly: bool) -> None:
        """Stop cleanly, or not."""
        if cleanly:
            self.snapshots.take(self.state, self.log.log_end_offset)
            self.log.seal()
        self.log.abort()
        self.world.close()


def batches(count: int, producers: int, batch_bytes: int, now_ms: int) -> Iterator[RecordBatch]:
    """Yield batches of one record; the producers take turns."""
    value = bytes(max(batch_bytes - HEADERS_LEFT, 1))
    for number in range(count):
        record = Record(timestamp=now_ms, key=b"%012d" % number, value=value)
        yield RecordBatch(
            build_batch(
                [record],
                producer_id=number % producers,
                producer_epoch=0,
                base_sequence=number // producers,
            )
        )


def main() -> int:
    """Write the log, load it repeatedly, print medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--producers", type=int, default=100_000)
    parser.add_argument("--batch-bytes", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
    try:
        measure(root, options.mebibytes, options.producers, options.batch_bytes, options.rounds)
    finally:
        shutil.rmtree(root)
    return 0


def measure(root: Path, mebibytes: int, producers: int, batch_bytes: int, rounds: int) -> None:
    """Report each kind of shutdown."""
    subject = Subject(root, 1, None)
    for batch in batches(
        mebibytes * MEBIBYTE // batch_bytes, producers, batch_bytes, subject.world.clock.wall_ms()
    ):
        subject.append(batch)
    asyncio.run(subject.log.store_epochs())
    last_base, end_offset = subject.log.base_offsets[-1], subject.log.log_end_offset
    print(
        f"{mebibytes} MiB, {end_offset} batches, {producers} producers, "
        f"{len(subject.log.base_offsets)} segments"
    )
    subject.leave(cleanly=True)
    number = 1
    for name, title, recovery_point in (
        ("clean_stop", "after a clean stop", None),
        ("kill.flushed", "after kill -9, flushed when segments were rolled", last_base),
        ("kill.never_flushed", "after kill -9, never flushed", 0),
    ):
        took: list[float] = []
        for _ in range(rounds):
            if recovery_point is not None:
                (root / "data" / "t-0" / f"{end_offset:020d}.snapshot").unlink()
            number += 1
            subject = Subject(root, number, recovery_point)
            took.append(subject.recovery_s)
            assert (subject.log.log_end_offset, len(subject.state.entries)) == (
                end_offset,
                min(producers, end_offset),
            ), "everything is recovered"
            subject.leave(cleanly=False)
        report_cost(f"recovery.{name}", f"opening a log of {mebibytes} MiB {title}", "s", took)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report_cost("recovery.memory", "most memory", "MiB", [peak], basis=Basis.SIZE)


if __name__ == "__main__":
    sys.exit(main())

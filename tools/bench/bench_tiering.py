"""Measures tiered storage: upload and remote reads compared with the local log, and the start of a
follower after a segment with many producers.

The same log is read in the same run, so that both figures come from one machine and one page cache.
The store is a directory; remote log metadata is in memory, because records of the metadata topic
are few. The start of a follower is measured without the connection to its leader: fetching from the
store and building producer state, with each remedy that lets it start.

make bench ARGS=tiering, or
python -m tools.bench.bench_tiering [--mebibytes 512] [--producers 100000] [--rounds 3]
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.rules_log import SegmentSettings
from kraftsim.producer_state.rules_entries import ProducerStatePolicy, snapshot_file, state_entries
from kraftsim.producer_state.rules_manager import ProducerStateManager
from kraftsim.tiered_storage.archiving import pieces_of
from kraftsim.tiered_storage.remote_store import RemoteFile, RemoteStore
from kraftsim.tiered_storage.rules_copying import candidates
from kraftsim.tiered_storage.rules_segments import RemoteSegment, TopicIdPartition
from kraftsim.world.interface import Chunk
from kraftsim.world.real.world import RealWorld, real_world
from protocol.records.batches import RecordBatch, build_batch, split_batches
from protocol.records.record import Record
from protocol.storage.producer_snapshot import parse_producer_rows
from protocol.storage.text_files import EpochStart
from tools.bench.result import report_cost, report_rate

MEBIBYTE = 1 << 20
SEGMENT_BYTES = 64 * MEBIBYTE
READ_BYTES = MEBIBYTE
OWNER = TopicIdPartition(b"t" * 16, 0, "t")


def batches(mebibytes: int, producers: int) -> Iterator[RecordBatch]:
    """Yield batches of all producers in turn, up to the requested size of the log."""
    size_bytes = max(mebibytes * MEBIBYTE // max(producers, mebibytes * 64), 200)
    value = b"v" * (size_bytes - 80)
    for number in range(mebibytes * MEBIBYTE // size_bytes):
        record = Record(0, 1_700_000_000_000, None, value, ())
        yield RecordBatch(
            build_batch(
                [record],
                producer_id=number % producers,
                producer_epoch=0,
                base_sequence=number // producers,
            )
        )


def fill(world: RealWorld, mebibytes: int, producers: int) -> PartitionLog:
    """Write a log."""
    log = PartitionLog(world, "t", 0, SegmentSettings(segment_bytes=SEGMENT_BYTES))
    log.recover(lambda batch: None)
    for batch in batches(mebibytes, producers):
        offset = log.log_end_offset
        chunks: list[Chunk] = list(batch.with_base_offset(offset, 0))
        log.append(
            chunks,
            first_offset=offset,
            last_offset=offset,
            size_bytes=batch.size_bytes,
            max_timestamp=batch.max_timestamp,
            leader_epoch=0,
        )
    return log


def described(log: PartitionLog) -> list[RemoteSegment]:
    """Return the closed segments of a log as remote segments."""
    due = candidates(
        log.segments,
        remote_end_offset=-1,
        log_start_offset=0,
        last_stable_offset=log.log_end_offset,
    )
    return [
        RemoteSegment(
            segment_id=index.to_bytes(16, "big"),
            owner=OWNER,
            start_offset=each.segment.base_offset,
            end_offset=each.next_offset - 1,
            max_timestamp_ms=each.segment.max_timestamp,
            broker_id=1,
            event_timestamp_ms=0,
            size_bytes=each.segment.size_bytes,
            leader_epochs=(EpochStart(0, each.segment.base_offset),),
        )
        for index, each in enumerate(due)
    ]


async def archive(log: PartitionLog, store: RemoteStore, segments: list[RemoteSegment]) -> float:
    """Copy all closed segments, and return the seconds that took."""
    began = time.perf_counter()
    for segment in segments:
        await store.copy(
            segment,
            {
                RemoteFile.RECORDS: list(
                    pieces_of(log.records_file(segment.start_offset), segment.size_bytes)
                )
            },
        )
    return time.perf_counter() - began


async def read_through(store: RemoteStore, segments: list[RemoteSegment]) -> float:
    """Read all records from the store in pieces, and return the seconds that took."""
    began = time.perf_counter()
    for segment in segments:
        for position in range(0, segment.size_bytes, READ_BYTES):
            await store.read(segment, position, READ_BYTES)
    return time.perf_counter() - began


def read_locally(log: PartitionLog, segments: list[RemoteSegment]) -> float:
    """Read the same records from the log in pieces, and return the seconds that took."""
    began = time.perf_counter()
    for segment in segments:
        file = log.records_file(segment.start_offset)
        for position in range(0, segment.size_bytes, READ_BYTES):
            file.read(position, READ_BYTES)
    return time.perf_counter() - began


async def replay(store: RemoteStore, segments: list[RemoteSegment]) -> tuple[float, int]:
    """Build producer state from the remote log; return the seconds that took and the number of
    producers.
    """
    state = ProducerStateManager(ProducerStatePolicy())
    began = time.perf_counter()
    for segment in segments:
        position = 0
        while piece := await store.read(segment, position, 8 * READ_BYTES):
            taken = 0
            for batch in split_batches(piece):
                state.replay(batch)
                taken += batch.size_bytes
            position += taken
    return time.perf_counter() - began, len(state.entries)


async def load(store: RemoteStore, segment: RemoteSegment) -> tuple[float, int]:
    """Build producer state from a remote snapshot; return the seconds that took and the number of
    producers.
    """
    state = ProducerStateManager(ProducerStatePolicy())
    began = time.perf_counter()
    written = await store.file(segment, RemoteFile.PRODUCERS)
    state.load(state_entries(parse_producer_rows(written)), 1_700_000_000_000)
    return time.perf_counter() - began, len(state.entries)


async def run(arguments: argparse.Namespace, root: Path) -> None:
    """Measure, and print."""
    world = real_world(
        run="bench",
        node="broker-1",
        incarnation=1,
        data_dir=root / "data",
        events_dir=root / "events",
        seed=1,
    )
    store = RemoteStore(world.objects(f"file:{root / 'store'}", {}))
    log = fill(world, arguments.mebibytes, arguments.producers)
    await log.flush()
    segments = described(log)
    megabytes = sum(each.size_bytes for each in segments) / 1e6
    rates: dict[str, list[float]] = {"archive": [], "read through": [], "local log": []}
    for _ in range(arguments.rounds):
        rates["local log"].append(megabytes / read_locally(log, segments))
        rates["archive"].append(megabytes / await archive(log, store, segments))
        rates["read through"].append(megabytes / await read_through(store, segments))
    print(f"{len(segments)} segments, {megabytes:.0f} MB, {arguments.producers} producers")
    report_rate("tiering.archive", "archive, each object flushed", "MB/s", rates["archive"])
    report_rate(
        "tiering.read",
        "remote read",
        "MB/s",
        rates["read through"],
        peer="local log",
        peer_values=rates["local log"],
    )
    full = ProducerStateManager(ProducerStatePolicy())
    log.replay(full.replay)
    rows = snapshot_file(full.entries.values())
    for segment, written in zip(segments[:2], (rows, snapshot_file(())), strict=False):
        await store.copy(segment, {RemoteFile.PRODUCERS: [written]})
    seconds, known = await load(store, segments[0])
    title = f"producer state of {known} producers from a true snapshot"
    report_cost("tiering.load.true_snapshot", title, "s", [seconds])
    seconds, known = await load(store, segments[1])
    title = f"producer state of {known} producers from an empty snapshot"
    report_cost("tiering.load.empty_snapshot", title, "s", [seconds])
    seconds, known = await replay(store, segments)
    title = f"producer state of {known} producers from a replay of {megabytes:.0f} MB"
    report_cost("tiering.load.replay", title, "s", [seconds])
    log.close()
    world.close()


def main() -> None:
    """Read the arguments, and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mebibytes", type=int, default=512)
    parser.add_argument("--producers", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(parser.parse_args(), Path(directory)))


if __name__ == "__main__":
    main()

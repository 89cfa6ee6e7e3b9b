"""The same log, cleaned by Apache Kafka's cleaner and by ours, is the same afterwards; and each
opens the log that the other cleaned.
"""

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from kraftsim.partitions.rules_log import SegmentSettings
from kraftsim.world.real.world import RealWorld, real_world
from protocol.records.batches import COMPRESSION_MASK, RecordBatch, split_batches
from protocol.storage.indexes import parse_transaction_index
from protocol.storage.text_files import parse_offset_checkpoint
from tests.apache_kafka.class_path import class_path
from tests.apache_kafka.harness import ApacheKafka, dump_log
from tests.clients.test_disk_formats import WRONG
from tests.node.compaction_harness import SEGMENTS, KeyedLog, observed, opened

pytestmark = pytest.mark.interop
TOPIC = "t"
CHECKPOINT = "cleaner-offset-checkpoint"
SETTINGS = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "0"}
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "4000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
    "index.interval.bytes": "200",
}


class CleanedLog(NamedTuple):
    """A batch without its delete horizon."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    max_timestamp: int
    producer: tuple[int, int, int]
    records: tuple[object, ...]


@pytest.fixture(autouse=True)
def require_java() -> Iterator[None]:
    class_path()
    yield


def left(
    directory: Path,
) -> tuple[dict[int, list[CleanedLog]], dict[int, list[tuple[int, int, int]]]]:
    """Return the batches of each segment, and the aborted transactions."""
    segments = {
        int(file.stem): [row(batch) for batch in split_batches(file.read_bytes())]
        for file in sorted(directory.glob("*.log"))
    }
    aborted = {}
    for file in sorted(directory.glob("*.txnindex")):
        entries = [
            (each.producer_id, each.first_offset, each.last_offset)
            for each in parse_transaction_index(file.read_bytes())
        ]
        if entries:
            aborted[int(file.stem)] = entries
    return segments, aborted


def row(batch: RecordBatch) -> CleanedLog:
    assert batch.crc_is_valid()
    return CleanedLog(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        leader_epoch=batch.partition_leader_epoch,
        attributes=batch.attributes,
        max_timestamp=batch.max_timestamp,
        producer=(batch.producer_id, batch.producer_epoch, batch.base_sequence),
        records=tuple(batch.records()),
    )


def world_at(root: Path, incarnation: int) -> RealWorld:
    return real_world(
        run="test",
        node="broker-1",
        incarnation=incarnation,
        data_dir=root / "data",
        events_dir=root / "events",
        seed=1,
    )


def write(root: Path, seed: int) -> None:
    """Write the log, with recently active producers, and close it cleanly."""

    async def write_log() -> None:
        world = world_at(root, 1)
        keyed = KeyedLog(
            world,
            0,
            SegmentSettings(segment_bytes=SEGMENTS.segment_bytes, index_interval_bytes=200),
        )
        keyed.now_ms = world.clock.wall_ms() - 60_000
        keyed.write_workload(Random(seed), 150)
        keyed.data(Random(seed), 2, transactional=False)
        keyed.snapshots.take(keyed.state, keyed.log.log_end_offset)
        keyed.log.seal()
        await keyed.settle()
        keyed.log.close()
        world.close()

    asyncio.run(write_log())


def clean_here(root: Path, incarnation: int) -> int:
    """Run our cleaner; return the offset up to which the log is clean."""

    async def clean() -> int:
        world = world_at(root, incarnation)
        keyed = await opened(world, None)
        before = observed(keyed.log)
        done = await keyed.clean(now_ms=world.clock.wall_ms())
        assert observed(keyed.log) == before
        keyed.snapshots.take(keyed.state, keyed.log.log_end_offset)
        keyed.log.close()
        world.close()
        return done.next_dirty_offset

    return asyncio.run(clean())


def clean_there(apache: ApacheKafka, until: int) -> None:
    """Start Apache Kafka, wait until its cleaner has reached the same offset, and stop it."""
    (apache.data / CHECKPOINT).unlink(missing_ok=True)
    apache.start()
    deadline = time.monotonic() + 60
    while (
        parse_offset_checkpoint(
            (apache.data / CHECKPOINT).read_bytes()
            if (apache.data / CHECKPOINT).exists()
            else b"0\n0\n"
        ).get((TOPIC, 0))
        != until
    ):
        assert time.monotonic() < deadline, "Apache Kafka does not clean"
        time.sleep(0.1)
    apache.stop()


@pytest.mark.parametrize("seed", [1])
def test_compaction_leaves_the_same_records_as_in_apache_kafka(tmp_path: Path, seed: int) -> None:
    """Segments, batches, records and aborted transactions: after the first cleaning, and after one
    that may remove tombstones and markers.
    """
    write(tmp_path, seed)
    ours = tmp_path / "data" / f"{TOPIC}-0"
    with ApacheKafka(settings=SETTINGS) as apache:
        options = [
            word for name, value in CONFIGS.items() for word in ("--config", f"{name}={value}")
        ]
        apache.tool(
            "topics",
            "--create",
            "--topic",
            TOPIC,
            "--partitions",
            "1",
            "--replication-factor",
            "1",
            *options,
        )
        apache.stop()
        theirs = apache.data / f"{TOPIC}-0"
        for file in theirs.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        shutil.copytree(ours, theirs, dirs_exist_ok=True)
        whole = left(ours)
        for turn in (1, 2):
            until = clean_here(tmp_path, turn + 1)
            clean_there(apache, until)
            assert left(theirs) == left(ours), f"cleaning {turn}"
            time.sleep(1.2)
        once = left(ours)
        assert sum(map(len, once[0].values())) < sum(map(len, whole[0].values())) and len(
            once[0]
        ) < len(whole[0])
        kept = [batch for segment in once[0].values() for batch in segment]
        assert any(not batch.records for batch in kept) and any(
            batch.attributes & COMPRESSION_MASK for batch in kept
        )
        names = {file.name for file in ours.glob("*.snapshot")}
        assert {file.name for file in theirs.glob("*.snapshot")} == names
        said = dump_log(*sorted(ours.glob("*.log")), *sorted(ours.glob("*index")))
        assert not [word for word in WRONG if word in said]
        shutil.rmtree(ours)
        shutil.copytree(theirs, ours)
        clean_here(tmp_path, 4)

"""The log directory of a broker that has one partition, written byte by byte."""

import os
from collections.abc import Sequence
from pathlib import Path

from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.storage.producer_snapshot import ProducerSnapshotEntry, build_producer_snapshot
from protocol.storage.text_files import CLEAN_SHUTDOWN_FILE as CLEAN_SHUTDOWN
from protocol.storage.text_files import META_PROPERTIES_FILE as META_PROPERTIES
from protocol.storage.text_files import (
    EpochStart,
    MetaProperties,
    build_clean_shutdown,
    build_leader_epoch_checkpoint,
    build_meta_properties,
    build_offset_checkpoint,
)

SEGMENT = "00000000000000000000.log"
FIRST_MS = 1_795_000_000_000
PRODUCER_ID = 1000
RECORDS = 3
"""In each batch."""


def batches_of(count: int) -> list[bytes]:
    """Return batches of an idempotent producer, in leader epoch 0."""
    return [
        build_batch(
            [
                Record(timestamp=FIRST_MS + number * 1000, key=b"key", value=b"value %d" % number)
                for _ in range(RECORDS)
            ],
            base_offset=number * RECORDS,
            leader_epoch=0,
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=number * RECORDS,
        )
        for number in range(count)
    ]


def write_log_dir(
    directory: Path,
    batches: Sequence[bytes],
    *,
    node_id: int = 1,
    topic: str = "orders",
    is_clean: bool = True,
) -> Path:
    """Write a directory with TOPIC-0 and return it; its files were changed after the batches."""
    partition = directory / f"{topic}-0"
    partition.mkdir(parents=True)
    end_offset = len(batches) * RECORDS
    (directory / META_PROPERTIES).write_bytes(
        build_meta_properties(MetaProperties(cluster_id="a-cluster", node_id=node_id))
    )
    if is_clean:
        (directory / CLEAN_SHUTDOWN).write_bytes(build_clean_shutdown(5))
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (directory / name).write_bytes(build_offset_checkpoint({(topic, 0): end_offset}))
    (directory / "log-start-offset-checkpoint").write_bytes(build_offset_checkpoint({}))
    (partition / SEGMENT).write_bytes(b"".join(batches))
    (partition / "leader-epoch-checkpoint").write_bytes(
        build_leader_epoch_checkpoint([EpochStart(0, 0)])
    )
    last = ProducerSnapshotEntry(
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        last_sequence=end_offset - 1,
        last_offset=end_offset - 1,
        offset_delta=RECORDS - 1,
        timestamp=FIRST_MS + (len(batches) - 1) * 1000,
    )
    (partition / f"{end_offset:020}.snapshot").write_bytes(build_producer_snapshot([last]))
    for file in (*directory.rglob("*"), directory):
        os.utime(file, (FIRST_MS / 1000 + 3600, FIRST_MS / 1000 + 3600))
    return directory

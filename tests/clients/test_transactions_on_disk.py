"""Open, committed and aborted transactions on disk: Apache Kafka reads ours, ours reads its, and
each continues where the other stopped.
"""

import asyncio
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftsim.conformance.marker_client import end_at, read_at, seen
from kraftsim.conformance.target import Target, TargetTopic
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k01_fetch import READ_UNCOMMITTED
from protocol.records.batches import build_batch
from protocol.records.record import Record
from tests.apache_kafka.class_path import class_path
from tests.apache_kafka.harness import ApacheKafka, dump_log
from tests.cluster.running import QUICK_SESSIONS, restart_and_wait, running_processes

pytestmark = pytest.mark.interop
SETTINGS = {
    **QUICK_SESSIONS,
    "log.segment.bytes": "300",
    "transaction.partition.verification.enable": "false",
}
WRITTEN, ADOPTED = "written", "adopted"
ONE, OTHER = (5, 1), (6, 2)
"""Producers, with their epochs."""
EXPECTED_READ = ([0, 2, 3, 4, 5, 6], 7, 8, [(5, 0), (5, 5)])
"""What a read_committed consumer gets after `write_transactions`: offsets, last stable offset, high
watermark, aborted transactions.
"""


@pytest.fixture(autouse=True)
def require_java() -> Iterator[None]:
    class_path()
    yield


class Place:
    """One topic of one partition on one broker."""

    def __init__(self, address: str, topic: str) -> None:
        self.target = Target(address)
        self.topic = TargetTopic(name=topic, topic_id=bytes(16), leader=address)

    def write(self, producer: tuple[int, int], sequence: int, records: int = 1) -> None:
        """Write a batch of a transaction."""
        rows = [
            Record(timestamp=int(time.time() * 1000), value=b"%040d" % each)
            for each in range(records)
        ]
        data = build_batch(
            rows,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        topics = [
            TopicProduceData(
                name=self.topic.name,
                partition_data=[PartitionProduceData(index=0, records=bytes(data))],
            )
        ]
        asked = ProduceRequest(transactional_id="T", acks=-1, timeout_ms=5000, topic_data=topics)
        with self.target.peer() as peer:
            row = peer.ask(asked, 9, ProduceResponse).responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.NONE, row

    def end(self, producer: tuple[int, int], *, commits: bool, coordinator_epoch: int = 3) -> int:
        """Write a marker, and return the error."""
        return end_at(
            self.target, self.topic, producer, commits=commits, coordinator_epoch=coordinator_epoch
        )

    def read(self, isolation: int = 1) -> tuple[list[int], int, int, list[tuple[int, int]] | None]:
        """Read all segments as a consumer does, one after the other."""
        offsets: list[int] = []
        named: dict[tuple[int, int], None] = {}
        offset = 0
        while True:
            row = read_at(self.target, self.topic, offset, isolation=isolation)
            came, stable, high_watermark, aborted = seen(row)
            if not came:
                return offsets, stable, high_watermark, list(named) if isolation else None
            offsets += came
            named.update(dict.fromkeys(aborted or ()))
            offset = came[-1] + 2 if came[-1] == 0 else came[-1] + 1

    def write_transactions(self) -> None:
        """Two overlapping transactions, one of them aborted; another aborted one; and one that
        stays open.
        """
        self.write(ONE, 0, 2)
        self.write(OTHER, 0)
        assert [self.end(ONE, commits=False), self.end(OTHER, commits=True)] == [ErrorCode.NONE] * 2
        self.write(ONE, 2)
        assert self.end(ONE, commits=False) == ErrorCode.NONE
        self.write(OTHER, 1)
        assert self.read() == EXPECTED_READ and self.read(READ_UNCOMMITTED)[0] == [
            *EXPECTED_READ[0],
            7,
        ]

    def check_continues(self) -> None:
        """The new owner of the log has the open transactions and the coordinator epochs."""
        assert self.read() == EXPECTED_READ
        assert (
            self.end(ONE, commits=False, coordinator_epoch=2)
            == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        )
        assert self.end((6, 1), commits=True) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert self.end(OTHER, commits=False) == ErrorCode.NONE
        assert self.read() == ([*EXPECTED_READ[0], 7, 8], 9, 9, [*(EXPECTED_READ[3] or ()), (6, 7)])


def dumped(directory: Path, suffix: str) -> list[str]:
    """Return the output of Kafka's own tool for the files of a partition, without run-specific
    values.
    """
    files = sorted(file for file in directory.glob(f"*{suffix}") if file.stat().st_size)
    output = dump_log(*files)
    if suffix != ".snapshot":
        read_here = subprocess.run(
            [sys.executable, "-m", "kraftsim", "dump", *map(str, files)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert read_here.returncode == 0, read_here.stderr
    lines = [line for line in output.splitlines() if "Offset: " in line or "marker" in line.lower()]
    return [re.sub(r"(CreateTime|crc|lastTimestamp|timestamp): \S+", "", line) for line in lines]


def replace_content(theirs: Path, ours: Path) -> None:
    """Replace the content of a partition directory, except for partition.metadata."""
    for file in ours.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    for file in theirs.iterdir():
        if file.name != "partition.metadata":
            shutil.copy(file, ours)


def test_transaction_state_on_disk_is_interchangeable(tmp_path: Path) -> None:
    """Markers and indexes are the same line by line in both, and each broker loads the partition of
    the other.
    """
    with (
        ApacheKafka(settings=SETTINGS) as apache,
        running_processes(tmp_path / "run", settings=SETTINGS) as cluster,
    ):
        for address in (cluster.bootstrap, apache.bootstrap):
            for topic in (WRITTEN, ADOPTED):
                Target(address).topic(name=topic)
            Place(address, WRITTEN).write_transactions()
        apache.stop()
        asyncio.run(cluster.stop_node("broker-1"))
        ours, theirs = tmp_path / "run" / "data" / "broker-1", apache.data
        assert len(list((ours / f"{WRITTEN}-0").glob("*.txnindex"))) == 2, (
            "in the segments where the markers are"
        )
        for suffix in (".log", ".txnindex", ".snapshot"):
            mine, his = (
                dumped(ours / f"{WRITTEN}-0", suffix),
                dumped(theirs / f"{WRITTEN}-0", suffix),
            )
            assert mine == his and mine, suffix
        replace_content(ours / f"{WRITTEN}-0", theirs / f"{ADOPTED}-0")
        replace_content(theirs / f"{WRITTEN}-0", ours / f"{ADOPTED}-0")
        apache.start()
        restart_and_wait(cluster, "broker-1")
        for address in (apache.bootstrap, cluster.bootstrap):
            for topic in (ADOPTED, WRITTEN):
                Place(address, topic).check_continues()

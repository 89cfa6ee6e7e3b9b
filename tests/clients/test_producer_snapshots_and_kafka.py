"""A broker of Apache Kafka loads our partitions with their producer state from producer snapshots,
and ours loads its.
"""

import asyncio
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.storage.producer_snapshot import parse_producer_snapshot
from tests.apache_kafka.class_path import class_path
from tests.apache_kafka.harness import ApacheKafka, dump_log
from tests.cluster.broker_client import BrokerClient, broker_client
from tests.cluster.running import QUICK_SESSIONS, address_of, restart_and_wait, running_processes

pytestmark = pytest.mark.interop
TOPIC, ADOPTED = "written", "adopted"
SETTINGS = {**QUICK_SESSIONS, "log.segment.bytes": "2000"}
PRODUCERS = (5, 6)
BATCHES = 20
END = BATCHES * len(PRODUCERS) * 2


@pytest.fixture(autouse=True)
def require_java() -> Iterator[None]:
    class_path()
    yield


def batch_number(number: int, producer_id: int) -> bytes:
    """Two records with a current timestamp: a producer that was idle for a day is not loaded."""
    now_ms = int(time.time() * 1000)
    records = [Record(timestamp=now_ms, value=b"%040d" % each) for each in range(2)]
    return bytes(
        build_batch(records, producer_id=producer_id, producer_epoch=3, base_sequence=2 * number)
    )


def fill(broker: BrokerClient, topic: str) -> None:
    """Let two producers append alternately."""
    for number in range(BATCHES):
        for producer_id in PRODUCERS:
            answer = broker.produce(topic, batch_number(number, producer_id))
            assert answer.error_code == ErrorCode.NONE, answer


def only_the_last_batches_are_known(broker: BrokerClient, topic: str) -> None:
    """The last batch of each producer is acknowledged with its offset; the one before it is
    unknown; the next one is appended.
    """
    for place, producer_id in enumerate(PRODUCERS):
        again = broker.produce(topic, batch_number(BATCHES - 1, producer_id))
        assert (again.error_code, again.base_offset) == (
            ErrorCode.NONE,
            END - 2 * (len(PRODUCERS) - place),
        )
        older = broker.produce(topic, batch_number(BATCHES - 2, producer_id))
        assert older.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    following = broker.produce(topic, batch_number(BATCHES, PRODUCERS[0]))
    assert (following.error_code, following.base_offset) == (ErrorCode.NONE, END)


def replace_content(theirs: Path, ours: Path) -> None:
    """Replace the content of a partition directory, except for partition.metadata."""
    for file in ours.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    for file in theirs.iterdir():
        if file.name != "partition.metadata":
            shutil.copy(file, ours)


def test_producer_snapshots_are_interchangeable_with_apache_kafka(tmp_path: Path) -> None:
    """Both are stopped cleanly, and each gets the partition that the other wrote."""
    with (
        ApacheKafka(settings=SETTINGS) as apache,
        running_processes(tmp_path / "run", settings=SETTINGS) as cluster,
    ):
        with broker_client(cluster.bootstrap) as ours:
            for topic in (TOPIC, ADOPTED):
                ours.create_topic(topic)
            fill(ours, TOPIC)
        with broker_client(apache.bootstrap) as theirs:
            for topic in (TOPIC, ADOPTED):
                theirs.create_topic(topic)
            fill(theirs, TOPIC)
        apache.stop()
        asyncio.run(cluster.stop_node("broker-1"))
        our_data = tmp_path / "run" / "data" / "broker-1"
        snapshots = sorted((our_data / f"{TOPIC}-0").glob("*.snapshot"))
        assert len(snapshots) > 2 and snapshots[-1].name == f"{END:020d}.snapshot"
        dumped = dump_log(*snapshots)
        entries = re.findall(
            r"producerId: (\d+) producerEpoch: 3 coordinatorEpoch: -1 currentTxnFirstOffset: "
            r"OptionalLong.empty",
            dumped,
        )
        assert len(entries) == len(PRODUCERS) * len(snapshots), dumped
        assert [
            (each.last_sequence, each.last_offset)
            for each in parse_producer_snapshot(snapshots[-1].read_bytes())
        ] == [(39, 77), (39, 79)]
        theirs_newest = apache.data / f"{TOPIC}-0" / f"{END:020d}.snapshot"
        assert [
            (each.last_sequence, each.last_offset)
            for each in parse_producer_snapshot(theirs_newest.read_bytes())
        ] == [(39, 77), (39, 79)]
        replace_content(our_data / f"{TOPIC}-0", apache.data / f"{ADOPTED}-0")
        replace_content(apache.data / f"{TOPIC}-0", our_data / f"{ADOPTED}-0")
        apache.start()
        restart_and_wait(cluster, "broker-1")
        with (
            broker_client(apache.bootstrap) as theirs,
            broker_client(address_of(cluster, "broker-1")) as ours,
        ):
            only_the_last_batches_are_known(theirs, ADOPTED)
            only_the_last_batches_are_known(ours, ADOPTED)

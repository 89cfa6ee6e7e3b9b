"""Nodes as processes: SIGKILL under load, logs with damaged tails, and the recovered state."""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraftsim.clients.producer import ProducerClient
from kraftsim.clients.reader import ReaderClient
from kraftsim.clients.rules_producer_steps import ProducerSettings
from kraftsim.cluster.administration import create_topic
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.readiness import ClusterFailed
from kraftsim.world.real.world import real_world
from protocol.errors import ErrorCode
from tests.cluster.broker_client import batch_of, broker_client
from tests.cluster.lossy_relay import LossyRelay
from tests.cluster.running import (
    address_of,
    behind_relay,
    logged_events,
    restart_and_wait,
    running_processes,
)

BROKER = "broker-1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """One controller, one broker, shared by the tests of this file; a test that kills a node
    restarts it.
    """
    with running_processes(tmp_path_factory.mktemp("processes") / "run") as running:
        yield running


async def test_a_broker_killed_under_load_loses_and_duplicates_nothing(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    """An idempotent producer retries batches in flight; those already appended are recognised by
    their sequence (KIP-98).
    """
    world = real_world(
        run="test",
        node="writer",
        incarnation=1,
        data_dir=tmp_path / "data",
        events_dir=tmp_path / "events",
        seed=1,
    )
    bootstrap = [(cluster.spec.host, cluster.spec.port)]
    await create_topic(bootstrap, "stream", 2)
    producer = ProducerClient(world, bootstrap=bootstrap, client_id="writer")
    await producer.start()

    async def write() -> None:
        for number in range(4000):
            await producer.send("stream", number % 2, f"key-{number}", bytes(200))
            if number % 20 == 0:
                await asyncio.sleep(0.001)

    writing = asyncio.ensure_future(write())
    while len(logged_events(cluster.directory, "BatchAppended", BROKER)) < 20:
        await asyncio.sleep(0.005)
    assert not writing.done(), "the kill must happen while records are produced"
    cluster.kill(BROKER)
    cluster.restart(BROKER)
    await writing
    assert await producer.flush(20) == 0
    await producer.close()
    reader = ReaderClient(world, bootstrap=bootstrap, client_id="reader")
    read = Counter(record.key for record in await reader.read_all("stream", range(2)))
    await reader.close()
    world.close()
    assert read == Counter(f"key-{number}" for number in range(4000))


def test_a_retry_after_a_lost_answer_is_recognised(tmp_path: Path) -> None:
    """The batch is in the log, but its response was lost: the retry is acknowledged, not appended
    (KIP-98).
    """

    async def write(port: int) -> None:
        world = real_world(
            run="test",
            node="writer",
            incarnation=1,
            data_dir=tmp_path / "data",
            events_dir=tmp_path / "events",
            seed=1,
        )
        producer = ProducerClient(
            world,
            bootstrap=[("127.0.0.1", port)],
            client_id="writer",
            settings=ProducerSettings(retry_backoff_ms=20),
        )
        await producer.start()
        for number in range(1500):
            await producer.send("t", 0, f"key-{number}", b"%d" % number)
            if number % 10 == 0:
                await asyncio.sleep(0.005)
        assert await producer.flush(20) == 0
        await producer.close()
        world.close()

    with (
        LossyRelay() as relay,
        behind_relay(relay, tmp_path / "run") as lossy,
        broker_client(lossy.bootstrap) as broker,
    ):
        broker.create_topic("t")
        asyncio.run(write(relay.port))
        assert broker.values("t") == [b"%d" % number for number in range(1500)]
        assert relay.lost > 2
        assert len(logged_events(lossy.directory, "DuplicateAnswered", BROKER)) >= relay.lost


def test_a_batch_acknowledged_before_sigkill_is_a_duplicate_afterwards(
    cluster: ProcessCluster,
) -> None:
    """Producer state is rebuilt from the log at recovery: a retry with the same sequence returns
    the original offset.
    """
    with broker_client(cluster.bootstrap) as broker:
        broker.create_topic("doubled")
        producer_id = broker.fresh_producer_id()
        batch = batch_of([b"a", b"b"], producer_id=producer_id, base_sequence=0)
        assert broker.produce("doubled", batch).base_offset == 0
    cluster.kill(BROKER)
    restart_and_wait(cluster, BROKER)
    with broker_client(cluster.bootstrap) as broker:
        again = broker.produce("doubled", batch)
        assert (ErrorCode(again.error_code), again.base_offset) == (ErrorCode.NONE, 0)
        assert broker.values("doubled") == [b"a", b"b"]
        assert broker.fresh_producer_id() > producer_id
    assert [
        event["producer_id"]
        for event in logged_events(cluster.directory, "DuplicateAnswered", BROKER)
        if event["topic"] == "doubled"
    ] == [producer_id]


def torn(last: bytes) -> bytes:
    """A partial write at the crash."""
    return last[: len(last) // 2]


def corrupt(last: bytes) -> bytes:
    """A batch with a wrong checksum."""
    return last[:-1] + bytes([last[-1] ^ 1])


def noise(last: bytes) -> bytes:
    """Bytes that were never a batch."""
    return bytes(range(200, 250))


@pytest.mark.parametrize("damage", [torn, corrupt, noise])
def test_recovery_truncates_a_damaged_tail_and_reports_the_bytes(
    cluster: ProcessCluster, damage: Callable[[bytes], bytes]
) -> None:
    """Everything after the last valid batch is truncated and counted, and the next batch gets its
    offset.
    """
    topic = f"tail-{damage.__name__}"
    with broker_client(cluster.bootstrap) as broker:
        broker.create_topic(topic)
        broker.produce(topic, batch_of([b"kept"]))
    cluster.kill(BROKER)
    segment = cluster.directory.data(BROKER) / f"{topic}-0" / "00000000000000000000.log"
    whole = segment.read_bytes()
    tail = damage(batch_of([b"lost"]))
    segment.write_bytes(whole + tail)
    restart_and_wait(cluster, BROKER)
    recovered = [
        event
        for event in logged_events(cluster.directory, "LogRecovered", BROKER)
        if event["topic"] == topic and event["truncated_bytes"]
    ]
    assert [
        (event["truncated_bytes"], event["next_offset"], event["clean"]) for event in recovered
    ] == [(len(tail), 1, False)]
    assert segment.read_bytes() == whole
    with broker_client(cluster.bootstrap) as broker:
        assert broker.produce(topic, batch_of([b"next"])).base_offset == 1
        assert broker.values(topic) == [b"kept", b"next"]


def test_a_killed_controller_restarts_with_its_metadata(cluster: ProcessCluster) -> None:
    """Its log is flushed before a response: topics, brokers and producer-id blocks are recovered
    (KIP-631, KIP-730).
    """
    with broker_client(cluster.bootstrap) as broker:
        broker.create_topic("before")
        last_known = broker.fresh_producer_id()
        cluster.kill("controller-101")
        assert broker.produce("before", batch_of([b"meanwhile"])).base_offset == 0, (
            "brokers serve without their controller"
        )
        cluster.restart("controller-101")
        broker.create_topic("after")
    cluster.kill(BROKER)
    restart_and_wait(cluster, BROKER)
    with broker_client(cluster.bootstrap) as broker:
        assert broker.values("before") == [b"meanwhile"]
        assert broker.values("after") == []
        assert broker.fresh_producer_id() > last_known
    blocks = [
        event["first_producer_id"]
        for event in logged_events(cluster.directory, "ProducerIdBlockAllocated", "controller-101")
    ]
    assert blocks == [1000 * number for number in range(len(blocks))]


def test_a_crashed_node_is_detected_and_its_output_is_shown(tmp_path: Path) -> None:
    with running_processes(tmp_path / "run") as doomed:
        doomed.require_running()
        doomed.nodes[BROKER].process.send_signal(signal.SIGKILL)
        doomed.nodes[BROKER].process.wait()
        with pytest.raises(ClusterFailed, match="broker-1 went down with status -9"):
            doomed.require_running()


def test_a_clean_shutdown_is_detected_at_the_next_start(tmp_path: Path) -> None:
    """Kafka's .kafka_cleanshutdown file: logs need no recovery (KIP-966)."""
    with running_processes(tmp_path / "run") as first, broker_client(first.bootstrap) as broker:
        broker.create_topic("t")
        broker.produce("t", batch_of([b"value"]))
    assert (first.directory.data(BROKER) / ".kafka_cleanshutdown").exists()
    first.directory.properties(BROKER).chmod(0o644)
    with running_processes(tmp_path / "run") as second:
        with broker_client(second.bootstrap) as broker:
            assert broker.values("t") == [b"value"]
        recovered = logged_events(second.directory, "LogRecovered", BROKER, incarnation=2)
        assert [event["clean"] for event in recovered if event["topic"] == "t"] == [True]
        modes = {
            path.name: path.stat().st_mode & 0o777
            for path in (second.directory.root / "config").glob("*.properties")
        }
        assert modes == {f"{name}.properties": 0o600 for name in second.nodes}, (
            "they may hold passwords"
        )
        assert address_of(second, BROKER) == second.bootstrap

"""A cluster inside the test process, with the public pytest plug-in: sync and async tests, any
client, kills of nodes.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from kraftsim.clients.producer import ProducerClient
from kraftsim.clients.reader import ReaderClient
from kraftsim.cluster.administration import create_topic
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.launch import real_world_of
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.readiness import ClusterFailed, NotReady
from kraftsim.cluster.spec import ClusterSpec, SpecError
from kraftsim.server.config import NodeConfig
from kraftsim.world.real.world import RealWorld, real_world
from protocol.errors import ErrorCode
from tests.cluster.broker_client import batch_of, broker_client
from tests.cluster.running import QUICK_SESSIONS, logged_events
from tests.conftest import ClusterFactory


@pytest.fixture
def client_world(tmp_path: Path) -> Iterator[RealWorld]:
    world = real_world(
        run="test",
        node="client",
        incarnation=1,
        data_dir=tmp_path / "data",
        events_dir=tmp_path / "events",
        seed=1,
    )
    yield world
    world.close()


def brokers_of(cluster: EmbeddedCluster) -> list[tuple[str, int]]:
    nodes = [cluster.spec.node(name) for name in cluster.spec.broker_names]
    return [(node.host, node.port) for node in nodes]


def test_a_sync_test_gets_a_cluster_that_answers_while_the_test_blocks(
    embedded_cluster: EmbeddedCluster,
) -> None:
    """The nodes have their own thread and event loop: a blocking client cannot deadlock them."""
    with broker_client(embedded_cluster.bootstrap) as broker:
        broker.create_topic("t")
        assert broker.produce("t", batch_of([b"one", b"two"])).base_offset == 0
        assert broker.values("t") == [b"one", b"two"]


@pytest.mark.kraftsim(brokers=3)
async def test_an_async_test_uses_our_own_clients(
    embedded_cluster: EmbeddedCluster, client_world: RealWorld
) -> None:
    await create_topic(brokers_of(embedded_cluster), "t", 5)
    producer = ProducerClient(
        client_world, bootstrap=brokers_of(embedded_cluster), client_id="writer"
    )
    await producer.start()
    for number in range(100):
        await producer.send("t", number % 5, f"key-{number}", b"value")
    assert await producer.flush(20) == 0
    await producer.close()
    reader = ReaderClient(client_world, bootstrap=brokers_of(embedded_cluster), client_id="reader")
    read = await reader.read_all("t", range(5))
    await reader.close()
    assert sorted(record.key for record in read) == sorted(f"key-{number}" for number in range(100))


@pytest.mark.kraftsim(brokers=2, settings=QUICK_SESSIONS)
async def test_aiokafka_runs_beside_the_cluster_on_its_own_loop(
    embedded_cluster: EmbeddedCluster,
) -> None:
    """A third-party client on the test's loop, and a broker that is killed and restarted under
    it.
    """
    producer = AIOKafkaProducer(
        bootstrap_servers=embedded_cluster.bootstrap, enable_idempotence=True, retry_backoff_ms=20
    )
    await producer.start()
    try:
        first = [
            await producer.send("t", str(number).encode(), partition=0) for number in range(50)
        ]
        await asyncio.gather(*first)
        await embedded_cluster.kill_node("broker-1")
        second = [
            await producer.send("t", str(number).encode(), partition=0) for number in range(50, 100)
        ]
        await embedded_cluster.restart_node("broker-1")
        await embedded_cluster.answering()
        await asyncio.gather(*second)
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=embedded_cluster.bootstrap, auto_offset_reset="earliest", group_id=None
    )
    consumer.assign([TopicPartition("t", 0)])
    await consumer.start()
    try:
        read = [await asyncio.wait_for(anext(consumer), 10) for _ in range(100)]
    finally:
        await consumer.stop()
    assert [(message.offset, int(message.value)) for message in read] == [
        (number, number) for number in range(100)
    ]


@pytest.mark.kraftsim(settings=QUICK_SESSIONS)
def test_a_killed_broker_restarts_with_its_records_and_producer_state(
    embedded_cluster: EmbeddedCluster,
) -> None:
    """Producer state survives a kill: it is rebuilt from the log (KIP-98)."""
    with broker_client(embedded_cluster.bootstrap) as broker:
        broker.create_topic("t")
        producer_id = broker.fresh_producer_id()
        five = batch_of(
            [b"%d" % number for number in range(5)], producer_id=producer_id, base_sequence=0
        )
        assert broker.produce("t", five).base_offset == 0
    embedded_cluster.kill("broker-1")
    assert embedded_cluster.is_down("broker-1")
    embedded_cluster.restart("broker-1")
    embedded_cluster.wait_until_ready()
    with broker_client(embedded_cluster.bootstrap) as broker:
        answers = [
            broker.produce("t", five),
            broker.produce("t", batch_of([b"too late"], producer_id=producer_id, base_sequence=6)),
            broker.produce("t", batch_of([b"5"], producer_id=producer_id, base_sequence=5)),
        ]
        found = [(ErrorCode(answer.error_code).name, answer.base_offset) for answer in answers]
        assert found == [("NONE", 0), ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1), ("NONE", 5)]
        assert broker.values("t") == [b"%d" % number for number in range(6)]
        assert broker.fresh_producer_id() > producer_id


@pytest.mark.kraftsim(settings=QUICK_SESSIONS)
def test_a_killed_controller_allocates_no_producer_id_twice(
    embedded_cluster: EmbeddedCluster,
) -> None:
    """Blocks are in the metadata log before a broker receives them; the next controller continues
    after the last one (KIP-730).
    """
    with broker_client(embedded_cluster.bootstrap) as broker:
        first = broker.fresh_producer_id()
        embedded_cluster.kill("controller-101")
        assert broker.fresh_producer_id() == first + 1, "the broker still has its block"
    embedded_cluster.restart("controller-101")
    embedded_cluster.kill("broker-1")
    embedded_cluster.restart("broker-1")
    embedded_cluster.wait_until_ready()
    with broker_client(embedded_cluster.bootstrap) as broker:
        assert broker.fresh_producer_id() // 1000 > first // 1000, "the id is of a later block"


@pytest.mark.kraftsim(settings=QUICK_SESSIONS)
def test_a_broker_killed_during_startup_starts_the_next_time(
    embedded_cluster: EmbeddedCluster,
) -> None:
    async def killed_at_once() -> None:
        coming_up = asyncio.ensure_future(embedded_cluster.restart_node("broker-1"))
        while embedded_cluster.is_down("broker-1"):
            await asyncio.sleep(0)
        await embedded_cluster.kill_node("broker-1")
        await coming_up

    embedded_cluster.kill("broker-1")
    asyncio.run(killed_at_once())
    assert embedded_cluster.is_down("broker-1")
    embedded_cluster.restart("broker-1")
    embedded_cluster.wait_until_ready()


def test_a_stopped_cluster_leaves_no_thread_no_port_and_a_clean_log(
    embedded_cluster_factory: ClusterFactory,
) -> None:
    cluster = embedded_cluster_factory()
    with broker_client(cluster.bootstrap) as broker:
        broker.create_topic("t")
    cluster.stop()
    cluster.stop()
    assert not cluster._thread.is_alive()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((cluster.spec.host, cluster.spec.port))


def test_a_run_directory_keeps_event_logs_and_node_data(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    with (
        EmbeddedCluster(ClusterSpec(brokers=1, port=free_port_range(1)), directory) as cluster,
        broker_client(cluster.bootstrap) as broker,
    ):
        broker.create_topic("t")
        broker.produce("t", batch_of([b"value"]))
    assert [event["topic"] for event in logged_events(directory, "BatchAppended", "broker-1")] == [
        "t"
    ]
    assert (
        len(logged_events(directory, "NodeStopped", "broker-1"))
        == len(logged_events(directory, "NodeStopped", "controller-101"))
        == 1
    )
    assert (directory.data("broker-1") / "t-0" / "00000000000000000000.log").stat().st_size > 0


@pytest.mark.parametrize("seed, draws_alike", [("0", False), ("7", True)])
def test_every_start_generates_new_ids_unless_a_seed_is_set(
    tmp_path: Path, seed: str, draws_alike: bool
) -> None:
    """Otherwise a node whose events were deleted, but not its data, would generate ids that are
    already in its data.
    """
    drawn = set()
    for events in ("first", "second"):
        spec = ClusterSpec(brokers=1, settings={"kraftsim.seed": seed})
        places = {"log.dirs": str(tmp_path / "data"), "kraftsim.events.dir": str(tmp_path / events)}
        world = real_world_of(NodeConfig.parse({**spec.node("broker-1").properties, **places}), 0)
        drawn.add(world.random("topic ids").random())
        world.close()
    assert (len(drawn) == 1) is draws_alike


def test_a_port_in_use_is_reported_before_anything_starts(
    embedded_cluster: EmbeddedCluster,
) -> None:
    with pytest.raises(
        SpecError,
        match=rf"controller-101 cannot listen on .*:{embedded_cluster.spec.port + 100}: Address "
        r"already in use",
    ):
        EmbeddedCluster(ClusterSpec(brokers=1, port=embedded_cluster.spec.port)).start()


def test_clients_wait_neither_for_a_first_block_nor_an_initial_rebalance(
    embedded_cluster: EmbeddedCluster,
) -> None:
    """librdkafka retries 500 ms after COORDINATOR_LOAD_IN_PROGRESS; a new group waits
    group.initial.rebalance.delay.ms.
    """
    with broker_client(embedded_cluster.bootstrap) as broker:
        answer = broker.init_producer_id()
    assert answer.error_code == ErrorCode.NONE, "at the first request"
    assert embedded_cluster.spec.settings["group.initial.rebalance.delay.ms"] == "0"


@pytest.mark.kraftsim(settings={"group.initial.rebalance.delay.ms": "50"})
def test_a_test_can_set_the_initial_rebalance_delay(embedded_cluster: EmbeddedCluster) -> None:
    assert embedded_cluster.spec.settings["group.initial.rebalance.delay.ms"] == "50"


def test_a_stopping_cluster_cancels_tasks_on_its_loop(embedded_cluster: EmbeddedCluster) -> None:
    """asyncio warns about a task that is pending when its loop is closed, long after the test that
    left it.
    """
    left = embedded_cluster._submit(asyncio.Event().wait())
    embedded_cluster.stop()
    assert left.cancelled()


def test_a_failed_start_releases_its_loop_and_directory(embedded_cluster: EmbeddedCluster) -> None:
    refused = EmbeddedCluster(ClusterSpec(brokers=1, port=embedded_cluster.spec.port))
    with pytest.raises(SpecError):
        refused.start()
    assert refused._loop.is_closed() and not refused.directory.root.exists()


def test_all_nodes_are_stopped_when_one_fails_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = EmbeddedCluster(ClusterSpec(brokers=1, port=free_port_range(1)))
    cluster.start()
    worlds = [running.world for running in cluster._nodes.values()]
    closed: list[str] = []

    def record_close(world: RealWorld, close: Callable[[], None]) -> None:
        closed.append(world.node)
        close()

    for world in worlds:
        monkeypatch.setattr(world, "close", partial(record_close, world, world.close))

    async def fails() -> None:
        raise OSError("disk full")

    node = cluster._nodes["broker-1"].node
    monkeypatch.setattr(node, "stop", fails)
    with pytest.raises(OSError, match="disk full"):
        cluster.stop()
    node.abort()
    assert sorted(closed) == ["broker-1", "controller-101"]
    assert not cluster._thread.is_alive() and not cluster.directory.root.exists()


def test_a_controller_that_allocates_no_producer_ids_is_named(
    embedded_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftsim.cluster.embedded.READY_SECONDS", 0.1)
    monkeypatch.setattr(
        "kraftsim.cluster.embedded.fetch_producer_ids", lambda listeners: asyncio.sleep(60)
    )
    with pytest.raises(
        NotReady, match=r"did not get producer ids from the controller within 0\.1 s"
    ):
        embedded_cluster.fetch_producer_ids()


def test_a_node_that_crashes_is_named_at_once(embedded_cluster: EmbeddedCluster) -> None:
    """Not only after 30 s, as a node that the controller does not unfence."""
    running = embedded_cluster._nodes["broker-1"]

    async def fail() -> None:
        assert running.failing is not None
        running.failing.cancel()
        running.failing = asyncio.ensure_future(asyncio.sleep(0, OSError("disk full")))
        # method-assign: replaced for the test
        running.node.ready = lambda: asyncio.sleep(60)  # type: ignore[method-assign]

    embedded_cluster._wait(fail(), 5)
    with pytest.raises(ClusterFailed, match="broker-1 failed: disk full"):
        embedded_cluster.wait_until_ready()

"""kraftsim's clients against a simulated cluster: every record exactly once, every id once, under
any fault.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kraftsim.catalogue import Catalogue
from kraftsim.clients.events import RecordAcknowledged, RecordFailed
from kraftsim.clients.producer import ProducerClient
from kraftsim.clients.producer_id_client import InitProducerIdClient
from kraftsim.clients.reader import ReaderClient
from kraftsim.clients.rules_producer_steps import ProducerSettings
from kraftsim.cluster.launch import build_node
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.event import Event
from kraftsim.partitions.events import DuplicateAnswered
from kraftsim.releases.release import releases
from kraftsim.server.call import Handler
from kraftsim.server.config import NodeConfig
from kraftsim.server.outbound import PeerConnection
from kraftsim.world.simulated import Simulation
from protocol.api_keys import ApiKey
from protocol.malformed import MalformedMessage
from protocol.messages.k01_fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.registry import declared_api_keys, request_class, response_class
from protocol.metadata.registry import declared_records
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.requests import RequestHead
from protocol.schema import Message
from tests.node.conftest import MakeWorld
from tests.node.scripted_peer import scripted_peer

TOPIC = "lines"
PARTITIONS = 4
PORT = 9092


def import_everything() -> None:
    """Import what nodes import on demand: under pytest an import opens files, which simulated nodes
    must not do.
    """
    for role in ("broker", "controller"):
        Catalogue(f"kraftsim.*.{role}_handlers", "HANDLER", Handler).all()
    releases()
    declared_records()
    for api_key in declared_api_keys():
        request_class(api_key)
        response_class(api_key)


class SimulatedCluster:
    """One controller and two brokers, each on its own host; `client` is a host for clients."""

    def __init__(self, seed: int, release: str = "3.9") -> None:
        self.simulation = Simulation(seed)
        self.spec = ClusterSpec(brokers=2, release=release)
        self.properties = {
            node.name: node.properties for node in self.spec.nodes(host_is_name=True)
        }
        self.bootstrap = [(name, PORT) for name in self.spec.broker_names]
        self.emitted: list[Event] = []

    def __enter__(self) -> "SimulatedCluster":
        import_everything()
        self.simulation.__enter__()
        self.simulation.observe(
            lambda node, incarnation, n, t_ns, event: self.emitted.append(event)
        )
        for name in (*self.properties, "client"):
            self.simulation.add_host(name)
        self.simulation.on_restart = lambda host: self._run(host.name)
        for name in self.properties:
            self.simulation.spawn(name, self._run(name))
        return self

    def __exit__(self, *trouble: Any) -> None:
        self.simulation.__exit__(*trouble)

    async def _run(self, name: str) -> None:
        node = build_node(
            NodeConfig.parse({**self.properties[name], "log.dirs": "data"}),
            self.simulation.world_of(name),
        )
        await node.start()
        await node.failed()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.simulation.run_until(self.simulation.spawn("client", work), limit_s=300)

    def restart_at(self, seconds: float, name: str, *, down_seconds: float = 0.5) -> None:
        start_ns = self.simulation.now_ns + int(seconds * 1e9)
        self.simulation.triggers.at(start_ns, lambda _: self.simulation.kill(name))
        self.simulation.triggers.at(
            start_ns + int(down_seconds * 1e9), lambda _: self.simulation.restart(name)
        )

    def emitted_of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.emitted if type(event) is kind]

    async def create_topic(self) -> None:
        """Retry until both brokers are registered and the topic is created."""
        while True:
            connection = PeerConnection(*self.bootstrap[0], client_id="admin")
            try:
                await connection.connect()
                topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
                answer = await connection.request(CreateTopicsRequest(topics=[topic]))
                if answer.topics[0].error_code in (0, 36):
                    return
            except OSError:
                pass
            finally:
                connection.close()
            await asyncio.sleep(0.2)

    def producer(self, client_id: str = "p", **settings: Any) -> ProducerClient:
        world = self.simulation.world_of("client")
        return ProducerClient(
            world,
            bootstrap=self.bootstrap,
            client_id=client_id,
            settings=ProducerSettings(**settings),
        )

    def reader(self) -> ReaderClient:
        return ReaderClient(
            self.simulation.world_of("client"), bootstrap=self.bootstrap, client_id="r"
        )


async def produce(
    cluster: SimulatedCluster, count: int, pause_seconds: float = 0.0, **settings: Any
) -> int:
    """Send `count` records over all partitions, and return how many are in flight at the end."""
    await cluster.create_topic()
    producer = cluster.producer(**settings)
    await producer.start()
    for index in range(count):
        await producer.send(TOPIC, index % PARTITIONS, f"key-{index:05d}", b"value")
        await asyncio.sleep(pause_seconds)
    left = await producer.flush(120)
    await producer.close()
    return left


async def read(cluster: SimulatedCluster) -> list[Any]:
    reader = cluster.reader()
    records = await reader.read_all(TOPIC, range(PARTITIONS))
    await reader.close()
    return records


def assert_exactly_once(cluster: SimulatedCluster, count: int) -> None:
    """Every record is in the log once, in order, at the acknowledged offset."""
    records = cluster.run(read(cluster))
    assert sorted(record.key for record in records) == [
        f"key-{index:05d}" for index in range(count)
    ]
    for partition in range(PARTITIONS):
        keys = [record.key for record in records if record.partition == partition]
        assert keys == sorted(keys), f"partition {partition} is out of order"
    places = {(record.partition, record.key): record.offset for record in records}
    acknowledged = cluster.emitted_of(RecordAcknowledged)
    assert len(acknowledged) == count and cluster.emitted_of(RecordFailed) == []
    assert all(places[event.partition, event.record_key] == event.offset for event in acknowledged)


def test_records_arrive_once_and_in_order() -> None:
    """Without faults."""
    with SimulatedCluster(1) as cluster:
        assert cluster.run(produce(cluster, 400)) == 0
        assert_exactly_once(cluster, 400)


def kill_brokers(cluster: SimulatedCluster) -> None:
    cluster.restart_at(3, "broker-1")
    cluster.restart_at(6, "broker-2")
    cluster.restart_at(9, "broker-1", down_seconds=3)


def kill_controller(cluster: SimulatedCluster) -> None:
    cluster.restart_at(2, "controller-101", down_seconds=4)


def lose_answers(cluster: SimulatedCluster) -> None:
    """Reset the connection instead of sending the nth Produce response: the batch is in the log,
    and the producer does not know.
    """
    for nth in range(1, 200, 7):
        cluster.simulation.triggers.on_frame(
            lambda trigger_context: trigger_context.frame.cut(0) if trigger_context.frame else None,
            api_key=ApiKey.PRODUCE,
            is_response=True,
            nth=nth,
        )


@pytest.mark.parametrize("trouble", [kill_brokers, kill_controller, lose_answers])
@pytest.mark.parametrize("seed", range(3))
def test_records_arrive_once_under_faults(
    trouble: Callable[[SimulatedCluster], None], seed: int
) -> None:
    """KIP-98: retries keep their sequences, so that a broker can tell them from new batches."""
    with SimulatedCluster(seed) as cluster:
        trouble(cluster)
        assert cluster.run(produce(cluster, 600, pause_seconds=0.02)) == 0
        assert_exactly_once(cluster, 600)
        if trouble is lose_answers:
            assert cluster.emitted_of(DuplicateAnswered), "no retry was a duplicate"


@pytest.mark.parametrize("release", ["3.9", "3.5"])
def test_every_producer_id_is_allocated_once(release: str) -> None:
    """Two clients, two brokers, several blocks, with restarts of a broker and of the controller
    (KIP-730); also where brokers wait for blocks.
    """
    with SimulatedCluster(5, release) as cluster:

        async def ask(client_id: str) -> list[int]:
            client = InitProducerIdClient(
                cluster.simulation.world_of("client"),
                bootstrap=cluster.bootstrap,
                client_id=client_id,
                retry_backoff_ms=10,
            )
            ids = await client.ask(1500)
            await client.close()
            return ids

        async def both() -> list[int]:
            one, other = await asyncio.gather(ask("a"), ask("b"))
            return one + other

        cluster.restart_at(2, "broker-1")
        cluster.restart_at(3, "controller-101")
        ids = cluster.run(both())
        assert len(set(ids)) == len(ids) == 3000


def test_clients_are_deterministic() -> None:
    """Same seed, same bytes in the event log."""

    def history() -> bytes:
        with SimulatedCluster(3) as cluster:
            kill_brokers(cluster)
            cluster.run(produce(cluster, 100, pause_seconds=0.05))
            cluster.run(read(cluster))
            return cluster.simulation.event_bytes()

    assert history() == history()


async def test_batch_with_a_wrong_checksum_is_not_returned(make_world: MakeWorld) -> None:
    """A reader verifies what it returns."""
    batch = bytearray(build_batch([Record(timestamp=1, key=b"k", value=b"v")]))
    batch[-2] ^= 1

    def answer(head: RequestHead, body: Message) -> Message:
        if head.api_key == ApiKey.METADATA:
            partition = MetadataResponsePartition(
                partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
            )
            return MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=peer.port)],
                topics=[
                    MetadataResponseTopic(
                        name=TOPIC, topic_id=bytes([9] * 16), partitions=[partition]
                    )
                ],
            )
        if head.api_key == ApiKey.LIST_OFFSETS:
            offset = 0 if body.topics[0].partitions[0].timestamp == -2 else 1
            return ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name=TOPIC,
                        partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=offset)],
                    )
                ]
            )
        data = PartitionData(partition_index=0, high_watermark=1, records=bytes(batch))
        return FetchResponse(
            responses=[FetchableTopicResponse(topic_id=bytes([9] * 16), partitions=[data])]
        )

    offers = {
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.METADATA: (0, 12),
        ApiKey.LIST_OFFSETS: (0, 9),
        ApiKey.FETCH: (0, 17),
    }
    async with scripted_peer(answer, offers) as peer:
        reader = ReaderClient(make_world(), bootstrap=[("127.0.0.1", peer.port)], client_id="r")
        with pytest.raises(MalformedMessage, match="wrong CRC"):
            await asyncio.wait_for(reader.read_all(TOPIC, [0]), 2)
        await reader.close()

"""A controller and brokers in virtual time for tests, and a client that sends any request in any
version.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from kraftsim.events.event import Event
from kraftsim.releases.release import release
from kraftsim.server.broker import Broker
from kraftsim.server.config import NodeConfig
from kraftsim.server.controller import Controller
from kraftsim.server.outbound import PeerConnection
from kraftsim.server.parts import Parts
from kraftsim.world.simulated import Simulation
from protocol.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record
from protocol.schema import Message
from protocol.uuids import ZERO_UUID
from tests.node.controllers import CLUSTER_ID, CONTROLLER_ID, controller_config

T = TypeVar("T")
CONTROLLER_HOST, CONTROLLER_PORT, BROKER_PORT = "controller-101", 9193, 9092
NOW = 1_700_000_000_000


def broker_config(broker_id: int, host: str, **settings: str) -> NodeConfig:
    """The configuration of a broker; underscores in keywords stand for dots."""
    return NodeConfig.parse(
        {
            "process.roles": "broker",
            "node.id": str(broker_id),
            "listeners": f"PLAINTEXT://{host}:{BROKER_PORT}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{CONTROLLER_ID}@{CONTROLLER_HOST}:{CONTROLLER_PORT}",
            "kraftsim.cluster.id": CLUSTER_ID,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


class Cluster:
    """One controller and some brokers, each on its own host; `client` is the host of the client."""

    def __init__(
        self,
        simulation: Simulation,
        broker_count: int,
        release_name: str,
        settings: Mapping[str, str],
    ) -> None:
        self.simulation = simulation
        self.parts = Parts.for_release(release(release_name))
        self.settings = settings
        self.brokers: dict[str, Broker] = {}
        self.events: list[tuple[str, Event]] = []
        self.broker_names = [f"broker-{number}" for number in range(1, broker_count + 1)]
        simulation.observe(
            lambda node, incarnation, n, t_ns, event: self.events.append((node, event))
        )
        for name in (CONTROLLER_HOST, *self.broker_names, "client"):
            simulation.add_host(name)
        simulation.on_restart = lambda host: self.run_node(host.name)
        simulation.spawn(CONTROLLER_HOST, self.run_node(CONTROLLER_HOST))

    async def run_node(self, name: str) -> None:
        """Run one node until it fails."""
        world = self.simulation.world_of(name)
        node: Broker | Controller
        if name == CONTROLLER_HOST:
            node = Controller(
                world,
                controller_config(
                    name, CONTROLLER_PORT, self.settings, metadata_max_idle_interval_ms="500"
                ),
                self.parts,
            )
        else:
            node = self.brokers[name] = Broker(
                world, broker_config(int(name.split("-")[1]), name, **self.settings), self.parts
            )
        await node.start()
        await node.failed()

    def start(self) -> None:
        """Start the brokers and wait until they serve."""
        for name in self.broker_names:
            self.simulation.spawn(name, self.run_node(name))
        for name in self.broker_names:
            self.wait_ready(name)

    def wait_ready(self, name: str, limit_s: float = 60) -> None:
        """Wait until a broker serves its clients."""
        self.simulation.run_until(
            lambda: name in self.brokers and self.is_running(name), limit_s=limit_s
        )

    def is_running(self, name: str) -> bool:
        """Return whether a broker considers itself unfenced."""
        return self.brokers[name].is_decided

    def run(
        self,
        work: Callable[["Client"], Awaitable[T]],
        broker: str = "broker-1",
        limit_s: float = 120,
    ) -> T:
        """Run a client coroutine."""

        async def connected() -> T:
            client = await self.connect(broker)
            try:
                return await work(client)
            finally:
                client.connection.close()

        result = self.simulation.run_until(
            self.simulation.spawn("client", connected()), limit_s=limit_s
        )
        assert self.simulation.troubles == []
        return result

    async def connect(self, broker: str = "broker-1") -> "Client":
        """Connect to a broker."""
        connection = PeerConnection(broker, BROKER_PORT, client_id="test")
        await connection.connect()
        return Client(connection)

    def emitted(self, kind: type[Event], node: str | None = None) -> list[Any]:
        """Return the events of a kind so far."""
        return [
            event for where, event in self.events if type(event) is kind and node in (None, where)
        ]

    def kill(self, name: str, *, power_loss: bool = False) -> None:
        """Kill a node."""
        self.simulation.kill(name, power_loss=power_loss)
        self.brokers.pop(name, None)

    def stop(self, name: str) -> None:
        """Stop a broker cleanly, and leave it down."""
        self.simulation.run_until(
            self.simulation.spawn(name, self.brokers[name].stop()), limit_s=60
        )
        self.kill(name)


@contextmanager
def running_cluster(
    broker_count: int = 1,
    settings: Mapping[str, str] | None = None,
    *,
    seed: int = 1,
    release_name: str = "3.9",
    **more_settings: str,
) -> Iterator[Cluster]:
    """Run a cluster until the end of the block; underscores in the names of settings stand for
    dots.
    """
    with Simulation(seed) as simulation:
        cluster = Cluster(
            simulation, broker_count, release_name, {**(settings or {}), **more_settings}
        )
        cluster.start()
        yield cluster


class Client:
    """Sends requests to one broker."""

    def __init__(self, connection: PeerConnection) -> None:
        self.connection = connection

    async def ask(self, body: Message, version: int | None = None) -> Any:
        """Send a request and wait for its response."""
        return await self.connection.request(body, api_version=version)

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        **more_configs: str,
    ) -> bytes:
        """Create a topic, wait until this broker serves or knows it, and return its id."""
        chosen = {**(configs or {}), **more_configs}
        settings = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in chosen.items()
        ]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=settings
        )
        answer = await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert isinstance(answer, CreateTopicsResponse)
        assert [each.error_code for each in answer.topics] == [0], answer
        await asyncio.sleep(1)
        return answer.topics[0].topic_id

    async def produce(
        self,
        records: bytes | None,
        topic: str = "t",
        partition: int = 0,
        *,
        acks: int = -1,
        version: int = 11,
        transactional_id: str | None = None,
    ) -> PartitionProduceResponse:
        """Produce one batch and return the response of its partition."""
        data = PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = await self.ask(request, version)
        assert isinstance(answer, ProduceResponse)
        return answer.responses[0].partition_responses[0]

    async def fetch(
        self,
        offset: int,
        topic: str = "t",
        topic_id: bytes = ZERO_UUID,
        *,
        version: int = 12,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        **changes: Any,
    ) -> PartitionData:
        """Fetch from partition 0 and return its response."""
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        for name, value in changes.items():
            setattr(partition, name, value)
        named = {"topic": topic} if version < 13 else {"topic_id": topic_id}
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            topics=[FetchTopic(partitions=[partition], **named)],
        )
        answer = await self.ask(request, version)
        assert isinstance(answer, FetchResponse)
        assert answer.error_code == 0
        return answer.responses[0].partitions[0]

    async def producer_id(self, version: int = 4, **changes: Any) -> InitProducerIdResponse:
        """Request a producer id."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        for name, value in changes.items():
            setattr(request, name, value)
        answer = await self.ask(request, version)
        assert isinstance(answer, InitProducerIdResponse)
        return answer

    async def fresh_producer_id(self) -> int:
        """Request a producer id until there is one."""
        while (answer := await self.producer_id()).error_code:
            await asyncio.sleep(0.05)
        return answer.producer_id


def batch(
    count: int = 1, *, timestamp: int = NOW, value: bytes = b"value", **options: Any
) -> bytes:
    """Build a batch as a client does; timestamps increase by one millisecond."""
    return build_batch(
        [
            Record(timestamp=timestamp + index, key=b"key-%d" % index, value=value)
            for index in range(count)
        ],
        **options,
    )


def view(data: bytes) -> RecordBatch:
    """Return the first batch in some bytes."""
    return RecordBatch(data)

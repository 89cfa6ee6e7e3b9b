"""A cluster with tiered storage in virtual time, and a client that sends exactly the given
requests.
"""

from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import TypeVar

from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.event import Event
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.server.broker import Broker
from kraftsim.server.outbound import PeerConnection
from kraftsim.world.simulated import Simulation
from kraftsim.world.simulated.objects import SharedObjects
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
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
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.records.batches import RecordBatch, build_batch, split_batches
from protocol.records.record import Record
from protocol.schema import Message

T = TypeVar("T")
TOPIC = "tiered"
STORE = "/store"
LOCATION = f"file:{STORE}/kafka-tiered-storage"
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "rsm.config.dir": STORE,
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "transaction.partition.verification.enable": "false",
}
SEGMENT_BYTES = 1000
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": "1",
    "index.interval.bytes": "1",
}
VALUE = b"x" * 400
"""Two such records fill a segment."""


class TieredHarness:
    """One controller and some brokers that share a store."""

    def __init__(
        self,
        seed: int = 1,
        *,
        brokers: int = 2,
        settings: Mapping[str, str] | None = None,
        node_settings: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.simulation = Simulation(seed)
        self.emitted: list[tuple[str, Event]] = []
        factor = {"rlmm.config.remote.log.metadata.topic.replication.factor": str(brokers)}
        spec = ClusterSpec(
            brokers=brokers,
            seed=seed,
            settings={**SETTINGS, **factor, **(settings or {})},
            node_settings=node_settings or {},
        )
        self._spec = spec
        self.sequences: dict[int, int] = {}

    def __enter__(self) -> "TieredHarness":
        self.simulation.__enter__()
        self.simulation.observe(
            lambda node, incarnation, n, t_ns, event: self.emitted.append((node, event))
        )
        self.cluster = SimulatedCluster(self._spec, self.simulation)
        self.simulation.add_host("client")
        self.cluster.start()
        self.simulation.run_until(self.cluster.wait_until_ready(), limit_s=60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.simulation.__exit__(kind, error, trace)

    @property
    def store(self) -> SharedObjects:
        """The remote store."""
        return self.simulation.stores[LOCATION]

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine on the client's host."""
        found = self.simulation.run_until(self.simulation.spawn("client", work), limit_s=300)
        return found

    def wait(self, seconds: float) -> None:
        """Advance virtual time."""
        self.simulation.run_for(seconds)

    def of(self, kind: type[Event], node: str | None = None) -> list[Event]:
        """Return the events of a kind."""
        return [
            event
            for name, event in self.emitted
            if isinstance(event, kind) and node in (None, name)
        ]

    def broker(self, node_id: int) -> Broker:
        """Return a running broker."""
        node = self.cluster.nodes[f"broker-{node_id}"]
        assert isinstance(node, Broker)
        return node

    def hosted(self, node_id: int, partition: int = 0) -> HostedPartition:
        """Return a partition as a broker hosts it."""
        found = self.broker(node_id).partitions.find(TOPIC, partition)
        assert found is not None
        return found

    def ask(self, node_id: int, request: Message, version: int | None = None) -> Message:
        """Send a request to a broker over a new connection."""
        return self.run(_ask(f"broker-{node_id}", request, version))

    def create_topic(
        self,
        *,
        replicas: tuple[int, ...] = (1,),
        configs: Mapping[str, str] | None = None,
        topic: str = TOPIC,
    ) -> ErrorCode:
        """Create a topic with one partition, and wait for it."""
        rows = [
            CreatableTopicConfig(name=name, value=value)
            for name, value in {**TIERED, **(configs or {})}.items()
        ]
        assignment = [CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))]
        wanted = CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=assignment,
            configs=rows,
        )
        answer = self.ask(replicas[0], CreateTopicsRequest(topics=[wanted], timeout_ms=10_000))
        assert isinstance(answer, CreateTopicsResponse)
        self.wait(1)
        return ErrorCode(answer.topics[0].error_code)

    def set_replicas(self, *replicas: int) -> None:
        """Reassign the partition to these replicas."""
        row = ReassignablePartition(partition_index=0, replicas=list(replicas))
        topic = ReassignableTopic(name=TOPIC, partitions=[row])
        answer = self.ask(
            replicas[0], AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=[topic])
        )
        assert (
            isinstance(answer, AlterPartitionReassignmentsResponse)
            and not answer.error_code
            and not answer.responses[0].partitions[0].error_code
        )

    def restart_without_snapshots(
        self, node_id: int, *, before: int, settings: Mapping[str, str] | None = None
    ) -> None:
        """Stop a broker cleanly, and restart it as after an upgrade from before 2.8, with its
        oldest snapshots deleted.
        """
        host = self.cluster.hosts[f"broker-{node_id}"]
        stopping = self.simulation.stop(host)
        assert stopping is not None
        self.simulation.run_until(stopping, limit_s=60)
        if host.is_alive:
            self.simulation.kill(host)
        for path in list(host.durable.names):
            name = path.rpartition("/")[2]
            if (
                f"{TOPIC}-0/" in path
                and name.endswith(".snapshot")
                and int(name.partition(".")[0]) < before
            ):
                del host.durable.names[path]
        host.overrides.update(settings or {})
        self.simulation.restart(host)
        self.wait(4)

    def alter(self, node_id: int, **configs: str | None) -> ErrorCode:
        """Alter configs of the topic; '_' stands for '.'."""
        rows = [
            AlterableConfig(
                name=name.replace("_", "."),
                config_operation=0 if value is not None else 1,
                value=value,
            )
            for name, value in configs.items()
        ]
        resource = AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=rows)
        answer = self.ask(node_id, IncrementalAlterConfigsRequest(resources=[resource]))
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        self.wait(0.5)
        return ErrorCode(answer.responses[0].error_code)

    def produce(
        self,
        node_id: int,
        *,
        producer_id: int = -1,
        sequence: int | None = None,
        value: bytes = VALUE,
        timestamp_ms: int | None = None,
        transactional: bool = False,
    ) -> tuple[ErrorCode, int]:
        """Produce one record, with the next sequence of its producer, and return the response: an
        error and an offset.
        """
        taken = self.sequences.get(producer_id, 0) if sequence is None else sequence
        if producer_id >= 0 and sequence is None:
            self.sequences[producer_id] = taken + 1
        now_ms = (
            self.broker(node_id).world.clock.wall_ms() if timestamp_ms is None else timestamp_ms
        )
        batch = build_batch(
            [Record(0, now_ms, None, value, ())],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=taken if producer_id >= 0 else -1,
            transactional=transactional,
        )
        data = TopicProduceData(
            name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)]
        )
        request = ProduceRequest(
            transactional_id="t" if transactional else None,
            acks=-1,
            timeout_ms=5000,
            topic_data=[data],
        )
        answer = self.ask(node_id, request, 9)
        assert isinstance(answer, ProduceResponse)
        row = answer.responses[0].partition_responses[0]
        return ErrorCode(row.error_code), row.base_offset

    def fetch(
        self,
        node_id: int,
        offset: int,
        *,
        replica_id: int = -1,
        committed: bool = False,
        bytes_max: int = 1 << 20,
    ) -> PartitionData:
        """Fetch records as a consumer, or as a follower."""
        asked = FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=bytes_max, current_leader_epoch=-1
        )
        request = FetchRequest(
            replica_id=replica_id,
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=TOPIC, partitions=[asked])],
        )
        answer = self.ask(node_id, request, 11)
        assert isinstance(answer, FetchResponse)
        return answer.responses[0].partitions[0]

    def read_all(
        self, node_id: int, first_offset: int = 0, *, committed: bool = False
    ) -> list[RecordBatch]:
        """Read the log from an offset to the high watermark, local or remote."""
        found: list[RecordBatch] = []
        offset = first_offset
        while True:
            row = self.fetch(node_id, offset, committed=committed)
            assert row.error_code == 0, ErrorCode(row.error_code)
            if offset >= row.high_watermark:
                return found
            batches = [
                batch
                for batch in split_batches(bytes(row.records or b""))
                if batch.last_offset >= offset
            ]
            found += batches
            offset = batches[-1].next_offset if batches else offset

    def list_offset(
        self, node_id: int, timestamp: int, version: int = 9
    ) -> ListOffsetsPartitionResponse:
        """Request the start offset of a log, or the offset of a timestamp."""
        asked = ListOffsetsTopic(
            name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
        )
        answer = self.ask(node_id, ListOffsetsRequest(replica_id=-1, topics=[asked]), version)
        assert isinstance(answer, ListOffsetsResponse)
        return answer.topics[0].partitions[0]


async def _ask(host: str, request: Message, version: int | None) -> Message:
    connection = PeerConnection(host, 9092, client_id="lab", request_timeout_ms=20_000)
    try:
        await connection.connect()
        return await connection.request(request, api_version=version)
    finally:
        connection.close()

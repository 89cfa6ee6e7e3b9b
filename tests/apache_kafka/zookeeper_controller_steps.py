"""The same random requests and broker changes for two ZooKeeper-mode controllers, each with its own
ZooKeeper, and their responses.

Besides the broker that is controller there are fake brokers: their znodes exist, but nothing
listens at their ports.
"""

import asyncio
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kraftsim.server.outbound import PeerConnection
from kraftsim.world.real.world import real_world
from kraftsim.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.znode_writer import ZnodeReader
from protocol.messages.k07_controlled_shutdown import ControlledShutdownRequest
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.k46_list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    QuotaAlteration,
)
from protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.k56_alter_partition import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
)
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from protocol.schema import Message
from protocol.uuids import parse_uuid_text
from protocol.zookeeper.kafka_znodes import (
    BrokerZnode,
    PartitionStateZnode,
    TopicZnode,
    broker_path,
    state_path,
    topic_path,
)
from protocol.zookeeper.op_codes import CreateMode

CONTROLLER_ID: Final = 1
SEEMING: Final = (11, 12, 13)
TOPICS: Final = ("ant", "bee", "cat")
ROOTS: Final = (
    "/brokers/topics",
    "/config/topics",
    "/config/users",
    "/config/clients",
    "/config/ips",
    "/config/brokers",
    "/admin",
)
SETTLE_S: Final = 0.15
TOPIC_ID: Final = re.compile(rb'"topic_id":"[^"]+"')


@dataclass
class Side:
    """A controller under test: its broker's port, and its ZooKeeper."""

    name: str
    port: int
    zookeeper_port: int
    connection: PeerConnection | None = None
    client: ZookeeperClient | None = None
    epochs: dict[int, int] = field(default_factory=dict)

    async def open(self, directory: Path) -> None:
        """Connect to both."""
        place = directory / self.name
        world = real_world(
            run="steps",
            node=f"teller-{self.name}",
            incarnation=1,
            data_dir=place,
            events_dir=place,
            seed=1,
            started_ns=0,
        )
        self.client = ZookeeperClient(
            world, [("127.0.0.1", self.zookeeper_port)], session_timeout_ms=30_000
        )
        self.client.start()
        self.connection = PeerConnection(
            "127.0.0.1", self.port, client_id="teller", request_timeout_ms=30_000
        )
        await self.connection.connect()

    async def close(self) -> None:
        """Close both connections."""
        assert self.client is not None and self.connection is not None
        self.connection.close()
        await self.client.close()

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """Send a request to the controller."""
        assert self.connection is not None
        return await self.connection.request(request, api_version=version)

    async def register(self, broker_id: int) -> None:
        """Register a fake broker."""
        assert self.client is not None
        znode = BrokerZnode(
            host="127.0.0.1",
            port=9,
            endpoints=["PLAINTEXT://127.0.0.1:9"],
            security_protocols={"PLAINTEXT": "PLAINTEXT"},
            timestamp_ms=1,
        )
        await self.client.create(broker_path(broker_id), znode.build(), CreateMode.EPHEMERAL)
        _, stat = await self.client.get(broker_path(broker_id))
        self.epochs[broker_id] = stat.czxid

    async def unregister(self, broker_id: int) -> None:
        """Remove a fake broker."""
        assert self.client is not None
        try:
            await self.client.delete(broker_path(broker_id))
        except ZookeeperRefused:
            return
        self.epochs.pop(broker_id, None)

    async def partition(
        self, topic: str, number: int
    ) -> tuple[bytes, PartitionStateZnode, int] | None:
        """Return the id of a topic, the state of one of its partitions, and its epoch; None if it
        does not exist.
        """
        assert self.client is not None
        found = await ZnodeReader(self.client).some([topic_path(topic), state_path(topic, number)])
        if state_path(topic, number) not in found:
            return None
        data, stat = found[state_path(topic, number)]
        topic_id = TopicZnode.parse(found[topic_path(topic)][0] or b"").topic_id
        assert topic_id is not None
        return topic_id, PartitionStateZnode.parse(data or b""), stat.version

    async def is_known(self, topic: str, number: int) -> bool:
        """Return whether a topic has a partition, with or without a leader."""
        try:
            return number in await replicas_of(self, topic)
        except ZookeeperRefused:
            return False

    async def znodes(self) -> dict[str, tuple[bytes, int]]:
        """Return the content of ZooKeeper, without ids; of partition states with the version."""
        assert self.client is not None
        found: dict[str, tuple[bytes, int]] = {}
        for root in ROOTS:
            for path, (data, stat) in (await ZnodeReader(self.client).tree(root)).items():
                if data:
                    version = stat.version if path.endswith("/state") else 0
                    found[path] = (TOPIC_ID.sub(b'"topic_id":""', data), version)
        return found


def shown(answer: Any) -> str:
    """Return a response without cluster-specific values, and with rows sorted where the order is
    not specified.
    """
    text = repr(answer)
    text = re.sub(r"topic_id=b'.*?'(?=[,)])|topic_id=b\".*?\"(?=[,)])", "topic_id", text)
    text = re.sub(r"throttle_time_ms=\d+", "throttle", text)
    return text


class RandomSteps:
    """Random steps from a seed: `next_step` returns the name of the step and the action for either
    side.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.topics = [f"{name}{seed}" for name in TOPICS]
        self.there: dict[int, None] = {}

    def next_step(self) -> tuple[str, Callable[[Side], Any]]:
        """Return the next step."""
        kinds = [
            self._create,
            self._create,
            self._widen,
            self._elect,
            self._move,
            self._move,
            self._cancel,
            self._listed,
            self._isr,
            self._isr,
            self._isr,
            self._come_or_go,
            self._come_or_go,
            self._shut_down,
            self._config,
            self._quota,
            self._scram,
            self._ids,
        ]
        return self.random.choice(kinds)()

    def _replicas(self) -> list[int]:
        pool = [CONTROLLER_ID, *SEEMING]
        return self.random.sample(pool, self.random.choice((1, 2, 2, 3)))

    def _create(self) -> tuple[str, Callable[[Side], Any]]:
        size = self.random.choice((1, 2, 3))
        pool = [CONTROLLER_ID, *(each for each in SEEMING if each in self.there)]
        rows = [
            CreatableReplicaAssignment(
                partition_index=number, broker_ids=self.random.sample(pool, min(size, len(pool)))
            )
            for number in range(self.random.randrange(1, 4))
        ]
        configs = (
            [CreatableTopicConfig(name="retention.ms", value="60000")]
            if self.random.randrange(3) == 0
            else []
        )
        topic = CreatableTopic(
            name=self.random.choice(self.topics),
            num_partitions=-1,
            replication_factor=-1,
            assignments=rows,
            configs=configs,
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=2000, validate_only=self.random.randrange(6) == 0
        )

        async def ask(side: Side) -> Any:
            answer = await side.ask(request, 4)
            return [(row.name, row.error_code) for row in answer.topics]

        return (
            (
                f"create {topic.name} {[row.broker_ids for row in rows]} "
                f"validate={request.validate_only}"
            ),
            ask,
        )

    def _widen(self) -> tuple[str, Callable[[Side], Any]]:
        name, count = self.random.choice(self.topics), self.random.randrange(1, 5)
        seed = self.random.random()

        async def ask(side: Side) -> Any:
            known = 0
            while await side.partition(name, known) is not None:
                known += 1
            draw, found = random.Random(seed), await side.partition(name, 0)
            width = 1 if found is None else len((await replicas_of(side, name))[0])
            pool = [CONTROLLER_ID, *sorted(side.epochs)]
            rows = [
                CreatePartitionsAssignment(broker_ids=draw.sample(pool, min(width, len(pool))))
                for _ in range(max(count - known, 0))
            ]
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=name, count=count, assignments=rows or None)],
                timeout_ms=2000,
            )
            answer = await side.ask(request)
            return [(row.name, row.error_code) for row in answer.results]

        return f"widen {name} to {count}", ask

    def _elect(self) -> tuple[str, Callable[[Side], Any]]:
        kind, asks_for_all = self.random.randrange(2), self.random.randrange(2)
        name, numbers = self.random.choice(self.topics), [0, self.random.randrange(1, 5)]

        async def ask(side: Side) -> Any:
            """Never for a partition that has never had a leader: Apache Kafka's controller fails
            and does not respond.
            """
            known = [
                number
                for number in numbers
                if await side.partition(name, number) is not None
                or not await side.is_known(name, number)
            ]
            rows = None if asks_for_all else [TopicPartitions(topic=name, partitions=known)]
            answer = await side.ask(
                ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=1000)
            )
            found_rows = [
                (row.topic, each.partition_id, each.error_code)
                for row in answer.replica_election_results
                for each in row.partition_result
            ]
            return answer.error_code, sorted(found_rows)

        return f"elect {kind} {'all' if asks_for_all else (name, numbers)}", ask

    def _move(self) -> tuple[str, Callable[[Side], Any]]:
        name, number, replicas = (
            self.random.choice(self.topics),
            self.random.randrange(4),
            self._replicas(),
        )
        if self.random.randrange(8) == 0:
            replicas = self.random.choice(([], [1, 1], [-3], [99]))
        return f"move {name}-{number} to {replicas}", self._moving(name, number, replicas)

    def _cancel(self) -> tuple[str, Callable[[Side], Any]]:
        name, number = self.random.choice(self.topics), self.random.randrange(3)
        return f"call off {name}-{number}", self._moving(name, number, None)

    def _moving(self, name: str, number: int, replicas: list[int] | None) -> Callable[[Side], Any]:
        row = ReassignableTopic(
            name=name, partitions=[ReassignablePartition(partition_index=number, replicas=replicas)]
        )
        request = AlterPartitionReassignmentsRequest(timeout_ms=2000, topics=[row])

        async def ask(side: Side) -> Any:
            answer = await side.ask(request, 0)
            return answer.error_code, [
                (each.partition_index, each.error_code)
                for topic in answer.responses
                for each in topic.partitions
            ]

        return ask

    def _listed(self) -> tuple[str, Callable[[Side], Any]]:
        async def ask(side: Side) -> Any:
            answer = await side.ask(ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None))
            return sorted(
                (
                    row.name,
                    each.partition_index,
                    each.replicas,
                    each.adding_replicas,
                    each.removing_replicas,
                )
                for row in answer.topics
                for each in row.partitions
            )

        return "list moves", ask

    def _isr(self) -> tuple[str, Callable[[Side], Any]]:
        """Send AlterPartition from a leader: mostly a valid request with registered brokers."""
        name, number, seed = (
            self.random.choice(self.topics),
            self.random.randrange(3),
            self.random.random(),
        )

        async def ask(side: Side) -> Any:
            found = await side.partition(name, number)
            draw = random.Random(seed)
            if found is None:
                return None
            topic_id, state, epoch = found
            replicas = (await replicas_of(side, name))[number]
            leader = state.leader if draw.randrange(8) else draw.choice(replicas)
            if leader not in side.epochs:
                return None  # the broker of the controller changes its ISR by itself
            isr = [leader, *(each for each in replicas if each != leader and draw.randrange(3))]
            data = AlterPartitionData(
                partition_index=number,
                leader_epoch=state.leader_epoch + draw.choice((0, 0, 0, 0, 0, 1, -1)),
                new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=-1) for each in isr],
                leader_recovery_state=int(state.is_recovering)
                if draw.randrange(4)
                else draw.randrange(2),
                partition_epoch=epoch + draw.choice((0, 0, 0, 0, 0, 1, -1)),
            )
            row = AlterPartitionTopic(
                topic_id=topic_id
                if draw.randrange(10)
                else parse_uuid_text("AAAAAAAAAAAAAAAAAAAAAw"),
                partitions=[data],
            )
            broker_epoch = side.epochs[leader] + (0 if draw.randrange(12) else 1)
            answer = await side.ask(
                AlterPartitionRequest(broker_id=leader, broker_epoch=broker_epoch, topics=[row]), 3
            )
            return shown(answer)

        return f"isr of {name}-{number} by {seed}", ask

    def _come_or_go(self) -> tuple[str, Callable[[Side], Any]]:
        broker_id = self.random.choice(SEEMING)
        if broker_id in self.there and self.random.randrange(2):
            del self.there[broker_id]
            return f"{broker_id} goes", lambda side: side.unregister(broker_id)
        if broker_id in self.there:
            return f"{broker_id} stays", _nothing
        self.there[broker_id] = None
        return f"{broker_id} comes", lambda side: side.register(broker_id)

    def _shut_down(self) -> tuple[str, Callable[[Side], Any]]:
        broker_id, change = self.random.choice((*SEEMING, 99)), self.random.choice((0, 0, -1, None))

        async def ask(side: Side) -> Any:
            epoch = -1 if change is None else side.epochs.get(broker_id, 5) + change
            answer = await side.ask(
                ControlledShutdownRequest(broker_id=broker_id, broker_epoch=epoch)
            )
            return answer.error_code, sorted(
                (row.topic_name, row.partition_index) for row in answer.remaining_partitions
            )

        return f"{broker_id} shuts down, {change}", ask

    def _config(self) -> tuple[str, Callable[[Side], Any]]:
        kind, name, key, value = self.random.choice(
            (
                (2, self.random.choice(self.topics), "retention.ms", "100000"),
                (
                    2,
                    self.random.choice(self.topics),
                    "unclean.leader.election.enable",
                    self.random.choice(("true", "false")),
                ),
                (2, self.random.choice(self.topics), "max.message.bytes", "2000"),
                (4, "", "log.cleaner.threads", self.random.choice(("1", "2"))),
            )
        )
        operation = self.random.choice((0, 0, 1))
        change = AlterableConfig(
            name=key, config_operation=operation, value=value if operation == 0 else None
        )
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
            ]
        )

        async def ask(side: Side) -> Any:
            return [
                (row.error_code, row.resource_name) for row in (await side.ask(request)).responses
            ]

        return f"config {kind} {name} {key}={value} {operation}", ask

    def _quota(self) -> tuple[str, Callable[[Side], Any]]:
        kinds = self.random.choice((("user",), ("client-id",), ("user", "client-id")))
        entity = [
            EntityData(entity_type=kind, entity_name=self.random.choice(("ann", "b c", None)))
            for kind in kinds
        ]
        key = self.random.choice(("producer_byte_rate", "request_percentage", "nonsense"))
        operation = OpData(
            key=key,
            value=self.random.choice((1000.0, 2e7, 12.5)),
            remove=self.random.randrange(4) == 0,
        )
        request = AlterClientQuotasRequest(
            entries=[QuotaAlteration(entity=entity, ops=[operation])]
        )

        async def ask(side: Side) -> Any:
            return [row.error_code for row in (await side.ask(request)).entries]

        return f"quota {entity} {operation}", ask

    def _scram(self) -> tuple[str, Callable[[Side], Any]]:
        name, mechanism = self.random.choice(("ann", "b c", "")), self.random.choice((1, 2, 3))
        if self.random.randrange(3) == 0:
            request = AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name=name, mechanism=mechanism)]
            )
        else:
            given = ScramCredentialUpsertion(
                name=name,
                mechanism=mechanism,
                iterations=self.random.choice((4096, 100)),
                salt=b"salt",
                salted_password=b"p" * 32,
            )
            request = AlterUserScramCredentialsRequest(upsertions=[given])

        async def ask(side: Side) -> Any:
            return [(row.user, row.error_code) for row in (await side.ask(request)).results]

        return f"scram {name} {mechanism}", ask

    def _ids(self) -> tuple[str, Callable[[Side], Any]]:
        broker_id, change = self.random.choice((*SEEMING, 77)), self.random.choice((0, 0, 1))

        async def ask(side: Side) -> Any:
            answer = await side.ask(
                AllocateProducerIdsRequest(
                    broker_id=broker_id, broker_epoch=side.epochs.get(broker_id, 5) + change
                )
            )
            return answer.error_code, answer.producer_id_len

        return f"ids for {broker_id}", ask


async def replicas_of(side: Side, topic: str) -> dict[int, list[int]]:
    """Return the replicas of all partitions of a topic."""
    assert side.client is not None
    data, _ = await side.client.get(topic_path(topic))
    return {number: list(each) for number, each in TopicZnode.parse(data or b"").partitions.items()}


async def _nothing(side: Side) -> None:
    return None


async def run_steps(
    seed: int, step_count: int, sides: tuple[Side, Side], directory: Path
) -> list[str]:
    """Run the steps of a seed on two controllers, and return the first difference, at which it
    ends.
    """
    steps = RandomSteps(seed)
    for side in sides:
        await side.open(directory)
        for broker_id in SEEMING:
            await side.register(broker_id)
    steps.there.update(dict.fromkeys(SEEMING))
    history: list[str] = []
    await asyncio.sleep(1)
    try:
        for number in range(step_count):
            name, step = steps.next_step()
            history.append(f"{number}. {name}")
            first, second = await asyncio.gather(*(step(side) for side in sides))
            differing = await _differing(sides)
            if first != second or differing:
                return [
                    *history[-8:],
                    f"{sides[0].name}: {first}",
                    f"{sides[1].name}: {second}",
                    *differing,
                ]
        return []
    finally:
        for side in sides:
            await side.close()


async def _differing(sides: tuple[Side, Side]) -> list[str]:
    """Return the znodes that still differ after a waiting time."""
    for _ in range(40):
        await asyncio.sleep(SETTLE_S)
        one, other = [await side.znodes() for side in sides]
        if one == other:
            return []
    paths = dict.fromkeys([*one, *other])
    return [
        f"{path}: {sides[0].name} {one.get(path)}, {sides[1].name} {other.get(path)}"
        for path in paths
        if one.get(path) != other.get(path)
    ]

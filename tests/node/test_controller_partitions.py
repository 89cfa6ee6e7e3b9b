"""Partition management through a controller's listener: three stand-in brokers, and the
controller's background work.

tests/apache_kafka/test_partition_rules.py compares the response to every request with Apache Kafka.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kraftsim.metadata.events import PartitionChanged, TopicDeleted
from kraftsim.metadata.rules_registrations import PartitionRegistration
from kraftsim.server.controller import Controller
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.k43_elect_leaders import ElectLeadersRequest
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
from protocol.messages.k56_alter_partition import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
)
from protocol.messages.k73_assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
)
from protocol.schema import Message
from tests.node.conftest import MakeWorld, WatchedWorld
from tests.node.controllers import BrokerStandIn, connected, running_controller

CAUGHT_UP = 1 << 40
SET = 0


@dataclass
class ScenarioEnvironment:
    """A controller and unfenced brokers 1, 2 and 3; the topic t has partition 0 on all of them, led
    by broker 1.
    """

    controller: Controller
    brokers: dict[int, BrokerStandIn]

    @property
    def partition(self) -> PartitionRegistration:
        topic = self.controller.metadata_writer.state.replication.topics.topic_named("t")
        assert topic is not None
        return topic.partitions[0]

    @property
    def topic_id(self) -> bytes:
        topic_id = self.controller.metadata_writer.state.replication.topic_id("t")
        assert topic_id is not None
        return topic_id

    async def ask(self, request: Message, version: int | None = None) -> Any:
        return await self.brokers[1].connection.request(request, api_version=version)

    async def create(self, **configs: str) -> None:
        rows = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])]
        settings = [
            CreatableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        ]
        topic = CreatableTopic(
            name="t", num_partitions=-1, replication_factor=-1, assignments=rows, configs=settings
        )
        assert (await self.ask(CreateTopicsRequest(topics=[topic]))).topics[
            0
        ].error_code == ErrorCode.NONE

    async def alter(self, requester: int, isr: list[int]) -> Any:
        held = self.partition
        row = AlterPartitionData(
            partition_index=0,
            leader_epoch=held.leader_epoch,
            partition_epoch=held.partition_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=member, broker_epoch=self.brokers[member].broker_epoch)
                for member in isr
            ],
        )
        topic = AlterPartitionTopic(topic_id=self.topic_id, partitions=[row])
        answer = await self.ask(
            AlterPartitionRequest(
                broker_id=requester,
                broker_epoch=self.brokers[requester].broker_epoch,
                topics=[topic],
            )
        )
        assert answer.error_code == ErrorCode.NONE
        return answer.topics[0].partitions[0]

    async def move(self, replicas: list[int] | None) -> int:
        row = ReassignableTopic(
            name="t", partitions=[ReassignablePartition(partition_index=0, replicas=replicas)]
        )
        answer = await self.ask(AlterPartitionReassignmentsRequest(topics=[row]), 0)
        return int(answer.responses[0].partitions[0].error_code)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def staged(make_world: MakeWorld, **settings: str) -> AsyncIterator[ScenarioEnvironment]:
    async with (
        running_controller(make_world(), **settings) as controller,
        AsyncExitStack() as stack,
    ):
        address = controller.addresses["CONTROLLER"]
        brokers = {
            broker_id: await stack.enter_async_context(connected(address, broker_id))
            for broker_id in (1, 2, 3)
        }
        for broker in brokers.values():
            await broker.register()
            assert not (await broker.beat(CAUGHT_UP)).is_fenced
        yield ScenarioEnvironment(controller, brokers)


async def test_alter_partition_that_completes_a_reassignment(make_world: MakeWorld) -> None:
    """The leader that is moved away is notified of the new leader, and the change is applied."""
    async with staged(make_world) as stage:
        await stage.create()
        row = await stage.alter(1, [1, 2])
        assert (row.error_code, row.leader_id, row.isr, row.partition_epoch) == (
            ErrorCode.NONE,
            1,
            [1, 2],
            1,
        )
        assert await stage.move([3]) == ErrorCode.NONE
        listed = (
            (await stage.ask(ListPartitionReassignmentsRequest(topics=None)))
            .topics[0]
            .partitions[0]
        )
        assert (listed.replicas, listed.adding_replicas, listed.removing_replicas) == (
            [3, 1, 2],
            [],
            [1, 2],
        )
        row = await stage.alter(1, [1, 2, 3])
        assert (row.error_code, row.isr) == (ErrorCode.NEW_LEADER_ELECTED, [])
        assert (stage.partition.replicas, stage.partition.isr, stage.partition.leader) == (
            (3,),
            (3,),
            3,
        )
        assert not stage.partition.is_reassigning


async def test_preferred_leaders_are_elected_periodically(make_world: MakeWorld) -> None:
    """Some time after the imbalance appeared (leader.imbalance.check.interval.seconds)."""
    async with staged(make_world, leader_imbalance_check_interval_seconds="1") as stage:
        await stage.create()
        await stage.brokers[1].beat(CAUGHT_UP, want_fence=True)
        assert (stage.partition.leader, stage.partition.isr) == (2, (2, 3))
        await stage.brokers[1].beat(CAUGHT_UP)
        await stage.alter(2, [1, 2, 3])
        assert stage.partition.leader == 2
        await stage.until(lambda: stage.partition.leader == 1)
        assert stage.partition.leader_epoch == 2


async def test_leaders_stay_without_automatic_rebalancing(make_world: MakeWorld) -> None:
    """auto.leader.rebalance.enable=false; an operator can request an election."""
    async with staged(
        make_world,
        leader_imbalance_check_interval_seconds="1",
        auto_leader_rebalance_enable="false",
    ) as stage:
        await stage.create()
        await stage.brokers[1].beat(CAUGHT_UP, want_fence=True)
        await stage.brokers[1].beat(CAUGHT_UP)
        await stage.alter(2, [1, 2, 3])
        await asyncio.sleep(1.3)
        assert stage.partition.leader == 2
        answer = await stage.ask(ElectLeadersRequest(topic_partitions=None))
        assert [row.error_code for row in answer.replica_election_results[0].partition_result] == [
            ErrorCode.NONE
        ]
        assert stage.partition.leader == 1


async def test_leaderless_partition_gets_an_unclean_leader_once_allowed(
    make_world: MakeWorld,
) -> None:
    """Checked periodically (unclean.leader.election.interval.ms); records that only the other
    replicas had are lost.
    """
    async with staged(make_world, unclean_leader_election_interval_ms="200") as stage:
        await stage.create()
        await stage.alter(1, [1])
        await stage.brokers[1].beat(CAUGHT_UP, want_fence=True)
        await asyncio.sleep(0.5)
        assert (stage.partition.leader, stage.partition.isr) == (-1, (1,))
        allowed = AlterableConfig(
            name="unclean.leader.election.enable", config_operation=SET, value="true"
        )
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[allowed])
        assert (await stage.ask(IncrementalAlterConfigsRequest(resources=[resource]))).responses[
            0
        ].error_code == ErrorCode.NONE
        await stage.until(lambda: stage.partition.leader == 2)
        assert (stage.partition.isr, stage.partition.leader_recovery_state) == ((2,), 1)
        world = stage.controller.world
        assert isinstance(world, WatchedWorld)
        await stage.until(lambda: world.emitted_of(PartitionChanged)[-1].leader_recovery_state == 1)


async def test_node_properties_can_enable_unclean_election(make_world: MakeWorld) -> None:
    """unclean.leader.election.enable of the controller applies to topics that do not set it."""
    async with staged(make_world, unclean_leader_election_enable="true") as stage:
        await stage.create()
        await stage.alter(1, [1])
        await stage.brokers[1].beat(CAUGHT_UP, want_fence=True)
        assert (stage.partition.leader, stage.partition.isr) == (2, (2,))


async def test_replica_in_a_failed_directory_loses_leadership(make_world: MakeWorld) -> None:
    """KIP-858: the broker names a directory that it never registered."""
    async with staged(make_world) as stage:
        await stage.create()
        row = AssignedTopic(
            topic_id=stage.topic_id,
            partitions=[AssignedPartition(partition_index=0), AssignedPartition(partition_index=7)],
        )
        broker = stage.brokers[1]
        request = AssignReplicasToDirsRequest(
            broker_id=1,
            broker_epoch=broker.broker_epoch,
            directories=[AssignedDirectory(id=b"another one     ", topics=[row])],
        )
        answer = await stage.ask(request)
        errors = [partition.error_code for partition in answer.directories[0].topics[0].partitions]
        assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert (stage.partition.leader, stage.partition.isr) == (2, (2, 3))


async def test_request_without_time_left_is_not_executed(make_world: MakeWorld) -> None:
    """REQUEST_TIMED_OUT, as in Apache Kafka if a request waited too long in the queue."""
    async with staged(make_world) as stage:
        await stage.create()
        answer = await stage.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=0)
        )
        assert answer.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        row = CreatePartitionsTopic(name="t", count=2, assignments=None)
        answer = await stage.ask(CreatePartitionsRequest(topics=[row], timeout_ms=-1))
        assert answer.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        answer = await stage.ask(ElectLeadersRequest(topic_partitions=None, timeout_ms=0))
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert isinstance(stage.controller.world, WatchedWorld)
        assert stage.controller.world.emitted_of(TopicDeleted) == []


async def test_topic_deletion_can_be_disabled(make_world: MakeWorld) -> None:
    """delete.topic.enable=false; before version 3 there is no specific error for it."""
    async with staged(make_world, delete_topic_enable="false") as stage:
        await stage.create()
        answer = await stage.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
        assert answer.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED
        answer = await stage.ask(DeleteTopicsRequest(topic_names=["t"]), 2)
        assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST

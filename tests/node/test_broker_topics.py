"""Topic administration through a broker: it forwards what only the controller can decide, and
applies the decisions on disk.
"""

import asyncio

import pytest

from kraftsim.metadata.events import PartitionChanged, PartitionCreated, TopicCreated, TopicDeleted
from kraftsim.partitions.events import LeaderElected
from kraftsim.releases.release import releases
from kraftsim.server.forwarding import FORWARDED, broker_handlers
from kraftsim.server.outbound import PeerConnection
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from protocol.messages.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.messages.k43_elect_leaders import ElectLeadersRequest
from protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.k46_list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.schema import Message
from tests.node.brokers import BROKER_PORT, CONTROLLER_HOST, Client, Cluster, batch, running_cluster


async def delete(client: Client, name: str) -> int:
    answer: DeleteTopicsResponse = await client.ask(
        DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
    )
    return answer.responses[0].error_code


def files_of(cluster: Cluster, broker: str, directory: str) -> list[str]:
    return cluster.simulation.world_of(broker).disk.list(directory)


def test_deleted_topic_leaves_no_files_and_its_name_can_be_reused() -> None:
    """The new topic has another id and begins at offset 0."""
    with running_cluster() as cluster:

        async def work(client: Client) -> tuple[bytes, bytes]:
            first_id = await client.create_topic("t")
            assert (await client.produce(batch(3))).error_code == ErrorCode.NONE
            assert files_of(cluster, "broker-1", "t-0")
            assert await delete(client, "t") == ErrorCode.NONE
            await asyncio.sleep(1)
            assert files_of(cluster, "broker-1", "t-0") == []
            asked = MetadataRequest(
                topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False
            )
            assert (await client.ask(asked)).topics[
                0
            ].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (
                await client.produce(batch())
            ).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            second_id = await client.create_topic("t")
            assert (await client.produce(batch())).base_offset == 0
            return first_id, second_id

        first_id, second_id = cluster.run(work)
        assert first_id != second_id
        assert [
            event.partition_count for event in cluster.emitted(TopicDeleted, CONTROLLER_HOST)
        ] == [1]
        assert len(cluster.emitted(TopicCreated, CONTROLLER_HOST)) == 2


def test_topic_deleted_while_its_broker_is_down_is_deleted_at_restart() -> None:
    """The broker finds the deletion in the metadata log."""
    with running_cluster(2) as cluster:

        async def create(client: Client) -> None:
            row = CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
            topic = CreatableTopic(
                name="t", num_partitions=-1, replication_factor=-1, assignments=[row]
            )
            assert (await client.ask(CreateTopicsRequest(topics=[topic]))).topics[
                0
            ].error_code == ErrorCode.NONE
            await asyncio.sleep(1)
            assert (await client.produce(batch())).base_offset == 0

        async def drop(client: Client) -> None:
            assert await delete(client, "t") == ErrorCode.NONE
            await asyncio.sleep(12)

        cluster.run(create)
        cluster.kill("broker-1")
        cluster.run(drop, "broker-2")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        cluster.run(create)


def test_added_partition_is_served_at_its_assigned_broker() -> None:
    """CreatePartitions with an assignment: partition 1 goes to broker 2."""
    with running_cluster(2) as cluster:

        async def widen(client: Client) -> None:
            await client.create_topic("t")
            topic = CreatePartitionsTopic(
                name="t", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[2])]
            )
            answer = await client.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=5000))
            assert [(row.name, row.error_code) for row in answer.results] == [("t", ErrorCode.NONE)]
            await asyncio.sleep(1)

        async def use(client: Client) -> None:
            assert (await client.produce(batch(), partition=1)).base_offset == 0

        cluster.run(widen)
        cluster.run(use, "broker-2")
        created = cluster.emitted(PartitionCreated, CONTROLLER_HOST)
        assert [(event.topic, event.partition) for event in created] == [
            ("t", 0),
            ("t", 1),
        ] and created[1].leader == 2


def by_hand(name: str, broker_id: int) -> CreateTopicsRequest:
    """A topic of one partition, assigned to one broker."""
    row = CreatableReplicaAssignment(partition_index=0, broker_ids=[broker_id])
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[row])
        ],
        timeout_ms=5000,
    )


async def move(client: Client, replicas: list[int] | None) -> int:
    row = ReassignableTopic(
        name="t", partitions=[ReassignablePartition(partition_index=0, replicas=replicas)]
    )
    answer: AlterPartitionReassignmentsResponse = await client.ask(
        AlterPartitionReassignmentsRequest(topics=[row], timeout_ms=5000), 0
    )
    return answer.responses[0].partitions[0].error_code


async def moves(client: Client) -> list[tuple[list[int], list[int], list[int]]]:
    answer = await client.ask(ListPartitionReassignmentsRequest(topics=None, timeout_ms=5000))
    return [
        (row.replicas, row.adding_replicas, row.removing_replicas)
        for topic in answer.topics
        for row in topic.partitions
    ]


def test_reassignment_starts_is_listed_and_is_cancelled() -> None:
    """It cannot complete while the new replica is down: it never joins the ISR."""
    with running_cluster(2) as cluster:

        async def work(client: Client) -> None:
            await client.ask(by_hand("t", 1))
            cluster.kill("broker-2")
            assert await move(client, [2]) == ErrorCode.NONE
            assert await moves(client) == [([2, 1], [2], [1])]
            assert await move(client, None) == ErrorCode.NONE
            assert (
                await moves(client) == []
                and await move(client, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            )

        cluster.run(work)
        assert [
            event.adding_replicas for event in cluster.emitted(PartitionChanged, CONTROLLER_HOST)
        ][-1] == ""


def test_partition_is_reassigned_to_another_broker() -> None:
    """The new replica fetches, joins the ISR, becomes leader, and the old one is removed
    (KIP-455).
    """
    with running_cluster(2) as cluster:

        async def work(client: Client) -> None:
            await client.ask(by_hand("t", 1))
            assert await move(client, [2]) == ErrorCode.NONE
            while await moves(client):
                await asyncio.sleep(0.1)

        cluster.run(work)
        last = cluster.emitted(PartitionChanged, CONTROLLER_HOST)[-1]
        assert (last.leader, last.isr) == (2, "2")
        assert [event.leader_epoch for event in cluster.emitted(LeaderElected, "broker-2")], (
            "the new replica is leader"
        )


ASKED: list[tuple[Message, int]] = [
    (
        CreateTopicsRequest(
            topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
        ),
        7,
    ),
    (DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6),
    (DeleteTopicsRequest(topic_names=["t"]), 3),
    (
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)]
        ),
        3,
    ),
    (ElectLeadersRequest(topic_partitions=None), 2),
    (
        AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0)])
            ]
        ),
        0,
    ),
    (ListPartitionReassignmentsRequest(topics=None), 0),
]


@pytest.mark.parametrize(("asked", "version"), ASKED, ids=lambda value: type(value).__name__)
def test_without_a_controller_a_request_times_out_with_its_own_response(
    asked: Message, version: int
) -> None:
    """After the broker looked for a controller for a minute.

    Source: ForwardingManager.onTimeout.
    """
    with running_cluster() as cluster:
        cluster.kill(CONTROLLER_HOST)

        async def work(_: Client) -> str:
            patient = PeerConnection(
                "broker-1", BROKER_PORT, client_id="test", request_timeout_ms=120_000
            )
            await patient.connect()
            answer = await patient.request(asked, api_version=version)
            patient.close()
            return repr(answer)

        assert "error_code=7" in cluster.run(work).replace("<ErrorCode.REQUEST_TIMED_OUT: 7>", "7")


def test_broker_forwards_exactly_the_apis_served_by_the_controller() -> None:
    """AllocateProducerIds is not for clients, and APIs that a broker serves itself are not
    forwarded.
    """
    keys = [handler.key for handler in broker_handlers()]
    assert len(set(keys)) == len(keys)
    assert {19, 20, 37, 43, 45, 46} <= FORWARDED & set(keys)
    assert all(67 not in known.broker_apis for known in releases())

"""The ZooKeeper-mode controller, with kraftsim's brokers and ZooKeeper server, in virtual time."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kraftsim.zookeeper.client import ZookeeperClient
from kraftsim.zookeeper.events import (
    BrokerJoined,
    BrokerLeft,
    ZookeeperControllerElected,
    ZookeeperControllerResigned,
)
from kraftsim.zookeeper.znode_writer import ZnodeReader
from protocol.errors import ErrorCode
from protocol.messages.k07_controlled_shutdown import ControlledShutdownRequest
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
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
from protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    QuotaAlteration,
)
from protocol.messages.k56_alter_partition import AlterPartitionRequest
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from protocol.zookeeper.kafka_znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    PREFERRED_REPLICA_ELECTION,
    PRODUCER_ID_BLOCK,
    REASSIGN_PARTITIONS,
    ControllerZnode,
    PartitionStateZnode,
    TopicZnode,
    build_partitions,
    build_reassignments,
    parse_config,
    state_path,
    topic_path,
)
from tests.node.brokers import Client
from tests.node.zookeeper_mode_harness import SESSION_MS, Harness, zookeeper_harness

TOPIC = "t"
SPREAD = ([1, 2, 3], [2, 3, 1], [3, 1, 2])


@pytest.fixture
def harness() -> Iterator[Harness]:
    with zookeeper_harness(3) as running:
        yield running


def make(harness: Harness, *placement: list[int], name: str = TOPIC) -> None:
    """Create a topic with these replicas."""
    rows = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
        for number, replicas in enumerate(placement)
    ]
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=rows)
    answer = asked(harness, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert [row.error_code for row in answer.topics] == [ErrorCode.NONE]


def asked(harness: Harness, request: Any, broker: str | None = None) -> Any:
    """Send a request to the controller, or to a broker."""

    async def ask(client: Client) -> Any:
        return await client.ask(request)

    return harness.run(ask, broker)


def states(
    harness: Harness, count: int = 3, topic: str = TOPIC
) -> list[tuple[PartitionStateZnode, int]]:
    """Return the partition states in ZooKeeper, with the versions of their znodes."""

    async def read(client: ZookeeperClient) -> list[tuple[PartitionStateZnode, int]]:
        found = await ZnodeReader(client).some(
            [state_path(topic, number) for number in range(count)]
        )
        return [
            (PartitionStateZnode.parse(data or b""), stat.version) for data, stat in found.values()
        ]

    return harness.znodes(read)


def data_of(harness: Harness, path: str) -> bytes | None:
    """Return the data of a znode, None if it does not exist."""

    async def read(client: ZookeeperClient) -> bytes | None:
        return next((data for data, _ in (await ZnodeReader(client).some([path])).values()), None)

    return harness.znodes(read)


def rest(harness: Harness, seconds: float) -> None:
    harness.simulation.run_until(asyncio.sleep(seconds), limit_s=seconds + 1)


def test_first_broker_becomes_controller_and_notifies_all(harness: Harness) -> None:
    assert harness.leader == "broker-1"
    znode = ControllerZnode.parse(data_of(harness, CONTROLLER) or b"")
    assert (znode.broker_id, znode.kraft_epoch, data_of(harness, CONTROLLER_EPOCH)) == (1, -1, b"1")
    assert [event.broker_id for event in harness.emitted(BrokerJoined)] == [2, 3]
    assert {
        # attr-defined: a broker in ZooKeeper mode
        name: broker.source.received.controller_id  # type: ignore[attr-defined]
        for name, broker in harness.brokers.items()
    } == dict.fromkeys(harness.names, 1)


def test_new_topic_is_led_by_its_first_replicas(harness: Harness) -> None:
    make(harness, *SPREAD)
    assert [
        (state.leader, list(state.isr), state.leader_epoch, version)
        for state, version in states(harness)
    ] == [
        (1, [1, 2, 3], 0, 0),
        (2, [2, 3, 1], 0, 0),
        (3, [3, 1, 2], 0, 0),
    ]


def test_controller_failover_elects_leaders_for_its_partitions(harness: Harness) -> None:
    """The dead replica is first removed from the ISRs, which costs a leader epoch; then its
    partitions get leaders.
    Source: KafkaController.
    """
    make(harness, *SPREAD)
    harness.kill("broker-1")
    harness.until(lambda: harness.leader is not None)
    rest(harness, 2)
    assert data_of(harness, CONTROLLER_EPOCH) == b"2"
    assert [
        (state.leader, list(state.isr), state.leader_epoch, state.controller_epoch, version)
        for state, version in states(harness)
    ] == [
        (2, [2, 3], 2, 2, 2),
        (2, [2, 3], 1, 2, 1),
        (3, [3, 2], 1, 2, 1),
    ]
    harness.restart("broker-1")
    rest(harness, 30)
    assert [sorted(state.isr) for state, _ in states(harness)] == [[1, 2, 3]] * 3
    assert [state.leader for state, _ in states(harness)] == [1, 2, 3], (
        "and preferred leaders lead again after five seconds"
    )


def test_dead_broker_is_replaced_as_leader_and_leaves_the_isrs(harness: Harness) -> None:
    make(harness, *SPREAD)
    harness.kill("broker-3")
    harness.until(lambda: bool(harness.emitted(BrokerLeft)))
    rest(harness, 2)
    assert [
        (state.leader, list(state.isr), state.leader_epoch, version)
        for state, version in states(harness)
    ] == [
        (1, [1, 2], 1, 1),
        (2, [2, 1], 1, 1),
        (1, [1, 2], 1, 1),
    ]


def test_last_in_sync_replica_stays_in_the_isr_and_there_is_no_leader(harness: Harness) -> None:
    make(harness, [3, 2], [3, 2])
    for name in ("broker-2", "broker-3"):
        harness.kill(name)
        rest(harness, SESSION_MS / 1000 + 4)
    assert [
        (state.leader, list(state.isr), state.is_recovering) for state, _ in states(harness, 2)
    ] == [(-1, [3], False), (-1, [3], False)]
    harness.restart("broker-2")
    rest(harness, 3)
    assert states(harness, 2)[0][0].leader == -1, "broker 2 may lack records"
    harness.restart("broker-3")
    rest(harness, 3)
    assert [state.leader for state, _ in states(harness, 2)] == [3, 3]


def test_unclean_leader_is_marked_until_it_has_recovered(harness: Harness) -> None:
    make(harness, [3, 2])
    configs = [
        AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")
    ]
    resource = AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=configs)
    harness.kill("broker-2")
    rest(harness, SESSION_MS / 1000 + 4)
    harness.kill("broker-3")
    rest(harness, SESSION_MS / 1000 + 4)
    harness.restart("broker-2")
    rest(harness, 2)
    assert states(harness, 1)[0][0].leader == -1
    asked(harness, IncrementalAlterConfigsRequest(resources=[resource]))
    asked(harness, ElectLeadersRequest(election_type=1, topic_partitions=None, timeout_ms=5000))
    rest(harness, 1)
    assert (states(harness, 1)[0][0].leader, list(states(harness, 1)[0][0].isr)) == (2, [2])


def test_stopping_broker_moves_its_leadership_first(harness: Harness) -> None:
    make(harness, *SPREAD)
    harness.stop("broker-2")
    rest(harness, 1)
    assert [(state.leader, list(state.isr), version) for state, version in states(harness)] == [
        (1, [1, 3], 1),
        (3, [3, 1], 1),
        (3, [3, 1], 1),
    ]


@pytest.mark.parametrize(
    "broker_id, epoch_change, error",
    [
        (9, 0, ErrorCode.UNKNOWN_SERVER_ERROR),
        (9, None, ErrorCode.BROKER_NOT_AVAILABLE),
        (2, -1, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_shutdown_of_an_unknown_broker_is_rejected(
    harness: Harness, broker_id: int, epoch_change: int | None, error: ErrorCode
) -> None:
    epoch = harness.brokers["broker-2"].broker_epoch
    request = ControlledShutdownRequest(
        broker_id=broker_id, broker_epoch=-1 if epoch_change is None else epoch + epoch_change
    )
    assert asked(harness, request).error_code == error


def test_non_controller_rejects_controller_requests(harness: Harness) -> None:
    assert (
        asked(harness, ControlledShutdownRequest(broker_id=1), "broker-2").error_code
        == ErrorCode.STALE_CONTROLLER_EPOCH
    )
    assert (
        asked(harness, AlterPartitionRequest(broker_id=1), "broker-2").error_code
        == ErrorCode.NOT_CONTROLLER
    )
    assert (
        asked(harness, AllocateProducerIdsRequest(broker_id=1), "broker-2").error_code
        == ErrorCode.NOT_CONTROLLER
    )


def test_producer_id_blocks_are_consecutive(harness: Harness) -> None:
    epochs = {number: harness.brokers[f"broker-{number}"].broker_epoch for number in (1, 2)}
    answers = [
        asked(
            harness,
            AllocateProducerIdsRequest(
                broker_id=number, broker_epoch=epochs.get(number, 0) + change
            ),
        )
        for number, change in ((1, 0), (2, 0), (2, 1), (7, 0))
    ]
    assert [
        (answer.error_code, answer.producer_id_start, answer.producer_id_len) for answer in answers
    ] == [
        (ErrorCode.NONE, 0, 1000),
        (ErrorCode.NONE, 1000, 1000),
        (ErrorCode.STALE_BROKER_EPOCH, 0, 0),
        (ErrorCode.BROKER_ID_NOT_REGISTERED, 0, 0),
    ]


def test_reassignment_completes_when_the_added_replicas_are_in_sync(harness: Harness) -> None:
    make(harness, [1, 2], [2, 3])
    partitions = [
        ReassignablePartition(partition_index=0, replicas=[3, 2]),
        ReassignablePartition(partition_index=1, replicas=[2]),
    ]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=1000, topics=[ReassignableTopic(name=TOPIC, partitions=partitions)]
    )
    answer = asked(harness, request)
    assert [row.error_code for row in answer.responses[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    rest(harness, 5)
    assert (
        asked(harness, ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None)).topics == []
    )
    assert TopicZnode.parse(data_of(harness, topic_path(TOPIC)) or b"").partitions == {
        0: [3, 2],
        1: [2],
    }
    assert [(state.leader, sorted(state.isr)) for state, _ in states(harness, 2)] == [
        (3, [2, 3]),
        (2, [2]),
    ]


@pytest.mark.parametrize(
    "replicas, error",
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, -2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_invalid_reassignment_is_rejected(
    harness: Harness, replicas: list[int] | None, error: ErrorCode
) -> None:
    make(harness, [1, 2])
    row = ReassignableTopic(
        name=TOPIC, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)]
    )
    answer = asked(harness, AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[row]))
    assert answer.responses[0].partitions[0].error_code == error


def test_reassignments_and_elections_can_be_requested_in_znodes(harness: Harness) -> None:
    make(harness, [1, 2], [2, 3])

    async def ask(client: ZookeeperClient) -> None:
        await client.create(
            REASSIGN_PARTITIONS, build_reassignments({(TOPIC, 0): [2, 3], ("nothing", 0): [1]})
        )

    harness.znodes(ask)
    rest(harness, 5)
    assert data_of(harness, REASSIGN_PARTITIONS) is None
    assert TopicZnode.parse(data_of(harness, topic_path(TOPIC)) or b"").partitions[0] == [2, 3]

    async def elect(client: ZookeeperClient) -> None:
        await client.create(
            PREFERRED_REPLICA_ELECTION, build_partitions([(TOPIC, 0), (TOPIC, 1), (TOPIC, 7)])
        )

    harness.znodes(elect)
    rest(harness, 1)
    assert data_of(harness, PREFERRED_REPLICA_ELECTION) is None
    assert [state.leader for state, _ in states(harness, 2)] == [2, 2]


def test_topic_is_removed_when_all_brokers_have_deleted_it(harness: Harness) -> None:
    make(harness, *SPREAD)
    answer = asked(
        harness, DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=10_000)
    )
    assert [row.error_code for row in answer.responses] == [ErrorCode.NONE]
    for path in (topic_path(TOPIC), f"/config/topics/{TOPIC}", f"/admin/delete_topics/{TOPIC}"):
        assert data_of(harness, path) is None
    make(harness, *SPREAD)


def test_topic_deletion_waits_for_a_dead_replica(harness: Harness) -> None:
    make(harness, *SPREAD)
    harness.kill("broker-3")
    rest(harness, SESSION_MS / 1000 + 4)
    answer = asked(
        harness, DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=2000)
    )
    assert [row.error_code for row in answer.responses] == [ErrorCode.REQUEST_TIMED_OUT]
    assert data_of(harness, topic_path(TOPIC)) is not None
    harness.restart("broker-3")
    rest(harness, 5)
    assert data_of(harness, topic_path(TOPIC)) is None


def test_partitions_are_added_by_request_and_by_znode(harness: Harness) -> None:
    make(harness, [1, 2])
    more = CreatePartitionsTopic(
        name=TOPIC, count=2, assignments=[CreatePartitionsAssignment(broker_ids=[2, 3])]
    )
    assert (
        asked(harness, CreatePartitionsRequest(topics=[more], timeout_ms=1000))
        .results[0]
        .error_code
        == ErrorCode.NONE
    )

    async def widen(client: ZookeeperClient) -> None:
        data, stat = await client.get(topic_path(TOPIC))
        known = TopicZnode.parse(data or b"")
        wider = TopicZnode(partitions={**known.partitions, 2: [3, 1]}, topic_id=known.topic_id)
        await client.set(topic_path(TOPIC), wider.build(), stat.version)

    harness.znodes(widen)
    rest(harness, 1)
    assert [state.leader for state, _ in states(harness)] == [1, 2, 3]


def test_request_creates_no_more_partitions_than_in_kraft_mode(harness: Harness) -> None:
    """A few bytes request 2,147,483,647 of them: one int per partition would fill the memory."""
    make(harness, [1, 2])
    refused = ErrorCode.POLICY_VIOLATION
    topics = [
        CreatableTopic(name=f"t{count}", num_partitions=count, replication_factor=1)
        for count in (2**31 - 1, 6000, 6001, 10_001)
    ]
    answer = asked(
        harness, CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=True)
    )
    assert [row.error_code for row in answer.topics] == [refused, ErrorCode.NONE, refused, refused]
    for count, error in ((2**31 - 1, refused), (10_003, refused), (10_001, ErrorCode.NONE)):
        more = CreatePartitionsTopic(name=TOPIC, count=count, assignments=None)
        answer = asked(
            harness, CreatePartitionsRequest(topics=[more], timeout_ms=10_000, validate_only=True)
        )
        assert answer.results[0].error_code == error, count


def test_topic_created_in_znodes_gets_leaders(harness: Harness) -> None:
    """As kafka-topics --zookeeper did."""

    async def create(client: ZookeeperClient) -> None:
        await client.create(topic_path(TOPIC), TopicZnode(partitions={0: [3, 1]}).build())

    harness.znodes(create)
    rest(harness, 1)
    assert states(harness, 1) == [
        (PartitionStateZnode(leader=3, leader_epoch=0, isr=[3, 1], controller_epoch=1), 0)
    ]
    assert TopicZnode.parse(data_of(harness, topic_path(TOPIC)) or b"").topic_id is not None


def test_any_broker_writes_configs_and_quotas(harness: Harness) -> None:
    make(harness, [1])
    for broker, value in (("broker-2", "1000"), ("broker-3", "2000")):
        change = AlterableConfig(name="retention.ms", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[change])
        answer = asked(harness, IncrementalAlterConfigsRequest(resources=[resource]), broker)
        assert answer.responses[0].error_code == ErrorCode.NONE
    quota = QuotaAlteration(
        entity=[EntityData(entity_type="user", entity_name="a b")],
        ops=[OpData(key="request_percentage", value=1e7)],
    )
    assert (
        asked(harness, AlterClientQuotasRequest(entries=[quota]), "broker-2").entries[0].error_code
        == ErrorCode.NONE
    )
    assert parse_config(data_of(harness, f"/config/topics/{TOPIC}") or b"") == {
        "retention.ms": "2000"
    }
    assert parse_config(data_of(harness, "/config/users/a%20b") or b"") == {
        "request_percentage": "1.0E7"
    }
    rest(harness, 1)
    assert {
        name: broker.image.topic_configs(TOPIC)["retention.ms"]
        for name, broker in harness.brokers.items()
    } == dict.fromkeys(harness.names, "2000")


def test_controller_with_an_expired_session_resigns_and_its_writes_fail(harness: Harness) -> None:
    """It cannot reach ZooKeeper, so it learns last; the next controller already has another
    epoch.
    """
    make(harness, *SPREAD)
    lost: list[str] = []
    ends = (("broker-1", "zookeeper-1"), ("zookeeper-1", "broker-1"))
    for source, target in ends:
        harness.simulation.network.block(source, target, lost.append)
    harness.until(
        lambda: any(
            event.controller_epoch == 2 for event in harness.emitted(ZookeeperControllerElected)
        )
    )
    rest(harness, 3)
    assert [state.controller_epoch for state, _ in states(harness)] == [2, 2, 2]
    for source, target in ends:
        harness.simulation.network.unblock(source, target, lost.append)
    rest(harness, 20)
    assert [
        event.controller_epoch for event in harness.emitted(ZookeeperControllerResigned, "broker-1")
    ] == [1]
    assert harness.leader in ("broker-2", "broker-3")
    assert [sorted(state.isr) for state, _ in states(harness)] == [[1, 2, 3]] * 3


def test_controller_resigns_when_replaced(harness: Harness) -> None:
    async def take(client: ZookeeperClient) -> None:
        await client.set(CONTROLLER_EPOCH, b"9")
        await client.delete(CONTROLLER)
        await client.create(
            CONTROLLER, ControllerZnode(broker_id=3000, timestamp_ms=1, kraft_epoch=5).build()
        )

    harness.znodes(take)
    rest(harness, 2)
    assert harness.leader is None, "a KRaft controller owns it now"
    assert [event.controller_epoch for event in harness.emitted(ZookeeperControllerResigned)] == [1]

    async def give_back(client: ZookeeperClient) -> None:
        await client.delete(CONTROLLER)

    harness.znodes(give_back)
    harness.until(lambda: harness.leader is not None)
    assert data_of(harness, CONTROLLER_EPOCH) == b"10"


def test_late_write_of_a_deposed_controller_fails_and_it_resigns(harness: Harness) -> None:
    """Its own znode is still there, as if it had not been notified yet."""

    async def move(client: ZookeeperClient) -> None:
        await client.set(CONTROLLER_EPOCH, b"5")

    harness.znodes(move)
    topic = CreatableTopic(name="late", num_partitions=1, replication_factor=1)
    answer = asked(harness, CreateTopicsRequest(topics=[topic], timeout_ms=2000), "broker-1")
    assert [row.error_code for row in answer.topics] == [ErrorCode.NOT_CONTROLLER]
    assert data_of(harness, topic_path("late")) is None
    harness.until(lambda: harness.leader is not None)
    assert int(data_of(harness, CONTROLLER_EPOCH) or b"0") == 6


def test_deposed_controller_allocates_no_producer_ids(harness: Harness) -> None:
    """The current controller may have migrated the last block (bug `unfenced-producer-id-blocks`,
    as in Apache Kafka: tests/apache_kafka).
    """

    async def move(client: ZookeeperClient) -> None:
        await client.set(CONTROLLER_EPOCH, b"5")

    harness.znodes(move)
    answer = asked(
        harness,
        AllocateProducerIdsRequest(
            broker_id=2, broker_epoch=harness.brokers["broker-2"].broker_epoch
        ),
        "broker-1",
    )
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert data_of(harness, PRODUCER_ID_BLOCK) is None
    harness.until(lambda: harness.leader is not None)
    assert int(data_of(harness, CONTROLLER_EPOCH) or b"0") == 6


def test_leader_written_isr_is_read_before_an_election(harness: Harness) -> None:
    """Below 2.7-IV2 leaders write their ISR, and notify the controller only after a while."""
    make(harness, *SPREAD)

    async def write(client: ZookeeperClient) -> None:
        for number in range(3):
            data, stat = await client.get(state_path(TOPIC, number))
            state = PartitionStateZnode.parse(data or b"")
            isr = [each for each in state.isr if each != (3 if state.leader == 2 else 2)]
            shrunk = PartitionStateZnode(
                leader=state.leader, leader_epoch=0, isr=isr, controller_epoch=1
            )
            await client.set(state_path(TOPIC, number), shrunk.build(), stat.version)

    harness.znodes(write)
    harness.kill("broker-3")
    harness.until(lambda: bool(harness.emitted(BrokerLeft)))
    rest(harness, 3)
    assert [(state.leader in state.isr, 3 in state.isr) for state, _ in states(harness)] == [
        (True, False)
    ] * 3


def test_empty_quotas_leave_no_znodes(harness: Harness) -> None:
    """Nor does the user of a client without remaining quotas.

    Source: AdminZkClient.tryCleanQuotaNodes.
    """
    entity = [
        EntityData(entity_type="user", entity_name="ann"),
        EntityData(entity_type="client-id", entity_name="c"),
    ]
    for remove in (False, True):
        quota = QuotaAlteration(
            entity=entity, ops=[OpData(key="request_percentage", value=5.0, remove=remove)]
        )
        assert (
            asked(harness, AlterClientQuotasRequest(entries=[quota])).entries[0].error_code
            == ErrorCode.NONE
        )
        assert (data_of(harness, "/config/users/ann/clients/c") is None) is remove

    async def names(client: ZookeeperClient) -> list[str]:
        return (await client.children("/config/users"))[0]

    assert harness.znodes(names) == []

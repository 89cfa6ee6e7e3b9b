"""The group coordinator on brokers, in virtual time: its location, its durable state, and failover.

Source: kafka.coordinator.group.GroupCoordinator, GroupMetadataManager, KafkaApis.getCoordinator.
"""

import asyncio

import pytest

from kraftsim.groups.events import GroupsLoaded, GroupsUnloaded
from kraftsim.groups.rules_timing import partition_of
from protocol.errors import ErrorCode
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.k10_find_coordinator import TRANSACTION, FindCoordinatorRequest
from protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.k12_heartbeat import HeartbeatRequest
from protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.messages.k16_list_groups import ListGroupsRequest
from tests.node.brokers import Client, Cluster, running_cluster

GROUP = "g"
FEW = {
    "offsets_topic_num_partitions": "4",
    "broker_session_timeout_ms": "3000",
    "broker_heartbeat_interval_ms": "500",
}


async def coordinator_of(client: Client, group_id: str = GROUP) -> int:
    """Retry until there is one."""
    while True:
        answer = await client.ask(FindCoordinatorRequest(key=group_id), 3)
        if answer.error_code == ErrorCode.NONE:
            return int(answer.node_id)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(0.1)


def found(cluster: Cluster, broker: str = "broker-1") -> str:
    """The name of the group's coordinator."""
    return f"broker-{cluster.run(coordinator_of, broker)}"


async def commit(client: Client, offset: int) -> int:
    """Commit an offset of t-0 and return the error."""
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    answer = await client.ask(
        OffsetCommitRequest(
            group_id=GROUP, topics=[OffsetCommitRequestTopic(name="t", partitions=[row])]
        ),
        8,
    )
    return int(answer.topics[0].partitions[0].error_code)


async def commit_patiently(client: Client, offset: int) -> None:
    """Commit once the coordinator has loaded the group."""
    while error := await commit(client, offset):
        assert error in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        await asyncio.sleep(0.1)


async def committed(client: Client) -> int:
    """Return the committed offset of t-0, once the coordinator has loaded the group."""
    request = OffsetFetchRequest(
        group_id=GROUP, topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    )
    while (answer := await client.ask(request, 7)).error_code:
        assert answer.error_code in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )
        await asyncio.sleep(0.1)
    return int(answer.topics[0].partitions[0].committed_offset)


def test_find_coordinator_creates_the_offsets_topic() -> None:
    with running_cluster(1, offsets_topic_replication_factor="1", settings=FEW) as cluster:
        assert cluster.brokers["broker-1"].image.topic("__consumer_offsets") is None
        assert found(cluster) == "broker-1"
        topic = cluster.brokers["broker-1"].image.topic("__consumer_offsets")
        assert topic is not None
        assert len(topic.partitions) == 4
        configs = cluster.brokers["broker-1"].image.topic_configs("__consumer_offsets")
        assert configs == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }
        assert len(cluster.emitted(GroupsLoaded)) == 4


def test_without_enough_brokers_there_is_no_coordinator() -> None:
    """offsets.topic.replication.factor defaults to 3."""
    with running_cluster(1, settings=FEW) as cluster:

        async def ask(client: Client) -> list[int]:
            codes = []
            for key_type in (0, TRANSACTION):
                for _ in range(5):
                    codes.append(
                        (
                            await client.ask(
                                FindCoordinatorRequest(key=GROUP, key_type=key_type), 3
                            )
                        ).error_code
                    )
                    await asyncio.sleep(0.5)
            return codes

        assert set(cluster.run(ask)) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize("power_loss", [False, True])
def test_committed_offsets_survive_the_loss_of_their_coordinator(power_loss: bool) -> None:
    with running_cluster(3, offsets_topic_replication_factor="3", settings=FEW) as cluster:
        cluster.run(lambda client: client.create_topic("t"))
        first = found(cluster)
        cluster.run(lambda client: commit_patiently(client, 5), first)
        others = [name for name in cluster.broker_names if name != first]
        cluster.kill(first, power_loss=power_loss)
        cluster.simulation.run_for(8)
        second = found(cluster, others[0])
        assert second != first
        assert cluster.run(committed, second) == 5
        cluster.run(lambda client: commit_patiently(client, 6), second)
        assert cluster.run(committed, second) == 6


def test_former_leader_redirects_group_members() -> None:
    with running_cluster(3, offsets_topic_replication_factor="3", settings=FEW) as cluster:
        cluster.run(lambda client: client.create_topic("t"))
        first = found(cluster)
        cluster.run(lambda client: commit_patiently(client, 5), first)
        number = partition_of(GROUP, 4)
        cluster.stop(first)
        assert number in [event.partition for event in cluster.emitted(GroupsUnloaded, first)], (
            "a controlled shutdown moves groups first"
        )
        other = next(name for name in cluster.broker_names if name != first)
        assert cluster.run(committed, found(cluster, other)) == 5


def test_coordinator_reloads_its_groups_after_a_restart() -> None:
    with running_cluster(
        1, offsets_topic_replication_factor="1", group_initial_rebalance_delay_ms="0", settings=FEW
    ) as cluster:
        cluster.run(lambda client: client.create_topic("t"))
        found(cluster)

        async def live(client: Client) -> str:
            await commit_patiently(client, 5)
            protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
            asked = JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=30_000,
                member_id="",
                protocol_type="consumer",
                protocols=protocols,
            )
            joined = await client.ask(asked, 3)
            assert joined.error_code == 0
            shares = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"share")]
            synced = await client.ask(
                SyncGroupRequest(
                    group_id=GROUP, generation_id=1, member_id=joined.member_id, assignments=shares
                ),
                3,
            )
            assert (synced.error_code, bytes(synced.assignment)) == (0, b"share")
            return str(joined.member_id)

        member_id = cluster.run(live)
        cluster.kill("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")

        async def look(client: Client) -> tuple[int, int, list[tuple[str, str]]]:
            offset = await committed(client)
            beat = await client.ask(
                HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id), 3
            )
            listed = await client.ask(ListGroupsRequest(), 4)
            return (
                offset,
                beat.error_code,
                [(group.group_id, group.group_state) for group in listed.groups],
            )

        assert cluster.run(look) == (5, 0, [(GROUP, "Stable")])

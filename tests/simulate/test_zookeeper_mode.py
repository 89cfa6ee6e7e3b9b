"""Brokers whose metadata is in ZooKeeper, through everything that can go wrong with it, and on their way to KRaft.

Source: kafka.server.KafkaServer (2.7 to 3.9), KIP-866; asked of Apache Kafka 3.9.1 where the tests of interoperation do the same.
"""

import asyncio

import pytest

from kraftsim.events.nodes import NodeFailed
from kraftsim.events.producer_ids import ProducerIdBlockReceived
from kraftsim.events.zookeeper_mode import BrokerSessionBegan, BrokerSessionLost, ZnodeNotUnderstood
from kraftsim.node.outbound import PeerConnection
from kraftsim.node.zookeeper.client import ZookeeperClient
from kraftsim.node.zookeeper_mode.isr_znodes import IsrZnodes
from protocol.disk.meta_properties import parse_meta_properties
from protocol.messages.k20_delete_topics import DeleteTopicsRequest
from protocol.zookeeper.kafka_znodes import BrokerZnode, broker_path, build_config_change, config_path
from protocol.zookeeper.op_codes import CreateMode
from tests.simulate.zookeeper_clusters import PARTITIONS, TOPIC, Story

MIGRATION_OFF = {"zookeeper.connect": "", "zookeeper.metadata.migration.enable": "false"}


@pytest.mark.parametrize("release", ["2.8", "3.9"])
def test_a_controller_that_dies_is_replaced_and_nothing_is_lost(release: str) -> None:
    """The session of a killed broker ends, its znodes go, another broker is the controller; the killed one comes back under another epoch."""

    async def play(story: Story) -> None:
        await story.ready()
        await story.topic()
        await story.produce("before")
        former, epoch = story.cluster.leader, story.mode("broker-1").broker_epoch
        assert former is not None
        story.kill(former)
        await story.produce("meanwhile")
        assert story.cluster.leader not in (None, former)
        story.start(former)
        await story.in_sync()
        assert story.mode(former).broker_epoch > epoch, "its epoch is the number of the change that made its znode"
        assert len(await story.read()) == 120
        ids = await story.producer_ids(12)
        assert len(set(ids)) == 12

    Story(release=release).play(play)


def test_a_minute_without_zookeeper_is_one_without_changes_only() -> None:
    """Leaders go on leading; sessions outlive a server that is down, for its clock of them stands still."""

    async def play(story: Story) -> None:
        await story.ready()
        await story.topic()
        await story.produce("before", 30)
        story.kill("zookeeper-1")
        await story.produce("without", 30)
        await asyncio.sleep(60)
        story.start("zookeeper-1")
        await asyncio.sleep(5)
        await story.in_sync()
        await story.produce("after", 30)
        assert len(await story.read()) == 90

    Story().play(play)


def test_a_broker_whose_session_ends_is_there_again_in_another_one() -> None:
    """Cut off for longer than zookeeper.session.timeout.ms: its znode goes, and comes back under a later epoch. Its partitions stay as they are."""

    async def play(story: Story) -> None:
        await story.ready()
        await story.topic()
        await story.produce("before", 30)
        name = next(each for each in story.spec.broker_names if each != story.cluster.leader)
        first = story.mode(name).broker_epoch
        bite = story.part(name, "zookeeper-1")
        await asyncio.sleep(15)
        story.join(name, "zookeeper-1", bite)
        await asyncio.sleep(10)
        await story.in_sync()
        assert story.mode(name).broker_epoch > first
        await story.produce("after", 30)
        assert len(await story.read()) == 60
        own = [type(event) for node, event in story.noted if node == name and isinstance(event, BrokerSessionBegan | BrokerSessionLost)]
        assert own == [BrokerSessionBegan, BrokerSessionLost, BrokerSessionBegan]

    Story().play(play)


def test_a_broker_that_waits_for_its_id_goes_on_in_the_next_session() -> None:
    async def play(story: Story) -> None:
        await story.ready()
        story.kill("broker-2")
        story.start("broker-2")
        await asyncio.sleep(1)
        bite = story.part("broker-2", "zookeeper-1")
        await asyncio.sleep(40)
        story.join("broker-2", "zookeeper-1", bite)
        async with asyncio.timeout(30):
            await story.ready()

    Story().play(play)


def test_two_brokers_cannot_have_one_id() -> None:
    """NODE_EXISTS: whoever comes second goes down with one line that says who has it, unless it is told to wait."""

    async def play(story: Story) -> None:
        await story.ready()
        story.kill("broker-2")
        story.cluster.hosts["broker-2"].told["kraftsim.registration.wait.ms"] = "0"
        story.start("broker-2")
        await asyncio.sleep(2)
        (refused,) = [event.reason for node, event in story.noted if node == "broker-2" and isinstance(event, NodeFailed)]
        assert "broker.id: /brokers/ids/2 exists already and its owner" in refused
        assert "\n" not in refused
        await asyncio.sleep(10)
        story.start("broker-2")
        await story.ready()

    Story().play(play)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"kraftsim.cluster.id": "AAAAAAAAAAAAAAAAAAAAAA"}, "ZooKeeper belongs to cluster"),
        ({"zookeeper.connect": "zookeeper-1:1", "zookeeper.connection.timeout.ms": "2000"}, "let this broker in within 2000 ms"),
    ],
)
def test_a_broker_of_another_cluster_or_without_zookeeper_does_not_come_up(settings: dict[str, str], why: str) -> None:
    """InconsistentClusterIdException; ZooKeeperClientTimeoutException."""

    async def play(story: Story) -> str:
        await story.ready()
        await story.stop("broker-3")
        story.cluster.hosts["broker-3"].told.update(settings)
        story.start("broker-3")
        await asyncio.sleep(5)
        return next(event.reason for node, event in story.noted if node == "broker-3" and isinstance(event, NodeFailed))

    refused = Story().play(play)
    assert why in refused
    assert "\n" not in refused


def test_what_znodes_configure_holds_and_a_corrupted_one_is_told_and_changes_nothing() -> None:
    """/config/changes: a text that is no JSON leaves what was known before."""

    async def play(story: Story) -> None:
        await story.ready()
        await story.topic()

        async def set_config(text: bytes) -> None:
            async def by_hand(client: ZookeeperClient) -> None:
                await client.set(config_path("topics", TOPIC), text)
                await client.create("/config/changes/config_change_", build_config_change(f"topics/{TOPIC}"), CreateMode.PERSISTENT_SEQUENTIAL)

            await story.with_zookeeper(by_hand)
            await asyncio.sleep(1)

        await set_config(b'{"version":1,"config":{"retention.ms":"1000"}}')
        assert [dict(story.broker(name).image.topic_configs(TOPIC)) for name in story.spec.broker_names] == [{"retention.ms": "1000"}] * 3
        await set_config(b'{"version":1,"conf')
        assert [dict(story.broker(name).image.topic_configs(TOPIC)) for name in story.spec.broker_names] == [{"retention.ms": "1000"}] * 3
        said = [(node, event.path) for node, event in story.noted if isinstance(event, ZnodeNotUnderstood)]
        assert sorted(said) == [(name, f"/config/topics/{TOPIC}") for name in story.spec.broker_names]
        await set_config(b'{"version":1,"config":{}}')
        assert dict(story.broker("broker-1").image.topic_configs(TOPIC)) == {}

    Story().play(play)


@pytest.mark.parametrize(
    ("version", "by_znode", "features", "ids_in_zookeeper"), [("2.7-IV1", True, 5, True), ("2.6", True, 4, True), ("3.9", False, 5, False)]
)
def test_the_protocol_between_brokers_decides_how_they_do_things(
    version: str, by_znode: bool, features: int, ids_in_zookeeper: bool, figures
) -> None:
    """By inter.broker.protocol.version: replicas in sync by znode below 2.7-IV2, features in the znode since 2.7-IV0, blocks by RPC since 3.0-IV0."""

    async def play(story: Story) -> None:
        await story.ready()
        await story.topic()
        await story.produce("one", 30)
        victim = next(each for each in story.spec.broker_names if each != story.cluster.leader)
        story.kill(victim)
        await story.produce("two", 30)
        story.start(victim)
        await story.in_sync()
        assert len(await story.read()) == 60
        data, stat = await story.with_zookeeper(lambda client: client.get(broker_path(1)))
        znode = BrokerZnode.parse(data or b"")
        assert (znode.version, stat.version, stat.czxid) == (features, 1, story.mode("broker-1").broker_epoch)
        assert isinstance(story.broker("broker-1").replication._changes, IsrZnodes) == by_znode
        asked = [event for _, event in story.noted if isinstance(event, ProducerIdBlockReceived)]
        assert asked
        assert story.mode("broker-1").protocol.allocates_producer_ids != ids_in_zookeeper

    Story(settings={"inter.broker.protocol.version": version}).play(play)
    figures(**{f"asks_zookeeper_{version}".replace(".", "_").replace("-", "_"): ids_in_zookeeper})


def test_a_topic_that_is_deleted_leaves_no_files() -> None:
    """StopReplica with deletion, UpdateMetadata with a leader of -2; a topic of the same name begins anew."""

    async def play(story: Story) -> None:
        await story.ready()
        await story.topic()
        await story.produce("old", 30)

        async def delete() -> None:
            for host, port in story.cluster.addresses:
                connection = PeerConnection(host, port, client_id="admin", world=story.simulation.world_of(story.host), request_timeout_ms=10_000)
                await connection.connect(timeout_ms=5000)
                await connection.request(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=5000), api_version=5)
                connection.close()

        await story.simulation.spawn(story.host, delete())
        await asyncio.sleep(5)
        left = [path for path in story.cluster.segment_files() if f"/{TOPIC}-" in path]
        assert left == []
        assert [story.broker(name).image.topic(TOPIC) for name in story.spec.broker_names] == [None] * 3
        await story.topic()
        await story.produce("new", 30)
        assert [value for value in await story.read() if value.startswith("old")] == []

    Story().play(play)


def test_a_cluster_goes_to_kraft_and_one_of_its_brokers_back_and_forth() -> None:
    """KIP-866: migrating brokers are registered twice; a broker of KRaft may go back as long as the migration is not over. No id comes twice."""

    async def play(story: Story) -> None:
        await story.ready()
        await story.topic()
        await story.produce("zookeeper", 30)
        ids = await story.producer_ids(6)
        migrating = story.spec.migrating_settings(host_is_name=True)
        for name in story.spec.broker_names:
            await story.restart_with(name, migrating)
        await asyncio.sleep(5)
        assert [story.mode(name).received.is_kraft_controller for name in story.spec.broker_names] == [True] * 3
        assert story.broker("broker-1").offer.is_migration_ready
        meta = parse_meta_properties(bytes(story.cluster.hosts["broker-1"].platter.names["meta.properties"].cache))
        assert (meta.version, meta.node_id, meta.directory_id is not None) == (0, 1, True)
        await story.produce("migrating", 30)
        ids += await story.producer_ids(6)
        kraft = {**story.spec.kraft_settings("broker-1", host_is_name=True), **MIGRATION_OFF}
        back = {"process.roles": "", "zookeeper.connect": "zookeeper-1:9492", **migrating}
        for settings in (kraft, back, kraft):
            await story.restart_with("broker-1", settings)
            await story.produce("on the way", 10)
            ids += await story.producer_ids(3)
        for name in ("broker-2", "broker-3"):
            await story.restart_with(name, {**story.spec.kraft_settings(name, host_is_name=True), **MIGRATION_OFF})
        await story.produce("kraft", 30)
        ids += await story.producer_ids(6)
        assert len(set(ids)) == len(ids)
        assert len(await story.read()) == 120
        assert [story.broker(name).zookeeper for name in story.spec.broker_names] == [None] * 3
        assert all(len(story.broker("broker-1").image.topic(TOPIC).partitions) == PARTITIONS for _ in (1,))  # type: ignore[union-attr]

    Story(controllers=1).play(play)

"""Brokers in ZooKeeper mode, through all failures of ZooKeeper, and during their migration to
KRaft.

Source: kafka.server.KafkaServer (2.7 to 3.9), KIP-866; verified with Apache Kafka 3.9.1 where the
interoperability tests do the same.
"""

import asyncio
from collections.abc import Callable

import pytest

from kraftsim.producer_ids.events import ProducerIdBlockReceived
from kraftsim.server.events import NodeFailed
from kraftsim.server.outbound import PeerConnection
from kraftsim.zookeeper.client import ZookeeperClient
from kraftsim.zookeeper.events import BrokerSessionBegan, BrokerSessionLost, ZnodeNotUnderstood
from kraftsim.zookeeper.isr_znodes import IsrZnodes
from protocol.messages.k20_delete_topics import DeleteTopicsRequest
from protocol.storage.text_files import parse_meta_properties
from protocol.zookeeper.kafka_znodes import (
    BrokerZnode,
    broker_path,
    build_config_change,
    config_path,
)
from protocol.zookeeper.op_codes import CreateMode
from tests.simulate.zookeeper_clusters import PARTITIONS, TOPIC, ZooKeeperHarness

MIGRATION_OFF = {"zookeeper.connect": "", "zookeeper.metadata.migration.enable": "false"}


@pytest.mark.parametrize("release", ["2.8", "3.9"])
def test_dead_controller_is_replaced_and_nothing_is_lost(release: str) -> None:
    """The session of a killed broker expires, its znodes are deleted, another broker becomes
    controller; the killed one returns with another epoch.
    """

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        await harness.topic()
        await harness.produce("before")
        former, epoch = harness.cluster.leader, harness.mode("broker-1").broker_epoch
        assert former is not None
        harness.kill(former)
        await harness.produce("meanwhile")
        assert harness.cluster.leader not in (None, former)
        harness.start(former)
        await harness.in_sync()
        assert harness.mode(former).broker_epoch > epoch, (
            "its epoch is the zxid of the change that created its znode"
        )
        assert len(await harness.read()) == 120
        ids = await harness.producer_ids(12)
        assert len(set(ids)) == 12

    ZooKeeperHarness(release=release).run(run)


def test_minute_without_zookeeper_only_blocks_changes() -> None:
    """Leaders remain leaders; sessions outlive a server that is down, because its session clock
    stops.
    """

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        await harness.topic()
        await harness.produce("before", 30)
        harness.kill("zookeeper-1")
        await harness.produce("without", 30)
        await asyncio.sleep(60)
        harness.start("zookeeper-1")
        await asyncio.sleep(5)
        await harness.in_sync()
        await harness.produce("after", 30)
        assert len(await harness.read()) == 90

    ZooKeeperHarness().run(run)


def test_broker_with_an_expired_session_re_registers_in_a_new_one() -> None:
    """Partitioned for longer than zookeeper.session.timeout.ms: its znode is deleted, and created
    again with a later epoch. Its partitions are unchanged.
    """

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        await harness.topic()
        await harness.produce("before", 30)
        name = next(each for each in harness.spec.broker_names if each != harness.cluster.leader)
        first = harness.mode(name).broker_epoch
        record_effect = harness.part(name, "zookeeper-1")
        await asyncio.sleep(15)
        harness.join(name, "zookeeper-1", record_effect)
        await asyncio.sleep(10)
        await harness.in_sync()
        assert harness.mode(name).broker_epoch > first
        await harness.produce("after", 30)
        assert len(await harness.read()) == 60
        own = [
            type(event)
            for node, event in harness.emitted
            if node == name and isinstance(event, BrokerSessionBegan | BrokerSessionLost)
        ]
        assert own == [BrokerSessionBegan, BrokerSessionLost, BrokerSessionBegan]

    ZooKeeperHarness().run(run)


def test_broker_waiting_for_its_id_continues_in_the_next_session() -> None:
    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        harness.kill("broker-2")
        harness.start("broker-2")
        await asyncio.sleep(1)
        record_effect = harness.part("broker-2", "zookeeper-1")
        await asyncio.sleep(40)
        harness.join("broker-2", "zookeeper-1", record_effect)
        async with asyncio.timeout(30):
            await harness.ready()

    ZooKeeperHarness().run(run)


def test_two_brokers_cannot_have_one_id() -> None:
    """NODE_EXISTS: the second one stops with one line that names the owner, unless it is configured
    to wait.
    """

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        harness.kill("broker-2")
        harness.cluster.hosts["broker-2"].overrides["kraftsim.registration.wait.ms"] = "0"
        harness.start("broker-2")
        await asyncio.sleep(2)
        (refused,) = [
            event.reason
            for node, event in harness.emitted
            if node == "broker-2" and isinstance(event, NodeFailed)
        ]
        assert "broker.id: /brokers/ids/2 exists already and its owner" in refused
        assert "\n" not in refused
        await asyncio.sleep(10)
        harness.start("broker-2")
        await harness.ready()

    ZooKeeperHarness().run(run)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"kraftsim.cluster.id": "AAAAAAAAAAAAAAAAAAAAAA"}, "ZooKeeper belongs to cluster"),
        (
            {"zookeeper.connect": "zookeeper-1:1", "zookeeper.connection.timeout.ms": "2000"},
            "accepted this broker within 2000 ms",
        ),
    ],
)
def test_broker_of_another_cluster_or_without_zookeeper_does_not_start(
    settings: dict[str, str], why: str
) -> None:
    """InconsistentClusterIdException; ZooKeeperClientTimeoutException."""

    async def run(harness: ZooKeeperHarness) -> str:
        await harness.ready()
        await harness.stop("broker-3")
        harness.cluster.hosts["broker-3"].overrides.update(settings)
        harness.start("broker-3")
        await asyncio.sleep(5)
        return next(
            event.reason
            for node, event in harness.emitted
            if node == "broker-3" and isinstance(event, NodeFailed)
        )

    refused = ZooKeeperHarness().run(run)
    assert why in refused
    assert "\n" not in refused


def test_znode_configs_apply_and_a_corrupted_one_is_reported_and_ignored() -> None:
    """/config/changes: text that is not JSON leaves the former config."""

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        await harness.topic()

        async def set_config(text: bytes) -> None:
            async def by_hand(client: ZookeeperClient) -> None:
                await client.set(config_path("topics", TOPIC), text)
                await client.create(
                    "/config/changes/config_change_",
                    build_config_change(f"topics/{TOPIC}"),
                    CreateMode.PERSISTENT_SEQUENTIAL,
                )

            await harness.with_zookeeper(by_hand)
            await asyncio.sleep(1)

        await set_config(b'{"version":1,"config":{"retention.ms":"1000"}}')
        assert [
            dict(harness.broker(name).image.topic_configs(TOPIC))
            for name in harness.spec.broker_names
        ] == [{"retention.ms": "1000"}] * 3
        await set_config(b'{"version":1,"conf')
        assert [
            dict(harness.broker(name).image.topic_configs(TOPIC))
            for name in harness.spec.broker_names
        ] == [{"retention.ms": "1000"}] * 3
        said = [
            (node, event.path)
            for node, event in harness.emitted
            if isinstance(event, ZnodeNotUnderstood)
        ]
        assert sorted(said) == [
            (name, f"/config/topics/{TOPIC}") for name in harness.spec.broker_names
        ]
        await set_config(b'{"version":1,"config":{}}')
        assert dict(harness.broker("broker-1").image.topic_configs(TOPIC)) == {}

    ZooKeeperHarness().run(run)


@pytest.mark.parametrize(
    ("version", "by_znode", "features", "ids_in_zookeeper"),
    [("2.7-IV1", True, 5, True), ("2.6", True, 4, True), ("3.9", False, 5, False)],
)
def test_inter_broker_protocol_decides_the_behaviour(
    version: str,
    by_znode: bool,
    features: int,
    ids_in_zookeeper: bool,
    figures: Callable[..., None],
) -> None:
    """By inter.broker.protocol.version: ISR by znode below 2.7-IV2, features in the znode since
    2.7-IV0, blocks by RPC since 3.0-IV0.
    """

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        await harness.topic()
        await harness.produce("one", 30)
        victim = next(each for each in harness.spec.broker_names if each != harness.cluster.leader)
        harness.kill(victim)
        await harness.produce("two", 30)
        harness.start(victim)
        await harness.in_sync()
        assert len(await harness.read()) == 60
        data, stat = await harness.with_zookeeper(lambda client: client.get(broker_path(1)))
        znode = BrokerZnode.parse(data or b"")
        assert (znode.version, stat.version, stat.czxid) == (
            features,
            1,
            harness.mode("broker-1").broker_epoch,
        )
        assert isinstance(harness.broker("broker-1").replication._changes, IsrZnodes) == by_znode
        asked = [
            event for _, event in harness.emitted if isinstance(event, ProducerIdBlockReceived)
        ]
        assert asked
        assert harness.mode("broker-1").protocol.allocates_producer_ids != ids_in_zookeeper

    ZooKeeperHarness(settings={"inter.broker.protocol.version": version}).run(run)
    figures(**{f"asks_zookeeper_{version}".replace(".", "_").replace("-", "_"): ids_in_zookeeper})


def test_deleted_topic_leaves_no_files() -> None:
    """StopReplica with deletion, UpdateMetadata with a leader of -2; a topic of the same name
    starts empty.
    """

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        await harness.topic()
        await harness.produce("old", 30)

        async def delete() -> None:
            for host, port in harness.cluster.addresses:
                connection = PeerConnection(
                    host,
                    port,
                    client_id="admin",
                    world=harness.simulation.world_of(harness.host),
                    request_timeout_ms=10_000,
                )
                await connection.connect(timeout_ms=5000)
                await connection.request(
                    DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=5000), api_version=5
                )
                connection.close()

        await harness.simulation.spawn(harness.host, delete())
        await asyncio.sleep(5)
        left = [path for path in harness.cluster.segment_files() if f"/{TOPIC}-" in path]
        assert left == []
        assert [harness.broker(name).image.topic(TOPIC) for name in harness.spec.broker_names] == [
            None
        ] * 3
        await harness.topic()
        await harness.produce("new", 30)
        assert [value for value in await harness.read() if value.startswith("old")] == []

    ZooKeeperHarness().run(run)


def test_cluster_migrates_and_one_broker_goes_back_and_forth() -> None:
    """KIP-866: migrating brokers are registered twice; a KRaft broker may go back until the
    migration is finalized. No producer id is allocated twice.
    """

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        await harness.topic()
        await harness.produce("zookeeper", 30)
        ids = await harness.producer_ids(6)
        migrating = harness.spec.migrating_settings(host_is_name=True)
        for name in harness.spec.broker_names:
            await harness.restart_with(name, migrating)
        await asyncio.sleep(5)
        assert [
            harness.mode(name).received.is_kraft_controller for name in harness.spec.broker_names
        ] == [True] * 3
        assert harness.broker("broker-1").offer.is_migration_ready
        meta = parse_meta_properties(
            bytes(harness.cluster.hosts["broker-1"].durable.names["meta.properties"].cache)
        )
        assert (meta.version, meta.node_id, meta.directory_id is not None) == (0, 1, True)
        await harness.produce("migrating", 30)
        ids += await harness.producer_ids(6)
        kraft = {**harness.spec.kraft_settings("broker-1", host_is_name=True), **MIGRATION_OFF}
        back = {"process.roles": "", "zookeeper.connect": "zookeeper-1:9492", **migrating}
        for settings in (kraft, back, kraft):
            await harness.restart_with("broker-1", settings)
            await harness.produce("on the way", 10)
            ids += await harness.producer_ids(3)
        for name in ("broker-2", "broker-3"):
            await harness.restart_with(
                name, {**harness.spec.kraft_settings(name, host_is_name=True), **MIGRATION_OFF}
            )
        await harness.produce("kraft", 30)
        ids += await harness.producer_ids(6)
        assert len(set(ids)) == len(ids)
        assert len(await harness.read()) == 120
        assert [harness.broker(name).zookeeper for name in harness.spec.broker_names] == [None] * 3
        topic = harness.broker("broker-1").image.topic(TOPIC)
        assert topic is not None and len(topic.partitions) == PARTITIONS

    ZooKeeperHarness(controllers=1).run(run)

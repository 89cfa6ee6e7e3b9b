"""Invalid upgrades: a node that restarts with an unsupported release or level is rejected with one
line, the others continue, and nothing is lost.

docs/upgrades.md has the behaviour of Apache Kafka in each case, verified with 3.9.1 and 4.0.2.
"""

import asyncio
from collections.abc import Mapping

import pytest

from kraftsim.cluster.administration import update_features
from kraftsim.cluster.launch import parts_of
from kraftsim.metadata.events import BrokerRegistrationRefused
from kraftsim.metadata.rules_versions import FEATURE
from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.events import NodeFailed
from kraftsim.server.events_connections import RequestRefused
from kraftsim.world.simulated.inode import Inode
from protocol.errors import ErrorCode
from protocol.metadata.registry import build_record
from protocol.metadata.settings import FeatureLevelRecord
from protocol.storage.metadata_snapshot import build_metadata_snapshot
from tests.simulate.zookeeper_clusters import ZooKeeperHarness

RELEASE, VERSION = "kraftsim.release", "inter.broker.protocol.version"
FORMER, FORMER_LEVEL, LOWEST_LEVEL_OF_4_0 = "3.5", 4, 7
BROKER, CONTROLLER = "broker-2", "controller-103"
REFUSED_AFTER_S = 10.0
SNAPSHOT_S = 10.0
"""The time within which every controller has written a snapshot."""


KRAFT = {
    "process.roles": "broker",
    "node.id": "2",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.quorum.voters": "101@127.0.0.1:9192",
    "controller.listener.names": "CONTROLLER",
}


def last_words(harness: ZooKeeperHarness, name: str) -> str:
    """The reason for which a node stopped."""
    reasons = [
        event.reason
        for node, event in harness.emitted
        if node == name and isinstance(event, NodeFailed)
    ]
    assert reasons and "\n" not in reasons[-1], f"{name} has not failed"
    return reasons[-1]


async def fails_to_return(
    harness: ZooKeeperHarness, name: str, settings: Mapping[str, str]
) -> None:
    """Restart a node that is rejected or stays fenced: wait until nothing more can happen."""
    await harness.stop(name)
    harness.cluster.hosts[name].overrides.update(settings)
    harness.start(name)
    await asyncio.sleep(REFUSED_AFTER_S)


async def recovers(harness: ZooKeeperHarness, name: str, settings: Mapping[str, str]) -> None:
    """Restart a node with its former settings, and wait until all replicas are in sync."""
    if harness.cluster.hosts[name].is_alive:
        await harness.stop(name)
    for key in settings:
        del harness.cluster.hosts[name].overrides[key]
    harness.start(name)
    await asyncio.sleep(1)
    await harness.ready()
    await harness.in_sync()


@pytest.mark.parametrize(
    ("line", "version", "why"),
    [
        (
            "3.9",
            "2.8",
            (
                "A non-KRaft version 2.8 given for inter.broker.protocol.version. The minimum "
                "version is 3.0-IV1"
            ),
        ),
        (
            "3.9",
            "9.9",
            (
                "Invalid value 9.9 for configuration inter.broker.protocol.version: Version 9.9 is "
                "not a valid version"
            ),
        ),
        ("3.3", "3.9", "Version 3.9 is not a valid version in 3.3.2"),
        ("3.9", "3.0", None),
        ("4.0", "2.8", None),
    ],
)
def test_kraft_node_rejects_a_pre_kraft_protocol_version_where_it_is_checked(
    line: str, version: str, why: str | None
) -> None:
    """Verified with Apache Kafka 3.9.1 and 4.0.2: the former does not start, the latter no longer
    has the setting.
    """
    properties = {**KRAFT, RELEASE: line, VERSION: version}
    if why is None:
        parts_of(NodeConfig.parse(properties))
        return
    with pytest.raises(ConfigError) as refused:
        parts_of(NodeConfig.parse(properties))
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({RELEASE: "4.0"}, "4.0 has no ZooKeeper mode"),
        ({RELEASE: "4.4", VERSION: "2.8"}, "4.4 has no ZooKeeper mode"),
        ({VERSION: "3.9"}, "Version 3.9 is not a valid version in 2.8.2"),
        ({VERSION: "2.9"}, "version 2.9 is not a valid version"),
        ({RELEASE: "3.9", VERSION: "newest"}, "version newest is not a valid version"),
    ],
)
def test_broker_with_an_unsupported_upgrade_does_not_start(
    settings: Mapping[str, str], why: str
) -> None:
    """From ZooKeeper straight to 4.0, and levels that the release does not support; the other
    broker continues with the common version.
    """
    harness = ZooKeeperHarness(brokers=2, release="2.8", settings={"min.insync.replicas": "1"})

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        await harness.topic()
        await harness.produce("before", 15)
        ids = await harness.producer_ids(2)
        await fails_to_return(harness, BROKER, settings)
        assert not harness.cluster.hosts[BROKER].is_alive and why in last_words(harness, BROKER)
        await harness.produce("meanwhile", 15)
        await recovers(harness, BROKER, settings)
        ids += await harness.producer_ids(2)
        assert len(set(ids)) == 4 and len(await harness.read()) == 30

    harness.run(run)


def test_upgrade_over_the_minimum_level_is_rejected_until_it_is_raised() -> None:
    """4.0 reads no log that has a level below 3.3-IV3 behind its last snapshot: its controller
    ends, and its broker is not registered.

    Once the level is upgraded and a snapshot is written, both start, though bootstrap.checkpoint is
    unchanged (KAFKA-19192).
    """
    settings = {"min.insync.replicas": "1", "metadata.log.max.snapshot.interval.ms": "3000"}
    harness = ZooKeeperHarness(
        zookeeper=False, controllers=3, brokers=2, release=FORMER, settings=settings
    )
    level = build_record(FeatureLevelRecord(name=FEATURE, feature_level=FORMER_LEVEL), 0)
    for name in harness.spec.controller_names:
        harness.cluster.hosts[name].durable.names["bootstrap.checkpoint"] = Inode(
            build_metadata_snapshot([level], timestamp=0)
        )
    leap = {RELEASE: "4.0"}

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        await harness.topic()
        await harness.produce("before", 15)
        await fails_to_return(harness, CONTROLLER, leap)
        assert not harness.cluster.hosts[CONTROLLER].is_alive
        wanted = (
            f"{FEATURE} is finalized at level {FORMER_LEVEL}, and 4.0 knows 7 to 25: it cannot "
            "read this metadata log (upgrade the level"
        )
        assert wanted in last_words(harness, CONTROLLER)
        await recovers(harness, CONTROLLER, leap)
        await fails_to_return(harness, BROKER, leap)
        refused = [
            event for _, event in harness.emitted if isinstance(event, BrokerRegistrationRefused)
        ]
        assert {(each.broker_id, each.error_code) for each in refused} == {
            (2, ErrorCode.UNSUPPORTED_VERSION)
        }
        await harness.produce("meanwhile", 15)
        await recovers(harness, BROKER, leap)
        assert not await update_features(
            harness.cluster.addresses, {FEATURE: LOWEST_LEVEL_OF_4_0}, downwards=False
        )
        await asyncio.sleep(SNAPSHOT_S)
        for name in (BROKER, CONTROLLER):
            await harness.restart_with(name, leap)
        assert all(harness.cluster.hosts[name].is_alive for name in harness.spec.node_names)
        await harness.produce("afterwards", 15)
        assert len(await harness.read()) == 45

    harness.run(run)


def test_level_upgraded_before_all_binaries_excludes_the_old_ones() -> None:
    """The controller uses the versions of its level, and an old broker closes the connection at
    what it does not support; leaders remain, nothing is lost.
    """
    harness = ZooKeeperHarness(brokers=2, release="2.8", settings={"min.insync.replicas": "1"})

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        await harness.topic()
        await harness.produce("before", 15)
        await harness.stop("broker-1")
        harness.cluster.hosts["broker-1"].overrides.update({RELEASE: "3.9", VERSION: "3.9"})
        harness.start("broker-1")
        await harness.ready()
        await harness.in_sync()
        await harness.stop(BROKER)
        harness.start(BROKER)
        await asyncio.sleep(REFUSED_AFTER_S)
        assert harness.cluster.leader == "broker-1", "the other one was down"
        refused = {
            (node, event.reason)
            for node, event in harness.emitted
            if isinstance(event, RequestRefused)
        }
        assert refused == {(BROKER, "api key 6 is offered in versions 0 to 7, not 8")}, (
            "UpdateMetadata"
        )
        await harness.produce("meanwhile", 15)
        await harness.restart_with(BROKER, {RELEASE: "3.9", VERSION: "3.9"})
        await harness.produce("afterwards", 15)
        assert len(await harness.read()) == 45

    harness.run(run)

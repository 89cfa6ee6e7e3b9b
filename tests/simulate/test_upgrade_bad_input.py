"""Upgrades that cannot be: a node that comes back as what it must not be is refused with one line, the others serve on, and nothing is lost.

What Apache Kafka does about each of them is in docs/upgrades.md; asked of 3.9.1 and 4.0.2.
"""

import asyncio
from collections.abc import Mapping

import pytest

from kraftsim.cluster.features import update_features
from kraftsim.cluster.launch import parts_of
from kraftsim.core.metadata.metadata_level import FEATURE
from kraftsim.events.connections import RequestRefused
from kraftsim.events.metadata import BrokerRegistrationRefused
from kraftsim.events.nodes import NodeFailed
from kraftsim.node.config import NodeConfig
from kraftsim.node.config_keys import ConfigError
from kraftsim.world.simulated.inode import Inode
from protocol.disk.metadata_snapshot import build_metadata_snapshot
from protocol.errors import ErrorCode
from protocol.metadata.m12_feature_level import FeatureLevelRecord
from protocol.metadata.registry import build_record
from tests.simulate.zookeeper_clusters import Story

RELEASE, VERSION = "kraftsim.release", "inter.broker.protocol.version"
FORMER, FORMER_LEVEL, LOWEST_LEVEL_OF_4_0 = "3.5", 4, 7
BROKER, CONTROLLER = "broker-2", "controller-103"
REFUSED_AFTER_S = 10.0
SNAPSHOT_S = 10.0
"""Within which every controller has written a snapshot."""


KRAFT = {
    "process.roles": "broker",
    "node.id": "2",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.quorum.voters": "101@127.0.0.1:9192",
    "controller.listener.names": "CONTROLLER",
}


def last_words(story: Story, name: str) -> str:
    """What a node has gone down with."""
    reasons = [event.reason for node, event in story.noted if node == name and isinstance(event, NodeFailed)]
    assert reasons and "\n" not in reasons[-1], f"{name} has not failed"
    return reasons[-1]


async def comes_back(story: Story, name: str, told: Mapping[str, str]) -> None:
    """Restart a node that is refused, or is not let in: wait so long that nothing more comes of it."""
    await story.stop(name)
    story.cluster.hosts[name].told.update(told)
    story.start(name)
    await asyncio.sleep(REFUSED_AFTER_S)


async def is_itself_again(story: Story, name: str, told: Mapping[str, str]) -> None:
    """Restart a node with what it was told before, and wait until all replicas are in sync."""
    if story.cluster.hosts[name].is_alive:
        await story.stop(name)
    for key in told:
        del story.cluster.hosts[name].told[key]
    story.start(name)
    await asyncio.sleep(1)
    await story.ready()
    await story.in_sync()


@pytest.mark.parametrize(
    ("line", "version", "why"),
    [
        ("3.9", "2.8", "A non-KRaft version 2.8 given for inter.broker.protocol.version. The minimum version is 3.0-IV1"),
        ("3.9", "9.9", "Invalid value 9.9 for configuration inter.broker.protocol.version: Version 9.9 is not a valid version"),
        ("3.3", "3.9", "Version 3.9 is not a valid version in 3.3.2"),
        ("3.9", "3.0", None),
        ("4.0", "2.8", None),
    ],
)
def test_a_node_of_kraft_refuses_a_version_of_before_it_as_long_as_its_release_looks_at_it(line: str, version: str, why: str | None) -> None:
    """Asked of Apache Kafka 3.9.1 and 4.0.2: the one does not start, the other does not know the setting any more."""
    properties = {**KRAFT, RELEASE: line, VERSION: version}
    if why is None:
        parts_of(NodeConfig.parse(properties))
        return
    with pytest.raises(ConfigError) as refused:
        parts_of(NodeConfig.parse(properties))
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({RELEASE: "4.0"}, "4.0 has no ZooKeeper mode"),
        ({RELEASE: "4.4", VERSION: "2.8"}, "4.4 has no ZooKeeper mode"),
        ({VERSION: "3.9"}, "Version 3.9 is not a valid version in 2.8.2"),
        ({VERSION: "2.9"}, "version 2.9 is not a valid version"),
        ({RELEASE: "3.9", VERSION: "newest"}, "version newest is not a valid version"),
    ],
)
def test_a_broker_that_leaps_too_far_or_speaks_what_is_not_there_does_not_start(told: Mapping[str, str], why: str) -> None:
    """From ZooKeeper straight to 4.0, and levels that the release does not know; the other broker goes on with what both had."""
    story = Story(brokers=2, release="2.8", settings={"min.insync.replicas": "1"})

    async def play(story: Story) -> None:
        await story.ready()
        await story.topic()
        await story.produce("before", 15)
        ids = await story.producer_ids(2)
        await comes_back(story, BROKER, told)
        assert not story.cluster.hosts[BROKER].is_alive and why in last_words(story, BROKER)
        await story.produce("meanwhile", 15)
        await is_itself_again(story, BROKER, told)
        ids += await story.producer_ids(2)
        assert len(set(ids)) == 4 and len(await story.read()) == 30

    story.play(play)


def test_a_leap_over_the_lowest_level_of_a_release_is_refused_until_the_level_is_raised() -> None:
    """4.0 reads no log that has a level below 3.3-IV3 behind its last snapshot: its controller ends, and its broker is not registered.

    Once the level is raised and a snapshot has come, both are taken, though bootstrap.checkpoint says what it said (KAFKA-19192).
    """
    settings = {"min.insync.replicas": "1", "metadata.log.max.snapshot.interval.ms": "3000"}
    story = Story(zookeeper=False, controllers=3, brokers=2, release=FORMER, settings=settings)
    level = build_record(FeatureLevelRecord(name=FEATURE, feature_level=FORMER_LEVEL), 0)
    for name in story.spec.controller_names:
        story.cluster.hosts[name].platter.names["bootstrap.checkpoint"] = Inode(build_metadata_snapshot([level], timestamp=0))
    leap = {RELEASE: "4.0"}

    async def play(story: Story) -> None:
        await story.ready()
        await story.topic()
        await story.produce("before", 15)
        await comes_back(story, CONTROLLER, leap)
        assert not story.cluster.hosts[CONTROLLER].is_alive
        wanted = f"{FEATURE} is finalized at level {FORMER_LEVEL}, and 4.0 knows 7 to 25: it cannot read this metadata log (upgrade the level"
        assert wanted in last_words(story, CONTROLLER)
        await is_itself_again(story, CONTROLLER, leap)
        await comes_back(story, BROKER, leap)
        refused = [event for _, event in story.noted if isinstance(event, BrokerRegistrationRefused)]
        assert {(each.broker_id, each.error_code) for each in refused} == {(2, ErrorCode.UNSUPPORTED_VERSION)}
        await story.produce("meanwhile", 15)
        await is_itself_again(story, BROKER, leap)
        assert not await update_features(story.cluster.addresses, {FEATURE: LOWEST_LEVEL_OF_4_0}, downwards=False)
        await asyncio.sleep(SNAPSHOT_S)
        for name in (BROKER, CONTROLLER):
            await story.restart_with(name, leap)
        assert all(story.cluster.hosts[name].is_alive for name in story.spec.node_names)
        await story.produce("afterwards", 15)
        assert len(await story.read()) == 45

    story.play(play)


def test_a_level_that_is_raised_before_all_binaries_are_new_leaves_the_old_ones_out_until_they_are() -> None:
    """The controller speaks as its level says, and an old broker closes the connection at what it does not know; leaders lead on, nothing is lost."""
    story = Story(brokers=2, release="2.8", settings={"min.insync.replicas": "1"})

    async def play(story: Story) -> None:
        await story.ready()
        await story.topic()
        await story.produce("before", 15)
        await story.stop("broker-1")
        story.cluster.hosts["broker-1"].told.update({RELEASE: "3.9", VERSION: "3.9"})
        story.start("broker-1")
        await story.ready()
        await story.in_sync()
        await story.stop(BROKER)
        story.start(BROKER)
        await asyncio.sleep(REFUSED_AFTER_S)
        assert story.cluster.leader == "broker-1", "the other one was away"
        refused = {(node, event.reason) for node, event in story.noted if isinstance(event, RequestRefused)}
        assert refused == {(BROKER, "api key 6 is offered in versions 0 to 7, not 8")}, "UpdateMetadata"
        await story.produce("meanwhile", 15)
        await story.restart_with(BROKER, {RELEASE: "3.9", VERSION: "3.9"})
        await story.produce("afterwards", 15)
        assert len(await story.read()) == 45

    story.play(play)

"""What can be wrong when a cluster is to go from ZooKeeper to KRaft: it waits or is refused with one line, and nothing is lost.

What Apache Kafka does about each of them is in docs/upgrades.md; asked of 3.9.1 where its documentation does not say.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kraftsim.core.migration.states import DriverState
from kraftsim.core.zookeeper_mode.znode_writing import WriteKind, ZnodeOperation, ZnodeWrite
from kraftsim.events.metadata import BrokerRegistrationRefused
from kraftsim.events.migration import MigrationWaits
from kraftsim.events.nodes import NodeFailed
from kraftsim.node.controller.migration.migration import Migration
from kraftsim.node.zookeeper.client import ZookeeperClient
from kraftsim.node.zookeeper_mode.znode_writer import ControllerMoved
from protocol.errors import ErrorCode
from protocol.zookeeper.kafka_znodes import MIGRATION, PRODUCER_ID_BLOCK, TOPICS, MigrationZnode, config_path, topic_path
from tests.simulate.zookeeper_clusters import PARTITIONS, TOPIC, Story

PATIENCE_S = 120.0
LOOK_S = 0.2
CONTROLLER = "controller-101"


def waits(story: Story) -> list[str]:
    """What the drivers waited for, each reason once in a row."""
    reasons = [event.reason for _, event in story.noted if isinstance(event, MigrationWaits)]
    return [reason for place, reason in enumerate(reasons) if place == 0 or reasons[place - 1] != reason]


def failure_of(story: Story, name: str) -> str:
    """The last words of a node."""
    reasons = [event.reason for node, event in story.noted if node == name and isinstance(event, NodeFailed)]
    assert reasons, f"{name} has not failed"
    assert "\n" not in reasons[-1]
    return reasons[-1]


async def until(holds: Callable[[], object], what: str) -> None:
    """Wait for something."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(LOOK_S)
    except TimeoutError as late:
        raise AssertionError(f"not within {PATIENCE_S:g} s: {what}") from late


def migration(story: Story) -> Migration:
    """That of the controller that leads."""
    return next(each for name, each in story.cluster.migrations() if name == story.cluster.leader)


async def both_are_written(story: Story) -> None:
    """Wait for dual write, and for all to be in step."""
    await until(lambda: any(each.mirrored for _, each in story.cluster.migrations()), "both are written")
    await story.in_sync()


async def let_migrate(story: Story, *names: str, **settings: str) -> None:
    """Restart brokers so that they can be taken over."""
    told = {key.replace("_", "."): value for key, value in settings.items()}
    for name in names:
        await story.restart_with(name, {**story.spec.migrating_settings(host_is_name=True), **told})


def played(play: Callable[[Story], Awaitable[None]], *, brokers: int = 1, controllers: int = 1, release: str = "3.9") -> Story:
    """Play a story that begins with a topic that somebody has written to."""

    async def begun(story: Story) -> None:
        await story.ready()
        await story.topic()
        await story.produce("before", 15)
        await play(story)

    story = Story(controllers=controllers, brokers=brokers, release=release)
    story.play(begun)
    return story


def test_a_broker_without_the_setting_is_waited_for() -> None:
    """The driver stays in WAIT_FOR_BROKERS and names who is missing; the cluster goes on in ZooKeeper mode."""

    async def play(story: Story) -> None:
        await let_migrate(story, "broker-1")
        await until(lambda: waits(story) and waits(story)[-1] == "brokers 2 have not registered with KRaft", "it says who is missing")
        assert migration(story).driver.state is DriverState.WAIT_FOR_BROKERS
        await story.produce("meanwhile", 15)
        await let_migrate(story, "broker-2")
        await both_are_written(story)
        assert len(await story.read()) == 30

    played(play, brokers=2)


@pytest.mark.parametrize(
    ("release", "why"),
    [
        ("3.5", "Nodes don't enable `zookeeper.metadata.migration.enable`: [103]"),
        ("3.9", "Controller 103 has not enabled zookeeper.metadata.migration.enable"),
    ],
)
def test_a_controller_without_the_setting_is_waited_for(release: str, why: str) -> None:
    """Up to 3.6 by what it answers to ApiVersions, since 3.7 by its registration (KIP-919)."""

    async def play(story: Story) -> None:
        told = story.cluster.hosts["controller-103"].told
        await story.stop("controller-103")
        told.update({"zookeeper.connect": "", "zookeeper.metadata.migration.enable": "false"})
        story.start("controller-103")
        await asyncio.sleep(5)
        story.kill("controller-101")
        story.kill("controller-102")
        story.start("controller-101")
        story.start("controller-102")
        await until(lambda: waits(story) and why in waits(story)[-1], "it says who is missing")
        await let_migrate(story, "broker-1")
        await asyncio.sleep(5)
        assert migration(story).driver.state is DriverState.WAIT_FOR_CONTROLLER_QUORUM
        await story.stop("controller-103")
        told.clear()
        story.start("controller-103")
        await both_are_written(story)
        assert len(await story.read()) == 15

    played(play, controllers=3, release=release)


def test_a_broker_of_another_level_is_refused_and_serves_on(figures) -> None:
    """inter.broker.protocol.version must be the metadata.version of the quorum: UNSUPPORTED_VERSION, for as long as the broker asks."""

    async def play(story: Story) -> None:
        await let_migrate(story, "broker-1", inter_broker_protocol_version="3.8")
        await asyncio.sleep(20)
        refused = [event for _, event in story.noted if isinstance(event, BrokerRegistrationRefused)]
        assert {(each.broker_id, each.error_code) for each in refused} == {(1, ErrorCode.UNSUPPORTED_VERSION)}
        assert 2 <= len(refused) <= 12, "it asks again after a while that doubles"
        assert waits(story)[-1] == "no brokers are known to KRaft"
        await story.produce("meanwhile", 15)
        await let_migrate(story, "broker-1", inter_broker_protocol_version="3.9")
        await both_are_written(story)
        read = await story.read()
        assert len(read) == 30
        figures(refusals=len(refused), refusal=int(refused[0].error_code), records=len(read))

    played(play)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"version":1}', "version 1 is unknown"),
        (b"not ours", "/migration"),
        (MigrationZnode(kraft_controller_id=7, kraft_controller_epoch=3, kraft_metadata_offset=1, kraft_metadata_epoch=1).build(), "another quorum"),
    ],
)
def test_a_foreign_migration_znode_stops_it_until_it_is_gone(text: bytes, why: str) -> None:
    """A text that cannot be read, and one that says that all is copied where this log says that nothing is: no topic is touched."""

    async def play(story: Story) -> None:
        story.kill(CONTROLLER)

        async def leave(client: ZookeeperClient) -> None:
            await client.set(MIGRATION, text)

        await story.with_zookeeper(leave)
        story.start(CONTROLLER)
        await let_migrate(story, "broker-1")
        await until(lambda: waits(story) and why in waits(story)[-1], "it says why")
        assert migration(story).driver.state in (DriverState.UNINITIALIZED, DriverState.WAIT_FOR_CONTROLLER_QUORUM)
        assert topic_path(TOPIC) in story.cluster.znodes()
        await story.produce("meanwhile", 15)

        async def take_away(client: ZookeeperClient) -> None:
            await client.delete(MIGRATION)

        await story.with_zookeeper(take_away)
        await both_are_written(story)
        assert len(await story.read()) == 30

    played(play)


@pytest.mark.parametrize(
    ("path", "text", "state"),
    [
        (topic_path(TOPIC), b'{"partitions":{"0":[1', DriverState.WAIT_FOR_BROKERS),
        (config_path("users", "alice"), b'{"version":1,"config":{"producer_byte_rate":"much"}}', DriverState.ZK_MIGRATION),
        (PRODUCER_ID_BLOCK, b'{"version":1,"broker":1,"block_start":"0"}', DriverState.ZK_MIGRATION),
    ],
)
def test_a_corrupted_znode_stops_the_copy_until_it_is_repaired(path: str, text: bytes, state: DriverState) -> None:
    """Not a record is written of a copy that cannot be made as a whole."""

    async def play(story: Story) -> None:
        await story.producer_ids(1)
        story.kill(CONTROLLER)
        await let_migrate(story, "broker-1")
        sound = story.cluster.znodes().get(path, (b'{"version":1,"config":{}}', None))[0]

        async def corrupt(client: ZookeeperClient) -> None:
            await (client.set(path, text) if path in story.cluster.znodes() else client.create(path, text))

        async def repair(client: ZookeeperClient) -> None:
            await client.set(path, sound)

        await story.with_zookeeper(corrupt)
        story.start(CONTROLLER)
        await until(lambda: waits(story) and [each for each in story.cluster.migrations() if each[1].driver.state is state], "it has come so far")
        await asyncio.sleep(3)
        assert migration(story).driver.state is state
        assert migration(story).committed.image.topic(TOPIC) is None
        assert len(await story.read()) == 15
        await story.with_zookeeper(repair)
        await both_are_written(story)
        await story.produce("afterwards", 15)
        assert len(await story.read()) == 30

    played(play)


def test_a_minute_without_zookeeper_in_dual_write_loses_nothing() -> None:
    """Leaders go on, what controllers decide is committed, and ZooKeeper is told all of it when it is back."""

    async def play(story: Story) -> None:
        await let_migrate(story, "broker-1", "broker-2")
        await both_are_written(story)
        story.kill("zookeeper-1")
        await story.produce("without", 15)
        ids = await story.producer_ids(4)
        await asyncio.sleep(55)
        making = asyncio.ensure_future(story.topic("made-meanwhile", 1))
        await asyncio.sleep(5)
        assert not making.done(), "brokers hear of it once ZooKeeper has"
        story.start("zookeeper-1")
        await making
        await both_are_written(story)
        assert f"{TOPICS}/made-meanwhile/partitions/0/state" in story.cluster.znodes()
        ids += await story.producer_ids(4)
        assert len(set(ids)) == len(ids)
        assert len(await story.read()) == 30

    played(play, brokers=2)


def test_a_deposed_controller_that_writes_late_writes_nothing() -> None:
    """Every write stands under the version of /controller_epoch: whoever has claimed the cluster since has changed it."""

    async def play(story: Story) -> None:
        await let_migrate(story, "broker-1")
        await both_are_written(story)
        former = story.cluster.leader
        assert former is not None
        old = migration(story)
        claim, side = old.driver.claim, old._zookeeper
        story.simulation.pause(story.cluster.hosts[former])
        await until(lambda: any(each.mirrored for name, each in story.cluster.migrations() if name != former), "another one writes both")
        story.simulation.resume(story.cluster.hosts[former])
        late = ZnodeOperation(name="late", writes=(ZnodeWrite(kind=WriteKind.DELETE_TREE, path=topic_path(TOPIC)),))
        for attempt in (side.write(claim, [late]), side.move(claim)):
            with pytest.raises(ControllerMoved):
                await story.simulation.spawn(story.cluster.hosts[former], attempt)
        znodes = story.cluster.znodes()
        assert all(f"{topic_path(TOPIC)}/partitions/{number}/state" in znodes for number in range(PARTITIONS))
        await both_are_written(story)
        assert len(await story.read()) == 15

    played(play, controllers=3)


def test_a_release_that_knows_nothing_of_migrations_is_refused_in_the_midst_of_one() -> None:
    """Controllers of 4.0 do not go on with a log that is on its way; those of before do, from where it was."""

    async def play(story: Story) -> None:
        await let_migrate(story, "broker-1")
        await both_are_written(story)
        await story.stop(CONTROLLER)
        story.cluster.hosts[CONTROLLER].told["kraftsim.release"] = "4.0"
        story.start(CONTROLLER)
        await asyncio.sleep(5)
        assert "migration from ZooKeeper" in failure_of(story, CONTROLLER)
        del story.cluster.hosts[CONTROLLER].told["kraftsim.release"]
        story.start(CONTROLLER)
        await both_are_written(story)
        assert len(await story.read()) == 15

    played(play)

"""Errors in a migration from ZooKeeper to KRaft: it waits or is rejected with one line, and nothing
is lost.

docs/upgrades.md has the behaviour of Apache Kafka in each case, verified with 3.9.1 if not
documented.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kraftsim.metadata.events import BrokerRegistrationRefused
from kraftsim.migration.events import MigrationWaits
from kraftsim.migration.migration import Migration
from kraftsim.migration.rules_driver import DriverState
from kraftsim.server.events import NodeFailed
from kraftsim.zookeeper.client import ZookeeperClient
from kraftsim.zookeeper.rules_znode_writes import WriteKind, ZnodeOperation, ZnodeWrite
from kraftsim.zookeeper.znode_writer import ControllerMoved
from protocol.errors import ErrorCode
from protocol.zookeeper.kafka_znodes import (
    MIGRATION,
    PRODUCER_ID_BLOCK,
    TOPICS,
    MigrationZnode,
    config_path,
    topic_path,
)
from tests.simulate.zookeeper_clusters import PARTITIONS, TOPIC, ZooKeeperHarness

PATIENCE_S = 120.0
LOOK_S = 0.2
CONTROLLER = "controller-101"


def waits(harness: ZooKeeperHarness) -> list[str]:
    """The reasons for which the drivers waited, without repetitions."""
    reasons = [event.reason for _, event in harness.emitted if isinstance(event, MigrationWaits)]
    return [
        reason for place, reason in enumerate(reasons) if place == 0 or reasons[place - 1] != reason
    ]


def failure_of(harness: ZooKeeperHarness, name: str) -> str:
    """The failure reason of a node."""
    reasons = [
        event.reason
        for node, event in harness.emitted
        if node == name and isinstance(event, NodeFailed)
    ]
    assert reasons, f"{name} has not failed"
    assert "\n" not in reasons[-1]
    return reasons[-1]


async def until(holds: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(LOOK_S)
    except TimeoutError as late:
        raise AssertionError(f"not within {PATIENCE_S:g} s: {what}") from late


def migration(harness: ZooKeeperHarness) -> Migration:
    """The migration of the current controller."""
    return next(
        each for name, each in harness.cluster.migrations() if name == harness.cluster.leader
    )


async def both_are_written(harness: ZooKeeperHarness) -> None:
    """Wait for dual write without pending changes."""
    await until(
        lambda: any(each.mirrored for _, each in harness.cluster.migrations()), "both are written"
    )
    await harness.in_sync()


async def let_migrate(harness: ZooKeeperHarness, *names: str, **settings: str) -> None:
    """Restart brokers with the migration enabled."""
    renamed = {key.replace("_", "."): value for key, value in settings.items()}
    for name in names:
        await harness.restart_with(
            name, {**harness.spec.migrating_settings(host_is_name=True), **renamed}
        )


def finished(
    run: Callable[[ZooKeeperHarness], Awaitable[None]],
    *,
    brokers: int = 1,
    controllers: int = 1,
    release: str = "3.9",
) -> ZooKeeperHarness:
    """Run a scenario that begins with a topic that has records."""

    async def begun(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        await harness.topic()
        await harness.produce("before", 15)
        await run(harness)

    harness = ZooKeeperHarness(controllers=controllers, brokers=brokers, release=release)
    harness.run(begun)
    return harness


def test_broker_without_the_setting_is_waited_for() -> None:
    """The driver stays in WAIT_FOR_BROKERS and names the missing brokers; the cluster remains in
    ZooKeeper mode.
    """

    async def run(harness: ZooKeeperHarness) -> None:
        await let_migrate(harness, "broker-1")
        await until(
            lambda: (
                waits(harness) and waits(harness)[-1] == "brokers 2 have not registered with KRaft"
            ),
            "it names the missing nodes",
        )
        assert migration(harness).driver.state is DriverState.WAIT_FOR_BROKERS
        await harness.produce("meanwhile", 15)
        await let_migrate(harness, "broker-2")
        await both_are_written(harness)
        assert len(await harness.read()) == 30

    finished(run, brokers=2)


@pytest.mark.parametrize(
    ("release", "why"),
    [
        ("3.5", "Nodes don't enable `zookeeper.metadata.migration.enable`: [103]"),
        ("3.9", "Controller 103 has not enabled zookeeper.metadata.migration.enable"),
    ],
)
def test_controller_without_the_setting_is_waited_for(release: str, why: str) -> None:
    """Up to 3.6 by its ApiVersions response, since 3.7 by its registration (KIP-919)."""

    async def run(harness: ZooKeeperHarness) -> None:
        settings = harness.cluster.hosts["controller-103"].overrides
        await harness.stop("controller-103")
        settings.update({"zookeeper.connect": "", "zookeeper.metadata.migration.enable": "false"})
        harness.start("controller-103")
        await asyncio.sleep(5)
        harness.kill("controller-101")
        harness.kill("controller-102")
        harness.start("controller-101")
        harness.start("controller-102")
        await until(
            lambda: waits(harness) and why in waits(harness)[-1], "it names the missing nodes"
        )
        await let_migrate(harness, "broker-1")
        await asyncio.sleep(5)
        assert migration(harness).driver.state is DriverState.WAIT_FOR_CONTROLLER_QUORUM
        await harness.stop("controller-103")
        settings.clear()
        harness.start("controller-103")
        await both_are_written(harness)
        assert len(await harness.read()) == 15

    finished(run, controllers=3, release=release)


def test_broker_of_another_level_is_rejected_and_serves_on(figures: Callable[..., None]) -> None:
    """inter.broker.protocol.version must equal the metadata.version of the quorum:
    UNSUPPORTED_VERSION, as often as the broker retries.
    """

    async def run(harness: ZooKeeperHarness) -> None:
        await let_migrate(harness, "broker-1", inter_broker_protocol_version="3.8")
        await asyncio.sleep(20)
        refused = [
            event for _, event in harness.emitted if isinstance(event, BrokerRegistrationRefused)
        ]
        assert {(each.broker_id, each.error_code) for each in refused} == {
            (1, ErrorCode.UNSUPPORTED_VERSION)
        }
        assert 2 <= len(refused) <= 12, "it retries with a doubling backoff"
        assert waits(harness)[-1] == "no brokers are known to KRaft"
        await harness.produce("meanwhile", 15)
        await let_migrate(harness, "broker-1", inter_broker_protocol_version="3.9")
        await both_are_written(harness)
        read = await harness.read()
        assert len(read) == 30
        figures(refusals=len(refused), refusal=int(refused[0].error_code), records=len(read))

    finished(run)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"version":1}', "version 1 is unknown"),
        (b"not ours", "/migration"),
        (
            MigrationZnode(
                kraft_controller_id=7,
                kraft_controller_epoch=3,
                kraft_metadata_offset=1,
                kraft_metadata_epoch=1,
            ).build(),
            "another quorum",
        ),
    ],
)
def test_foreign_migration_znode_blocks_the_migration_until_removed(text: bytes, why: str) -> None:
    """An unreadable text, and one that says that the copy is complete while this log says it has
    not started: no topic is touched.
    """

    async def run(harness: ZooKeeperHarness) -> None:
        harness.kill(CONTROLLER)

        async def leave(client: ZookeeperClient) -> None:
            await client.set(MIGRATION, text)

        await harness.with_zookeeper(leave)
        harness.start(CONTROLLER)
        await let_migrate(harness, "broker-1")
        await until(lambda: waits(harness) and why in waits(harness)[-1], "it says why")
        assert migration(harness).driver.state in (
            DriverState.UNINITIALIZED,
            DriverState.WAIT_FOR_CONTROLLER_QUORUM,
        )
        assert topic_path(TOPIC) in harness.cluster.znodes()
        await harness.produce("meanwhile", 15)

        async def take_away(client: ZookeeperClient) -> None:
            await client.delete(MIGRATION)

        await harness.with_zookeeper(take_away)
        await both_are_written(harness)
        assert len(await harness.read()) == 30

    finished(run)


@pytest.mark.parametrize(
    ("path", "text", "state"),
    [
        (topic_path(TOPIC), b'{"partitions":{"0":[1', DriverState.WAIT_FOR_BROKERS),
        (
            config_path("users", "alice"),
            b'{"version":1,"config":{"producer_byte_rate":"much"}}',
            DriverState.ZK_MIGRATION,
        ),
        (
            PRODUCER_ID_BLOCK,
            b'{"version":1,"broker":1,"block_start":"0"}',
            DriverState.ZK_MIGRATION,
        ),
    ],
)
def test_corrupted_znode_blocks_the_copy_until_repaired(
    path: str, text: bytes, state: DriverState
) -> None:
    """Not a record is written of a copy that cannot be completed."""

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.producer_ids(1)
        harness.kill(CONTROLLER)
        await let_migrate(harness, "broker-1")
        sound = harness.cluster.znodes().get(path, (b'{"version":1,"config":{}}', None))[0]

        async def corrupt(client: ZookeeperClient) -> None:
            await (
                client.set(path, text)
                if path in harness.cluster.znodes()
                else client.create(path, text)
            )

        async def repair(client: ZookeeperClient) -> None:
            await client.set(path, sound)

        await harness.with_zookeeper(corrupt)
        harness.start(CONTROLLER)
        await until(
            lambda: (
                waits(harness)
                and [each for each in harness.cluster.migrations() if each[1].driver.state is state]
            ),
            "it has come so far",
        )
        await asyncio.sleep(3)
        assert migration(harness).driver.state is state
        assert migration(harness).committed.image.topic(TOPIC) is None
        assert len(await harness.read()) == 15
        await harness.with_zookeeper(repair)
        await both_are_written(harness)
        await harness.produce("afterwards", 15)
        assert len(await harness.read()) == 30

    finished(run)


def test_minute_without_zookeeper_in_dual_write_loses_nothing() -> None:
    """Leaders continue, controller decisions are committed, and ZooKeeper receives all of them when
    it is back.
    """

    async def run(harness: ZooKeeperHarness) -> None:
        await let_migrate(harness, "broker-1", "broker-2")
        await both_are_written(harness)
        harness.kill("zookeeper-1")
        await harness.produce("without", 15)
        ids = await harness.producer_ids(4)
        await asyncio.sleep(55)
        making = asyncio.ensure_future(harness.topic("made-meanwhile", 1))
        await asyncio.sleep(5)
        assert not making.done(), "brokers are notified once ZooKeeper is written"
        harness.start("zookeeper-1")
        await making
        await both_are_written(harness)
        assert f"{TOPICS}/made-meanwhile/partitions/0/state" in harness.cluster.znodes()
        ids += await harness.producer_ids(4)
        assert len(set(ids)) == len(ids)
        assert len(await harness.read()) == 30

    finished(run, brokers=2)


def test_late_write_of_a_deposed_controller_fails() -> None:
    """Every write checks the version of /controller_epoch, which each new controller changes."""

    async def run(harness: ZooKeeperHarness) -> None:
        await let_migrate(harness, "broker-1")
        await both_are_written(harness)
        former = harness.cluster.leader
        assert former is not None
        old = migration(harness)
        claim, side = old.driver.claim, old._zookeeper
        harness.simulation.pause(harness.cluster.hosts[former])
        await until(
            lambda: any(
                each.mirrored for name, each in harness.cluster.migrations() if name != former
            ),
            "another one writes both",
        )
        harness.simulation.resume(harness.cluster.hosts[former])
        late = ZnodeOperation(
            name="late", writes=(ZnodeWrite(kind=WriteKind.DELETE_TREE, path=topic_path(TOPIC)),)
        )
        for attempt in (side.write(claim, [late]), side.move(claim)):
            with pytest.raises(ControllerMoved):
                await harness.simulation.spawn(harness.cluster.hosts[former], attempt)
        znodes = harness.cluster.znodes()
        assert all(
            f"{topic_path(TOPIC)}/partitions/{number}/state" in znodes
            for number in range(PARTITIONS)
        )
        await both_are_written(harness)
        assert len(await harness.read()) == 15

    finished(run, controllers=3)


def test_release_without_migration_support_is_rejected_during_one() -> None:
    """Controllers of 4.0 do not continue with a log in migration; older ones do, from where it
    was.
    """

    async def run(harness: ZooKeeperHarness) -> None:
        await let_migrate(harness, "broker-1")
        await both_are_written(harness)
        await harness.stop(CONTROLLER)
        harness.cluster.hosts[CONTROLLER].overrides["kraftsim.release"] = "4.0"
        harness.start(CONTROLLER)
        await asyncio.sleep(5)
        assert "migration from ZooKeeper" in failure_of(harness, CONTROLLER)
        del harness.cluster.hosts[CONTROLLER].overrides["kraftsim.release"]
        harness.start(CONTROLLER)
        await both_are_written(harness)
        assert len(await harness.read()) == 15

    finished(run)

"""Unreadable znodes of every kind: they are reported with the reason, leaders remain leaders, and
nothing is lost.

Kafka's behaviour differs by kind: an unreadable config or topic is ignored, but without
/controller_epoch no controller is elected.
Source: kafka.zk.ZkData (decode), kafka.controller.KafkaController (elect, onControllerFailover).
"""

import asyncio
from collections.abc import Mapping

from kraftsim.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.events import ZnodeNotUnderstood
from protocol.zookeeper.kafka_znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    ISR_CHANGES,
    LOG_DIRECTORY_EVENTS,
    PREFERRED_REPLICA_ELECTION,
    PRODUCER_ID_BLOCK,
    REASSIGN_PARTITIONS,
    broker_path,
    build_log_directory_event,
    config_path,
    state_path,
    topic_path,
)
from tests.simulate.zookeeper_clusters import TOPIC, ZooKeeperHarness

GARBAGE = b'{"version":1,"pa'
SESSION_S = 8.0
OTHER, THIRD = "other", "third"
THERE = (topic_path(OTHER), state_path(THIRD, 0), config_path("topics", TOPIC), PRODUCER_ID_BLOCK)
"""Znodes that a controller reads at its election."""
ASKED = (
    REASSIGN_PARTITIONS,
    PREFERRED_REPLICA_ELECTION,
    f"{ISR_CHANGES}/isr_change_0000000099",
    f"{LOG_DIRECTORY_EVENTS}/log_dir_event_0000000099",
)
"""Znodes by which other clients send requests to a controller."""


async def corrupt(harness: ZooKeeperHarness, *paths: str) -> dict[str, bytes | None]:
    """Write garbage to znodes, create the missing ones, and return their former contents."""

    async def by_hand(client: ZookeeperClient) -> dict[str, bytes | None]:
        said: dict[str, bytes | None] = {}
        for path in paths:
            if await client.exists(path) is None:
                await client.create(path, GARBAGE)
            else:
                said[path], _ = await client.get(path)
                await client.set(path, GARBAGE)
        return said

    return await harness.with_zookeeper(by_hand)


async def put_right(harness: ZooKeeperHarness, said: Mapping[str, bytes | None]) -> None:
    """Restore the contents of znodes."""

    async def by_hand(client: ZookeeperClient) -> None:
        for path, data in said.items():
            try:
                await client.set(path, data)
            except ZookeeperRefused:
                assert path == CONTROLLER, "existing znodes are kept, except those of a session"

    await harness.with_zookeeper(by_hand)


def reported_by(harness: ZooKeeperHarness) -> set[str]:
    """Return the znodes that were reported as unreadable."""
    return {event.path for _, event in harness.emitted if isinstance(event, ZnodeNotUnderstood)}


def test_controller_continues_without_unreadable_znodes() -> None:
    """A running one continues; the next one ignores those topics, and loads them once they are
    readable.
    """

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        for name in (TOPIC, OTHER, THIRD):
            await harness.topic(name)
        await harness.produce("before", 30)
        said = await corrupt(harness, *THERE, *ASKED)
        await asyncio.sleep(1)
        first = harness.cluster.leader
        assert first is not None and set(ASKED) <= reported_by(harness)
        harness.kill(first)
        await harness.produce("meanwhile", 30)
        await asyncio.sleep(SESSION_S)
        assert harness.cluster.leader not in (None, first)
        assert reported_by(harness) == {*THERE, *ASKED} - {PRODUCER_ID_BLOCK}, (
            "it is read when a block is needed"
        )
        await put_right(harness, said)
        harness.start(first)
        await asyncio.sleep(SESSION_S)
        await harness.in_sync()
        assert all(
            harness.broker(first).image.topic(name) is not None for name in (TOPIC, OTHER, THIRD)
        )
        await harness.produce("after", 30)
        assert len(await harness.read()) == 90

    ZooKeeperHarness().run(run)


def test_unreadable_controller_epoch_or_broker_blocks_decisions_until_repaired() -> None:
    """The next epoch, or the set of live brokers, is unknown; leaders remain leaders."""

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        await harness.topic()
        await harness.producer_ids(
            6
        )  # every broker has a block: without a controller none gets another one
        for number, path in enumerate((CONTROLLER, CONTROLLER_EPOCH, broker_path(2))):
            said = await corrupt(harness, path)
            await harness.produce(f"without-{number}", 10)
            former = harness.cluster.leader
            if path != CONTROLLER:
                assert former is not None
                harness.kill(former)
                await asyncio.sleep(SESSION_S)
                harness.start(former)
            await asyncio.sleep(1)
            assert path in reported_by(harness)
            assert path == broker_path(2) or harness.cluster.leader is None
            await put_right(harness, said)
            await asyncio.sleep(SESSION_S)
            await harness.in_sync()
            assert harness.cluster.leader is not None
        assert len(await harness.read()) == 30

    ZooKeeperHarness().run(run, limit_s=120)


def test_log_lines_have_path_and_reason() -> None:
    """One line each."""

    async def run(harness: ZooKeeperHarness) -> list[ZnodeNotUnderstood]:
        await harness.ready()
        await corrupt(harness, f"{LOG_DIRECTORY_EVENTS}/log_dir_event_0000000098")
        await asyncio.sleep(1)
        found = [event for _, event in harness.emitted if isinstance(event, ZnodeNotUnderstood)]
        await harness.with_zookeeper(
            lambda client: client.create(
                f"{LOG_DIRECTORY_EVENTS}/log_dir_event_0000000100", build_log_directory_event(1)
            )
        )
        return found

    (line,) = ZooKeeperHarness(brokers=1).run(run)
    assert line.path == f"{LOG_DIRECTORY_EVENTS}/log_dir_event_0000000098"
    assert line.reason.startswith("no JSON") and "\n" not in line.reason

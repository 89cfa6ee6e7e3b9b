"""Znodes that cannot be read, of every kind that there is: somebody says which and why, leaders go on leading, and nothing is lost.

What Kafka does with them differs by kind: a configuration or a topic is as if it were not there, and without /controller_epoch nobody is elected.
Source: kafka.zk.ZkData (decode), kafka.controller.KafkaController (elect, onControllerFailover).
"""

import asyncio
from collections.abc import Mapping

from kraftsim.events.zookeeper_mode import ZnodeNotUnderstood
from kraftsim.node.zookeeper.client import ZookeeperClient, ZookeeperRefused
from protocol.zookeeper.kafka_admin_znodes import build_log_directory_event
from protocol.zookeeper.kafka_znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    ISR_CHANGES,
    LOG_DIRECTORY_EVENTS,
    PREFERRED_REPLICA_ELECTION,
    PRODUCER_ID_BLOCK,
    REASSIGN_PARTITIONS,
    broker_path,
    config_path,
    state_path,
    topic_path,
)
from tests.simulate.zookeeper_clusters import TOPIC, Story

GARBAGE = b'{"version":1,"pa'
SESSION_S = 8.0
OTHER, THIRD = "other", "third"
THERE = (topic_path(OTHER), state_path(THIRD, 0), config_path("topics", TOPIC), PRODUCER_ID_BLOCK)
"""What a controller finds in its place and cannot read."""
ASKED = (REASSIGN_PARTITIONS, PREFERRED_REPLICA_ELECTION, f"{ISR_CHANGES}/isr_change_0000000099", f"{LOG_DIRECTORY_EVENTS}/log_dir_event_0000000099")
"""What somebody asks of a controller, and it cannot read."""


async def corrupt(story: Story, *paths: str) -> dict[str, bytes | None]:
    """Give znodes a text that is none, make those that are not there, and return what the others said."""

    async def by_hand(client: ZookeeperClient) -> dict[str, bytes | None]:
        said: dict[str, bytes | None] = {}
        for path in paths:
            if await client.exists(path) is None:
                await client.create(path, GARBAGE)
            else:
                said[path], _ = await client.get(path)
                await client.set(path, GARBAGE)
        return said

    return await story.with_zookeeper(by_hand)


async def put_right(story: Story, said: Mapping[str, bytes | None]) -> None:
    """Let znodes say again what they said."""

    async def by_hand(client: ZookeeperClient) -> None:
        for path, data in said.items():
            try:
                await client.set(path, data)
            except ZookeeperRefused:
                assert path == CONTROLLER, "what is there stays there, but for the znode of a session"

    await story.with_zookeeper(by_hand)


def told_of(story: Story) -> set[str]:
    """Return the znodes of which somebody has said that they cannot be read."""
    return {event.path for _, event in story.noted if isinstance(event, ZnodeNotUnderstood)}


def test_a_controller_does_without_what_it_cannot_read() -> None:
    """One that is there goes on; the next one leaves those topics alone, and takes them up when they can be read."""

    async def play(story: Story) -> None:
        await story.ready()
        for name in (TOPIC, OTHER, THIRD):
            await story.topic(name)
        await story.produce("before", 30)
        said = await corrupt(story, *THERE, *ASKED)
        await asyncio.sleep(1)
        first = story.cluster.leader
        assert first is not None and set(ASKED) <= told_of(story)
        story.kill(first)
        await story.produce("meanwhile", 30)
        await asyncio.sleep(SESSION_S)
        assert story.cluster.leader not in (None, first)
        assert told_of(story) == {*THERE, *ASKED} - {PRODUCER_ID_BLOCK}, "who needs a block reads it then"
        await put_right(story, said)
        story.start(first)
        await asyncio.sleep(SESSION_S)
        await story.in_sync()
        assert all(story.broker(first).image.topic(name) is not None for name in (TOPIC, OTHER, THIRD))
        await story.produce("after", 30)
        assert len(await story.read()) == 90

    Story().play(play)


def test_without_a_readable_controller_epoch_or_broker_nobody_decides_until_it_is_put_right() -> None:
    """Nobody knows whose epoch is the next one, or who is there; leaders go on leading."""

    async def play(story: Story) -> None:
        await story.ready()
        await story.topic()
        await story.producer_ids(6)  # every broker has a block: without a controller nobody gets another one
        for number, path in enumerate((CONTROLLER, CONTROLLER_EPOCH, broker_path(2))):
            said = await corrupt(story, path)
            await story.produce(f"without-{number}", 10)
            former = story.cluster.leader
            if path != CONTROLLER:
                assert former is not None
                story.kill(former)
                await asyncio.sleep(SESSION_S)
                story.start(former)
            await asyncio.sleep(1)
            assert path in told_of(story)
            assert path == broker_path(2) or story.cluster.leader is None
            await put_right(story, said)
            await asyncio.sleep(SESSION_S)
            await story.in_sync()
            assert story.cluster.leader is not None
        assert len(await story.read()) == 30

    Story().play(play, limit_s=120)


def test_the_lines_say_where_and_why() -> None:
    """A path and a reason, in one line each."""

    async def play(story: Story) -> list[ZnodeNotUnderstood]:
        await story.ready()
        await corrupt(story, f"{LOG_DIRECTORY_EVENTS}/log_dir_event_0000000098")
        await asyncio.sleep(1)
        found = [event for _, event in story.noted if isinstance(event, ZnodeNotUnderstood)]
        await story.with_zookeeper(lambda client: client.create(f"{LOG_DIRECTORY_EVENTS}/log_dir_event_0000000100", build_log_directory_event(1)))
        return found

    (line,) = Story(brokers=1).play(play)
    assert line.path == f"{LOG_DIRECTORY_EVENTS}/log_dir_event_0000000098"
    assert line.reason.startswith("no JSON") and "\n" not in line.reason

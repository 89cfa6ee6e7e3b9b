"""Brokers in ZooKeeper mode with many partitions: what changes together is told together, and who tells it does so to the end."""

import asyncio
from collections.abc import Iterator

import pytest

from kraftsim.events.nodes import NodeStopped
from kraftsim.events.partitions import LeaderElected
from kraftsim.node.zookeeper_mode.propagator import Propagator
from protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest
from tests.simulate.zookeeper_clusters import Story

MANY = 30
SOON = {"leader.imbalance.check.interval.seconds": "5"}


@pytest.fixture
def appointments(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many partitions each LeaderAndIsr was about."""
    found: list[int] = []
    real = Propagator.send

    def send(propagator: Propagator, told: object) -> None:
        requests = list(told)  # type: ignore[call-overload]
        found.extend(
            sum(len(topic.partition_states) for topic in each.request.topic_states)
            for each in requests
            if isinstance(each.request, LeaderAndIsrRequest)
        )
        real(propagator, requests)

    monkeypatch.setattr(Propagator, "send", send)
    yield found


def test_leaderships_are_given_back_all_at_once(appointments: list[int]) -> None:
    """A request for each of them would keep brokers busy for as many fsyncs.   Source: KafkaController.checkAndTriggerAutoLeaderRebalance."""

    async def play(story: Story) -> None:
        await story.ready()
        await story.topic()
        await story.topic("many", MANY)
        other = next(name for name in ("broker-1", "broker-2") if name != story.cluster.leader)
        await story.stop(other)
        await asyncio.sleep(1)
        story.start(other)
        await asyncio.sleep(2)
        appointments.clear()

        def led() -> int:
            return sum(each.replica.is_leader for each in story.broker(other).partitions.hosted() if each.topic == "many")

        while led() < MANY // 3:
            await asyncio.sleep(0.1)
        given_back = [count for count in appointments if count]
        assert len(given_back) <= 9, f"{len(given_back)} requests to three brokers"
        assert max(given_back) >= MANY // 3

    Story(settings=SOON).play(play)


def test_a_controller_that_stops_tells_everybody_what_follows_from_that() -> None:
    """It answers its own controlled shutdown before brokers have heard of it, and goes on until its logs are closed (KafkaServer.shutdown)."""

    async def play(story: Story) -> None:
        await story.ready()
        await story.topic()
        await story.topic("many", MANY)
        leaving = story.cluster.leader
        assert leaving is not None
        before = len(story.noted)
        await story.stop(leaving)
        heard = story.noted[before:]
        end = next(place for place, (node, event) in enumerate(heard) if node == leaving and isinstance(event, NodeStopped))
        told = {(event.topic, event.partition) for _, event in heard[:end] if isinstance(event, LeaderElected)}
        assert len(told) == MANY + 3, "each partition has another leader epoch: it moves, or one replica less is in sync"

    Story().play(play)

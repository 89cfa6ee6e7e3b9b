"""Brokers in ZooKeeper mode with many partitions: simultaneous changes are sent in one request, and
a stopping controller sends all of them.
"""

import asyncio
from collections.abc import Iterable, Iterator

import pytest

from kraftsim.partitions.events import LeaderElected
from kraftsim.server.events import NodeStopped
from kraftsim.zookeeper.propagator import ControllerChannelManager
from kraftsim.zookeeper.rules_control_requests import ToBroker
from protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest
from tests.simulate.zookeeper_clusters import ZooKeeperHarness

MANY = 30
SOON = {"leader.imbalance.check.interval.seconds": "5"}


@pytest.fixture
def appointments(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of partitions in each LeaderAndIsr."""
    found: list[int] = []
    real = ControllerChannelManager.send

    def send(propagator: ControllerChannelManager, request: Iterable[ToBroker]) -> None:
        requests = list(request)
        found.extend(
            sum(len(topic.partition_states) for topic in each.request.topic_states)
            for each in requests
            if isinstance(each.request, LeaderAndIsrRequest)
        )
        real(propagator, requests)

    monkeypatch.setattr(ControllerChannelManager, "send", send)
    yield found


def test_leaderships_are_moved_back_in_one_batch(appointments: list[int]) -> None:
    """A request per partition would cost brokers as many fsyncs.

    Source: KafkaController.checkAndTriggerAutoLeaderRebalance.
    """

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        await harness.topic()
        await harness.topic("many", MANY)
        other = next(name for name in ("broker-1", "broker-2") if name != harness.cluster.leader)
        await harness.stop(other)
        await asyncio.sleep(1)
        harness.start(other)
        await asyncio.sleep(2)
        appointments.clear()

        def led() -> int:
            return sum(
                each.replica.is_leader
                for each in harness.broker(other).partitions.hosted()
                if each.topic == "many"
            )

        while led() < MANY // 3:
            await asyncio.sleep(0.1)
        given_back = [count for count in appointments if count]
        assert len(given_back) <= 9, f"{len(given_back)} requests to three brokers"
        assert max(given_back) >= MANY // 3

    ZooKeeperHarness(settings=SOON).run(run)


def test_stopping_controller_notifies_all_brokers_of_the_consequences() -> None:
    """It answers its own controlled shutdown before brokers are notified, and continues until its
    logs are closed (KafkaServer.shutdown).
    """

    async def run(harness: ZooKeeperHarness) -> None:
        await harness.ready()
        await harness.topic()
        await harness.topic("many", MANY)
        leaving = harness.cluster.leader
        assert leaving is not None
        before = len(harness.emitted)
        await harness.stop(leaving)
        received = harness.emitted[before:]
        end = next(
            place
            for place, (node, event) in enumerate(received)
            if node == leaving and isinstance(event, NodeStopped)
        )
        elected = {
            (event.topic, event.partition)
            for _, event in received[:end]
            if isinstance(event, LeaderElected)
        }
        assert len(elected) == MANY + 3, (
            "each partition has another leader epoch: its leader moves, or its ISR shrinks"
        )

    ZooKeeperHarness().run(run)

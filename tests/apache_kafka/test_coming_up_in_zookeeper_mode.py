"""What a broker in ZooKeeper mode tells about a topic while it comes up: ours as Apache Kafka 3.9.1, looked at every few milliseconds.

It serves clients before the controller has told it of the cluster, and says then that there are no brokers and no such topic. Clients ask again; a
librdkafka that knew the topic for long fails what it is given meanwhile with _UNKNOWN_TOPIC.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from kraftsim.conformance.peer import Peer
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.apache_kafka.zookeeper import ApacheZookeeper
from tests.apache_kafka.zookeeper_mode import broker_of_zookeeper
from tests.cluster.running import running_processes

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif("KRAFTSIM_UPGRADES" not in os.environ, reason="what is seen depends on how fast the machine is: `make upgrades`"),
]

SECONDS = 120.0
GONE = (OSError, TimeoutError, EOFError)


class Seen(NamedTuple):
    """Brokers, the controller, the topic's error, its partitions."""

    brokers: tuple[int, ...]
    controller_id: int
    error: int
    partitions: int


NOTHING_KNOWN = Seen((), -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)


class Pair(Protocol):
    """Two brokers, one of which is stopped and started."""

    addresses: list[str]

    def bounce(self, broker_id: int) -> None:
        """Stop one, and begin to start it again."""
        ...


class Theirs:
    """Two brokers of Apache Kafka on Apache ZooKeeper."""

    def __init__(self, running: ExitStack) -> None:
        zookeeper = running.enter_context(ApacheZookeeper())
        zookeeper.start()
        self._brokers = [running.enter_context(broker_of_zookeeper(zookeeper.port, number)) for number in (1, 2)]
        self.addresses = [broker.bootstrap for broker in self._brokers]

    def bounce(self, broker_id: int) -> None:
        """Stop one, and begin to start it again."""
        self._brokers[broker_id - 1].stop()
        self._brokers[broker_id - 1].launch()


class Ours:
    """Two brokers of ours on our ZooKeeper."""

    def __init__(self, running: ExitStack, directory: Path) -> None:
        self._cluster = running.enter_context(running_processes(directory / "run", brokers=2, controllers=0, zookeeper=True))
        self.addresses = self._cluster.bootstrap.split(",")

    def bounce(self, broker_id: int) -> None:
        """Stop one, and begin to start it again."""
        asyncio.run(self._cluster.stop_node(f"broker-{broker_id}"))
        self._cluster.restart(f"broker-{broker_id}")


@contextmanager
def pair(whose: str, directory: Path) -> Iterator[Pair]:
    with ExitStack() as running:
        yield Theirs(running) if whose == "apache_kafka" else Ours(running, directory)


def told(address: str, topic: str) -> Iterator[Seen]:
    """Yield what a broker tells, from its first answer on."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    give_up_at = time.monotonic() + SECONDS
    while time.monotonic() < give_up_at:
        try:
            with Peer.at(address) as peer:
                while time.monotonic() < give_up_at:
                    answer = peer.ask(request, 4, MetadataResponse)
                    (found,) = answer.topics
                    brokers = tuple(sorted(broker.node_id for broker in answer.brokers))
                    yield Seen(brokers, answer.controller_id, found.error_code, len(found.partitions))
                    time.sleep(0.002)
        except GONE:
            time.sleep(0.01)


@pytest.mark.parametrize("whose", ["kraftsim", "apache_kafka"])
def test_a_broker_that_comes_up_knows_nothing_for_a_moment_and_then_everything(whose: str, tmp_path: Path):
    """How long the moment is depends on the machine, so it may be missed; nothing else is ever told. The controller stays where it is."""
    with pair(whose, tmp_path) as running:
        known = (answer for answer in told(running.addresses[0], "none") if answer.brokers == (1, 2) and answer.controller_id > 0)
        controller = next(known).controller_id
        topic = Target(running.addresses[controller - 1]).topic(partitions=2).name
        other = 3 - controller
        running.bounce(other)
        whole = Seen((1, 2), controller, ErrorCode.NONE, 2)
        seen: list[Seen] = []
        for answer in told(running.addresses[other - 1], topic):
            if not seen or seen[-1] != answer:
                seen.append(answer)
            if answer == whole:
                break
    assert seen in ([NOTHING_KNOWN, whole], [whole])

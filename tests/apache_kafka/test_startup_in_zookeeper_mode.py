"""The metadata that a broker in ZooKeeper mode returns during startup: ours and Apache Kafka 3.9.1,
polled every few milliseconds.

It serves clients before it receives UpdateMetadata from the controller, and returns no brokers and
UNKNOWN_TOPIC_OR_PARTITION until then. Clients retry; a librdkafka that has known the topic for long
fails new records with _UNKNOWN_TOPIC.
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
    pytest.mark.skipif(
        "KRAFTSIM_UPGRADES" not in os.environ,
        reason="depends on the speed of the machine: `make upgrades`",
    ),
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
    """Two brokers, one of which is restarted."""

    addresses: list[str]

    def restart_one(self, broker_id: int) -> None:
        """Stop one, and start it again without waiting."""
        ...


class Theirs:
    """Two brokers of Apache Kafka on Apache ZooKeeper."""

    def __init__(self, running: ExitStack) -> None:
        zookeeper = running.enter_context(ApacheZookeeper())
        zookeeper.start()
        self._brokers = [
            running.enter_context(broker_of_zookeeper(zookeeper.port, number)) for number in (1, 2)
        ]
        self.addresses = [broker.bootstrap for broker in self._brokers]

    def restart_one(self, broker_id: int) -> None:
        """Stop one, and start it again without waiting."""
        self._brokers[broker_id - 1].stop()
        self._brokers[broker_id - 1].launch()


class Ours:
    """Two brokers of ours on our ZooKeeper."""

    def __init__(self, running: ExitStack, directory: Path) -> None:
        self._cluster = running.enter_context(
            running_processes(directory / "run", brokers=2, controllers=0, zookeeper=True)
        )
        self.addresses = self._cluster.bootstrap.split(",")

    def restart_one(self, broker_id: int) -> None:
        """Stop one, and start it again without waiting."""
        asyncio.run(self._cluster.stop_node(f"broker-{broker_id}"))
        self._cluster.restart(f"broker-{broker_id}")


@contextmanager
def pair(whose: str, directory: Path) -> Iterator[Pair]:
    with ExitStack() as running:
        yield Theirs(running) if whose == "apache_kafka" else Ours(running, directory)


def metadata_states(address: str, topic: str) -> Iterator[Seen]:
    """Yield the metadata responses of a broker, from the first one on."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    give_up_at = time.monotonic() + SECONDS
    while time.monotonic() < give_up_at:
        try:
            with Peer.at(address) as peer:
                while time.monotonic() < give_up_at:
                    answer = peer.ask(request, 4, MetadataResponse)
                    (found,) = answer.topics
                    brokers = tuple(sorted(broker.node_id for broker in answer.brokers))
                    yield Seen(
                        brokers, answer.controller_id, found.error_code, len(found.partitions)
                    )
                    time.sleep(0.002)
        except GONE:
            time.sleep(0.01)


@pytest.mark.parametrize("whose", ["kraftsim", "apache_kafka"])
def test_a_starting_broker_returns_empty_metadata_until_the_controller_updates_it(
    whose: str, tmp_path: Path
) -> None:
    """The duration depends on the machine, so the empty state may be missed; no other state is
    allowed.

    The controller does not change.
    """
    with pair(whose, tmp_path) as running:
        known = (
            answer
            for answer in metadata_states(running.addresses[0], "none")
            if answer.brokers == (1, 2) and answer.controller_id > 0
        )
        controller = next(known).controller_id
        topic = Target(running.addresses[controller - 1]).topic(partitions=2).name
        other = 3 - controller
        running.restart_one(other)
        whole = Seen((1, 2), controller, ErrorCode.NONE, 2)
        seen: list[Seen] = []
        for answer in metadata_states(running.addresses[other - 1], topic):
            if not seen or seen[-1] != answer:
                seen.append(answer)
            if answer == whole:
                break
    assert seen in ([NOTHING_KNOWN, whole], [whole])

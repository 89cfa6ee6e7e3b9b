"""A topic's config takes effect on every broker, however it was set: its replicas apply it, and
each broker describes it, in both modes.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from kraftsim.server.broker import Broker
from protocol.config_resources import ConfigResourceType, ConfigSource
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.k20_delete_topics import DeleteTopicsRequest
from protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.k33_alter_configs import AlterableConfig as ReplacingConfig
from protocol.messages.k33_alter_configs import AlterConfigsRequest
from protocol.messages.k33_alter_configs import AlterConfigsResource as ReplacingResource
from protocol.messages.k44_incremental_alter_configs import (
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.node.brokers import CONTROLLER_HOST, Client, batch, running_cluster
from tests.node.zookeeper_mode_harness import SESSION_MS, zookeeper_harness

KEY, VALUE, OTHER = "max.message.bytes", "60", "61"
TOPIC = "t"
HELD_BY_TWO = ([1, 2], [2, 1])
"""Replicas of the two partitions: broker 3 holds none, but knows the topic."""
TIMEOUT_MS = 10_000
SETTLE_S = 3
MODES = ("KRaft", "ZooKeeper 2.7", "ZooKeeper 3.9")


@dataclass
class Brokers:
    """Three brokers of either mode, and how they start and stop."""

    run: Callable[..., Any]
    running: dict[str, Broker]
    rest: Callable[[float], None]
    kill: Callable[[str], None]
    restart: Callable[[str], None]
    fail_over: Callable[[], None]
    controller: Callable[[], str]
    """A broker that accepts requests for the controller."""

    def ask(self, request: Any, broker: str | None = None, version: int | None = None) -> Any:
        async def ask(client: Client) -> Any:
            return await client.ask(request, version)

        return self.run(ask, broker or self.controller())

    def create(self, *placement: list[int], **configs: str) -> None:
        rows = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
            for number, replicas in enumerate(placement or HELD_BY_TWO)
        ]
        given = [
            CreatableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        ]
        topic = CreatableTopic(
            name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=rows, configs=given
        )
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
        assert [row.error_code for row in answer.topics] == [ErrorCode.NONE]

    def incrementally(self, value: str) -> None:
        row = AlterableConfig(name=KEY, config_operation=SET, value=value)
        resource = AlterConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=TOPIC, configs=[row]
        )
        answer = self.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        assert [row.error_code for row in answer.responses] == [ErrorCode.NONE]

    def replacing(self, value: str) -> None:
        resource = ReplacingResource(
            resource_type=ConfigResourceType.TOPIC,
            resource_name=TOPIC,
            configs=[ReplacingConfig(name=KEY, value=value)],
        )
        answer = self.ask(AlterConfigsRequest(resources=[resource]))
        assert [row.error_code for row in answer.responses] == [ErrorCode.NONE]

    def described(self) -> dict[str, tuple[str | None, int]]:
        """Return what each broker describes: the value and its source."""
        resource = DescribeConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=TOPIC, configuration_keys=[KEY]
        )
        found = {}
        for name in sorted(self.running):
            (result,) = self.ask(DescribeConfigsRequest(resources=[resource]), name, 2).results
            assert result.error_code == ErrorCode.NONE
            found[name] = (result.configs[0].value, result.configs[0].config_source)
        return found

    def in_effect(self) -> dict[tuple[str, int], int]:
        """Return the limit that each replica applies."""
        return {
            (name, hosted.partition): hosted.settings.rules.max_message_bytes
            for name, broker in sorted(self.running.items())
            for hosted in broker.partitions.hosted()
            if hosted.topic == TOPIC
        }

    def must_go_by(self, value: str, replicas: int = 4) -> None:
        """Every broker describes the value, every replica applies it, and every leader rejects by
        it.
        """
        self.rest(SETTLE_S)
        source = ConfigSource.TOPIC_CONFIG
        assert self.described() == dict.fromkeys(sorted(self.running), (value, source))
        assert list(self.in_effect().values()) == [int(value)] * replicas
        leaders = [
            (name, hosted.partition)
            for name, broker in self.running.items()
            for hosted in broker.partitions.hosted()
            if hosted.topic == TOPIC and hosted.replica.is_leader
        ]
        assert {partition for _, partition in leaders} == {0, 1}
        for name, partition in leaders:

            async def produce(client: Client, partition: int = partition) -> int:
                return int((await client.produce(batch(), TOPIC, partition, version=8)).error_code)

            assert self.run(produce, name) == ErrorCode.MESSAGE_TOO_LARGE


@contextmanager
def in_kraft() -> Iterator[Brokers]:
    with running_cluster(3) as cluster:

        def restart(name: str) -> None:
            cluster.simulation.restart(name)
            cluster.wait_ready(name)

        def fail_over() -> None:
            cluster.kill(CONTROLLER_HOST)
            cluster.simulation.restart(CONTROLLER_HOST)
            rest(20)

        def rest(seconds: float) -> None:
            cluster.simulation.run_until(asyncio.sleep(seconds), limit_s=seconds + 1)

        yield Brokers(
            cluster.run, cluster.brokers, rest, cluster.kill, restart, fail_over, lambda: "broker-1"
        )


@contextmanager
def in_zookeeper_mode(release_name: str) -> Iterator[Brokers]:
    with zookeeper_harness(3, release_name=release_name) as harness:

        def rest(seconds: float) -> None:
            harness.simulation.run_until(asyncio.sleep(seconds), limit_s=seconds + 1)

        def fail_over() -> None:
            former = harness.leader
            assert former is not None
            harness.kill(former)
            harness.until(lambda: harness.leader not in (None, former))
            harness.restart(former)

        def restart(name: str) -> None:
            rest(2 * SESSION_MS / 1000)  # until the znode of the former incarnation is gone
            harness.restart(name)

        yield Brokers(
            harness.run,
            harness.brokers,
            rest,
            harness.kill,
            restart,
            fail_over,
            lambda: harness.leader or "",
        )


@pytest.fixture(params=MODES)
def brokers(request: pytest.FixtureRequest) -> Iterator[Brokers]:
    mode, _, release_name = request.param.partition(" ")
    with in_kraft() if mode == "KRaft" else in_zookeeper_mode(release_name) as running:
        yield running


def test_config_given_with_create_topics_applies_on_every_broker(brokers: Brokers) -> None:
    brokers.create(max_message_bytes=VALUE)
    brokers.must_go_by(VALUE)


def test_config_set_by_alter_configs_applies_on_every_broker(brokers: Brokers) -> None:
    brokers.create(max_message_bytes=OTHER)
    brokers.replacing(VALUE)
    brokers.must_go_by(VALUE)


def test_config_set_incrementally_applies_on_every_broker(brokers: Brokers) -> None:
    brokers.create()
    brokers.incrementally(VALUE)
    brokers.must_go_by(VALUE)


@pytest.mark.parametrize("later", ["broker-2", "broker-3"])
def test_config_applies_on_a_broker_started_later(brokers: Brokers, later: str) -> None:
    """Set while the broker was down: at creation, and by a later change."""
    brokers.create(max_message_bytes=OTHER)
    brokers.rest(SETTLE_S)
    brokers.kill(later)
    brokers.incrementally(VALUE)
    brokers.restart(later)
    brokers.must_go_by(VALUE)


def test_config_is_kept_after_a_controller_failover(brokers: Brokers) -> None:
    brokers.create(max_message_bytes=VALUE)
    brokers.fail_over()
    brokers.must_go_by(VALUE)
    brokers.incrementally(OTHER)
    brokers.must_go_by(OTHER)


def test_recreated_topic_has_its_own_configs(brokers: Brokers) -> None:
    """Those of the deleted topic are neither effective nor described."""
    brokers.create(max_message_bytes=OTHER, retention_ms="1")
    brokers.rest(SETTLE_S)
    gone = DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=TIMEOUT_MS)
    assert [row.error_code for row in brokers.ask(gone, version=5).responses] == [ErrorCode.NONE]
    brokers.rest(SETTLE_S)
    brokers.create(max_message_bytes=VALUE)
    brokers.must_go_by(VALUE)
    settings = [
        hosted.settings
        for broker in brokers.running.values()
        for hosted in broker.partitions.hosted()
        if hosted.topic == TOPIC
    ]
    assert settings and all(each.retention.retention_ms != 1 for each in settings)

"""Apache Kafka and kraftsim compared: configurations of groups are described the same, and the same
values are refused with the same messages.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.expect import settled
from kraftsim.conformance.peer import Peer
from kraftsim.groups.rules_group_configs import GroupConfig
from kraftsim.metadata.rules_config_releases import config_tables
from protocol.config_resources import ConfigResourceType
from protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from protocol.messages.k44_incremental_alter_configs import (
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.apache_kafka.class_path import NEWEST_RELEASE
from tests.apache_kafka.config_facts import line_of
from tests.apache_kafka.harness import ApacheKafka, run_java

pytestmark = pytest.mark.interop
GROUP, BROKER = ConfigResourceType.GROUP, ConfigResourceType.BROKER
RELEASES: Final = ("4.0.2", "4.1.2", "4.2.2", "4.3.1", NEWEST_RELEASE)
VALUES: Final = ("", "x", "-1", "1", "45000", "2147483648", "true", "sticky", "__x", "a,,b", "a, a")
STRATEGIES: Final = (
    "latest",
    "EARLIEST",
    "none",
    "by_duration",
    "by_duration:",
    "by_duration:PT1H",
    "by_duration:-PT1H",
    "by_duration:P1Y",
    "by_duration:PT99999999999999H",
    "{0}",
)
GIVEN: Final = {
    "group.consumer.session.timeout.ms": "46000",
    "group.share.session.timeout.ms": "47000",
    "group.share.record.lock.duration.ms": "31000",
    "group.streams.session.timeout.ms": "48000",
    "group.streams.num.standby.replicas": "1",
    "group.consumer.assignment.interval.ms": "2000",
    "group.share.delivery.count.limit": "7",
}
"""Settings of both brokers, as far as the release has them."""
TOOLS: Final = {
    "4.2.2": "kafka.admin.ConfigCommand",
    NEWEST_RELEASE: "org.apache.kafka.tools.ConfigCommand",
}
"""Releases -> the main class of kafka-configs.sh."""
Row = tuple[str, str | None, bool, int, int, list[tuple[str, str | None, int]]]


@dataclass(frozen=True)
class Both:
    """One broker of each, of the same release line, with the same settings."""

    line: str
    addresses: tuple[str, str]


@pytest.fixture(scope="module", params=RELEASES)
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    line = line_of(request.param)
    settings = {name: value for name, value in GIVEN.items() if name in config_tables(line).broker}
    spec = ClusterSpec(brokers=1, release=line, port=free_port_range(1), settings=settings)
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka(request.param, settings=settings))
        cluster = stack.enter_context(EmbeddedCluster(spec))
        yield Both(line, (kafka.bootstrap, cluster.bootstrap))


def described(peer: Peer, group: str) -> list[Row]:
    """Return the configurations of a group, sorted by name: Kafka's order is that of a hash
    table.
    """
    resource = DescribeConfigsResource(
        resource_type=GROUP, resource_name=group, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (result,) = peer.ask(request, 4, DescribeConfigsResponse).results
    assert result.error_code == 0, result
    return sorted(
        (
            row.name,
            row.value,
            row.read_only,
            row.config_source,
            row.config_type,
            [(each.name, each.value, each.source) for each in row.synonyms],
        )
        for row in result.configs
    )


def changed(
    peer: Peer, kind: int, name: str, key: str, value: str, *, validate_only: bool = False
) -> tuple[int, str | None]:
    """Set one value, and return the error."""
    operation = AlterableConfig(name=key, config_operation=SET, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[operation])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (row,) = peer.ask(request, 1, IncrementalAlterConfigsResponse).responses
    return row.error_code, row.error_message


def test_groups_are_described_the_same(both: Both) -> None:
    """Before and after a group, and all brokers, have values of their own."""
    found = []
    for address in both.addresses:
        with Peer.at(address) as peer:
            before = described(peer, "fresh")
            key, interval = "share.session.timeout.ms", "group.consumer.assignment.interval.ms"
            assert changed(peer, GROUP, "own", key, " 50000 ") == (0, None)
            if interval in config_tables(both.line).broker:
                assert changed(peer, BROKER, "", interval, "5000") == (0, None)
                assert changed(peer, BROKER, "1", interval, "6000") == (0, None)
            after = settled(
                partial(described, peer, "own"),
                lambda rows: "50000" in {row[1] for row in rows} and _is_dynamic(rows),
                "what was set",
            )
        found.append((before, after))
    assert found[0] == found[1]
    seen = [name for name, each in _configs(both).items() if not each.is_internal]
    assert len(found[0][0]) == len(seen) > 5


def _configs(both: Both) -> Mapping[str, GroupConfig]:
    return config_tables(both.line).groups.configs


def _is_dynamic(rows: list[Row]) -> bool:
    values = {row[0]: row[1] for row in rows}
    return values.get("consumer.assignment.interval.ms", "6000") == "6000"


def test_the_same_values_are_refused_with_the_same_messages(both: Both) -> None:
    """Each configuration with extreme values, one at a time, only validated."""
    names = [*config_tables("4.4").groups.configs, "nothing.known"]
    asked = [(name, value) for name in names for value in VALUES]
    asked += [("share.auto.offset.reset", value) for value in STRATEGIES]
    found = []
    for address in both.addresses:
        with Peer.at(address) as peer:
            found.append(
                {
                    question: changed(peer, GROUP, "validated", *question, validate_only=True)
                    for question in asked
                }
            )
    assert found[0] == found[1]
    refused = {code for code, _ in found[0].values()}
    assert refused == {0, 40}


@pytest.mark.parametrize("release", TOOLS)
def test_kafka_configs_changes_and_shows_groups(release: str) -> None:
    """kafka-configs.sh --entity-type groups against our broker."""
    spec = ClusterSpec(brokers=1, release=line_of(release), port=free_port_range(1))
    with EmbeddedCluster(spec) as cluster:

        def run(*words: str) -> str:
            of_groups = ("--bootstrap-server", cluster.bootstrap, "--entity-type", "groups")
            done = run_java(release, TOOLS[release], *of_groups, *words)
            return done.stdout + done.stderr

        value = "consumer.session.timeout.ms=50000"
        alter = ("--alter", "--entity-name", "mine")
        assert "Completed updating config for group mine." in run(*alter, "--add-config", value)
        assert "DYNAMIC_GROUP_CONFIG:" + value in run("--describe")
        refused = run(*alter, "--add-config", "consumer.session.timeout.ms=1")
        assert "InvalidConfigurationException: consumer.session.timeout.ms must be" in refused
        run(*alter, "--delete-config", "consumer.session.timeout.ms")
        assert "Dynamic configs for group mine" not in run("--describe")

"""Apache Kafka and kraftsim compared: every config is described the same, and dynamic updates
refuse the same extreme values.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.expect import settled
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.target import Target
from kraftsim.metadata.rules_config_releases import config_tables
from protocol.config_resources import ConfigResourceType, ConfigSource
from protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from protocol.messages.k44_incremental_alter_configs import (
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.apache_kafka.config_facts import definitions_of, line_of, rows_of
from tests.apache_kafka.harness import ApacheKafka

pytestmark = pytest.mark.interop
BROKER: Final = ConfigResourceType.BROKER
TOPIC, CLIENT_METRICS, OF_METRICS = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.CLIENT_METRICS,
    ConfigSource.CLIENT_METRICS_CONFIG,
)
LEAST_CONFIGS: Final = 15
OVERRIDES: Final = (
    {"retention.ms": "4321", "cleanup.policy": "compact,delete"},
    {
        "compression.type": "gzip",
        "min.insync.replicas": "2",
        "segment.bytes": "1048576",
        "max.message.bytes": "7",
    },
    {
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "*",
        "preallocate": "true",
    },
    {
        "min.cleanable.dirty.ratio": "0.25",
        "unclean.leader.election.enable": "true",
        "message.timestamp.type": "LogAppendTime",
    },
    {
        "segment.ms": "60000",
        "retention.bytes": "-1",
        "flush.ms": "5",
        "file.delete.delay.ms": "0",
        "delete.retention.ms": "1",
    },
)
"""Overrides of topics."""
VALUES: Final = ("", "garbage", "-1", "0", "1", "2147483647", "9223372036854775807")
LISTENER: Final = "listener.name.plaintext."
OF_A_LISTENER: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
EXPLAINED: Final = {
    "log.remote.copy.lag.bytes": "is not compared with the local retention",
    "log.remote.copy.lag.ms": "is not compared with the local retention",
    "metric.reporters": "no class is loaded",
    "principal.builder.class": "no class is loaded",
}
"""Configs of which some values are accepted here and refused there."""


@dataclass(frozen=True)
class Both:
    """One broker of each, of the same release line."""

    line: str
    theirs: str
    ours: str


@pytest.fixture(scope="module", params=[DEFAULT_RELEASE, NEWEST_RELEASE])
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    """A broker of Apache Kafka and one of ours."""
    line = line_of(request.param)
    spec = ClusterSpec(brokers=1, release=line, port=free_port_range(1))
    with ApacheKafka(request.param) as kafka, EmbeddedCluster(spec) as cluster:
        yield Both(line, kafka.bootstrap, cluster.bootstrap)


def described(
    address: str, resource_type: int = BROKER, name: str = "1", *, documented: bool = False
) -> dict[str, DescribeConfigsResourceResult]:
    with Peer.at(address) as peer:
        resource = DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=documented
        )
        (result,) = peer.ask(request, 4, DescribeConfigsResponse).results
    assert result.error_code == 0, result
    return {row.name: row for row in result.configs}


def changed(address: str, resource_type: int, name: str, values: Mapping[str, str]) -> None:
    operations = [
        AlterableConfig(name=key, config_operation=SET, value=value)
        for key, value in values.items()
    ]
    resource = AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=operations
    )
    with Peer.at(address) as peer:
        (row,) = peer.ask(
            IncrementalAlterConfigsRequest(resources=[resource]), 1, IncrementalAlterConfigsResponse
        ).responses
    assert row.error_code == 0, row


def refusals(address: str, names: list[str]) -> dict[tuple[str, str, str], int]:
    """Return the error of each change that is only validated, by name, resource and value."""
    found = {}
    with Peer.at(address) as peer:
        for name in names:
            for resource_name in ("1", ""):
                for value in VALUES:
                    operation = AlterableConfig(name=name, config_operation=SET, value=value)
                    resource = AlterConfigsResource(
                        resource_type=BROKER, resource_name=resource_name, configs=[operation]
                    )
                    request = IncrementalAlterConfigsRequest(
                        resources=[resource], validate_only=True
                    )
                    (row,) = peer.ask(request, 1, IncrementalAlterConfigsResponse).responses
                    found[name, resource_name, value] = row.error_code
    return found


def test_broker_configs_are_described_the_same(both: Both) -> None:
    """Names, types, defaults, read-only, sensitive, and synonyms, except for the static configs of
    either cluster.
    """
    theirs, ours = described(both.theirs), described(both.ours)
    given = {
        name
        for rows in (theirs, ours)
        for name, row in rows.items()
        if row.config_source == ConfigSource.STATIC_BROKER_CONFIG
    }
    assert len(given) < len(theirs) // 10
    assert theirs.keys() - given == ours.keys() - given
    assert {name: row for name, row in ours.items() if name not in given} == {
        name: row for name, row in theirs.items() if name not in given
    }


@pytest.mark.parametrize(
    "values", [{}, *OVERRIDES], ids=lambda values: ", ".join(values) or "no overrides"
)
def test_topic_configs_are_described_the_same(both: Both, values: dict[str, str]) -> None:
    """With overrides of the topic and their synonyms, including dynamic cluster-wide defaults."""
    found = []
    cluster_wide = {"log.retention.ms": "86400000", "compression.type": "lz4"}
    for address in (both.theirs, both.ours):
        changed(address, BROKER, "", cluster_wide)
        name = Target(address).topic(configs=values).name
        settled(
            partial(described, address, TOPIC, name), _has_lz4_behind, "the default of all brokers"
        )
        found.append(described(address, TOPIC, name))
    assert found[0].keys() == found[1].keys()
    assert {
        name: (found[0][name], row) for name, row in found[1].items() if found[0][name] != row
    } == {}
    assert len(found[0]) > LEAST_CONFIGS and all(
        found[0][name].config_source == ConfigSource.TOPIC_CONFIG for name in values
    )


def _has_lz4_behind(rows: dict[str, DescribeConfigsResourceResult]) -> bool:
    return any(synonym.value == "lz4" for synonym in rows["compression.type"].synonyms)


@pytest.mark.parametrize(
    "values",
    [{}, {"interval.ms": "5000"}, {"match": "client_id=a, client_source_port=1", "metrics": "a,b"}],
    ids=str,
)
def test_client_metrics_subscriptions_are_described_the_same(
    both: Both, values: dict[str, str]
) -> None:
    found = []
    for number, address in enumerate((both.theirs, both.ours)):
        name = f"subscription-{len(values)}-{'-'.join(values)}-{number}"
        if values:
            changed(address, CLIENT_METRICS, name, values)
        what = partial(described, address, CLIENT_METRICS, name)
        found.append(
            settled(
                what,
                lambda rows: all(
                    key in rows and rows[key].config_source == OF_METRICS for key in values
                ),
                "what was set",
            )
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["broker", "topic"])
def test_documentation_is_returned_on_request_and_is_not_kafkas_text(both: Both, kind: str) -> None:
    """Apache Kafka documents nearly every config; kraftsim has one sentence of its own for each
    config that has an effect.
    """
    documented = []
    for address in (both.theirs, both.ours):
        resource_type, name = (
            (BROKER, "1") if kind == "broker" else (TOPIC, Target(address).topic().name)
        )
        assert {row.documentation for row in described(address, resource_type, name).values()} == {
            None
        }
        documented.append(
            {
                key: row.documentation
                for key, row in described(address, resource_type, name, documented=True).items()
            }
        )
    theirs, ours = documented
    assert sum(map(bool, theirs.values())) > LEAST_CONFIGS
    written = {name: words for name, words in ours.items() if words is not None}
    assert len(written) > LEAST_CONFIGS and all(words.endswith(".") for words in written.values())
    assert {name for name, words in written.items() if words == theirs.get(name)} == set()


def test_dynamic_updates_refuse_the_same_values(both: Both) -> None:
    """Each dynamic config with extreme values, on one broker and as the cluster default."""
    known = config_tables(both.line).broker
    names = [
        *(name for name in known if known[name].is_dynamic),
        *(LISTENER + name for name in OF_A_LISTENER),
        "num.partitions",
    ]
    theirs, ours = refusals(both.theirs, names), refusals(both.ours, names)
    differing = {
        question: (theirs[question], ours[question])
        for question in theirs
        if theirs[question] != ours[question]
    }
    assert {question[0] for question in differing} <= EXPLAINED.keys(), differing


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, NEWEST_RELEASE])
def test_generated_config_rows_match_the_jars(release: str) -> None:
    """`python -m tests.apache_kafka.config_facts` writes them for every line."""
    assert definitions_of(release) == rows_of(line_of(release))

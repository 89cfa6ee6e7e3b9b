"""Apache Kafka and kraftsim beside each other: every setting is described alike, and the same extreme values are refused while a broker runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.peer import Peer
from kraftsim.core.metadata.config_releases import config_tables
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
from tests.apache_kafka.config_facts import line_of, rows_of, told_by
from tests.apache_kafka.harness import ApacheKafka

pytestmark = pytest.mark.interop
BROKER: Final = ConfigResourceType.BROKER
VALUES: Final = ("", "garbage", "-1", "0", "1", "2147483647", "9223372036854775807")
LISTENER: Final = "listener.name.plaintext."
OF_A_LISTENER: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
EXPLAINED: Final = {
    "cordoned.log.dirs": "is not built: any value is kept",
    "log.local.retention.bytes": "is not compared with log.retention.bytes",
    "log.local.retention.ms": "is not compared with log.retention.ms",
    "log.remote.copy.lag.bytes": "is not compared with the local retention",
    "log.remote.copy.lag.ms": "is not compared with the local retention",
    "metric.reporters": "no class is looked for",
    "principal.builder.class": "no class is looked for",
}
"""Settings of which some values are taken here and refused there."""


@dataclass(frozen=True)
class Both:
    """One broker of each, of the same release line."""

    line: str
    theirs: str
    ours: str


@pytest.fixture(scope="module", params=[DEFAULT_RELEASE, NEWEST_RELEASE])
def both(request) -> Iterator[Both]:
    """A broker of Apache Kafka and one of ours."""
    line = line_of(request.param)
    spec = ClusterSpec(brokers=1, release=line, port=free_port_range(1))
    with ApacheKafka(request.param) as kafka, EmbeddedCluster(spec) as cluster:
        yield Both(line, kafka.bootstrap, cluster.bootstrap)


def described(address: str) -> dict[str, DescribeConfigsResourceResult]:
    with Peer.at(address) as peer:
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        (result,) = peer.ask(request, 4, DescribeConfigsResponse).results
    return {row.name: row for row in result.configs}


def refusals(address: str, names: list[str]) -> dict[tuple[str, str, str], int]:
    """Return the error of each change that is only validated, by name, resource and value."""
    found = {}
    with Peer.at(address) as peer:
        for name in names:
            for resource_name in ("1", ""):
                for value in VALUES:
                    operation = AlterableConfig(name=name, config_operation=SET, value=value)
                    resource = AlterConfigsResource(resource_type=BROKER, resource_name=resource_name, configs=[operation])
                    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
                    (row,) = peer.ask(request, 1, IncrementalAlterConfigsResponse).responses
                    found[name, resource_name, value] = row.error_code
    return found


def test_every_setting_of_a_broker_is_described_alike(both):
    """Names, types, defaults, read-only, sensitive, and synonyms, but for what either cluster was given."""
    theirs, ours = described(both.theirs), described(both.ours)
    given = {name for rows in (theirs, ours) for name, row in rows.items() if row.config_source == ConfigSource.STATIC_BROKER_CONFIG}
    assert len(given) < len(theirs) // 10
    assert theirs.keys() - given == ours.keys() - given
    assert {name: row for name, row in ours.items() if name not in given} == {name: row for name, row in theirs.items() if name not in given}


def test_the_same_values_are_refused_while_a_broker_runs(both):
    """Each dynamic setting with extreme values, on one broker and on all."""
    known = config_tables(both.line).broker
    names = [*(name for name in known if known[name].is_dynamic), *(LISTENER + name for name in OF_A_LISTENER), "num.partitions"]
    theirs, ours = refusals(both.theirs, names), refusals(both.ours, names)
    differing = {question: (theirs[question], ours[question]) for question in theirs if theirs[question] != ours[question]}
    assert {question[0] for question in differing} <= EXPLAINED.keys(), differing


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, NEWEST_RELEASE])
def test_the_generated_rows_are_those_of_the_jars(release):
    """`python -m tests.apache_kafka.config_facts` writes them for every line."""
    assert told_by(release) == rows_of(line_of(release))

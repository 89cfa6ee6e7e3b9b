"""Apache Kafka, and kraftsim with the same configuration, meet the requirements for nodes with
several log directories.
"""

from collections.abc import Iterator

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.requirement import Requirement, all_requirements
from kraftsim.conformance.runner import check
from kraftsim.conformance.several_directories import REQUIREMENTS
from kraftsim.conformance.target import Target
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.second_directory import add_second_directory
from tests.conformance.test_security import sentence

OF_DIRECTORIES = [each for each in all_requirements() if each.section is REQUIREMENTS]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One broker of ours with two directories."""
    places = ",".join(str(tmp_path_factory.mktemp("logs") / name) for name in ("first", "second"))
    spec = ClusterSpec(
        brokers=1, port=free_port_range(1), node_settings={"broker-1": {"log.dirs": places}}
    )
    with EmbeddedCluster(spec) as cluster:
        yield Target(cluster.bootstrap)


@pytest.fixture(scope="module", params=[DEFAULT_RELEASE, NEWEST_RELEASE])
def theirs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """One node of Apache Kafka with two directories."""
    with ApacheKafka(request.param) as kafka:
        add_second_directory(kafka, tmp_path_factory.mktemp("logs") / "second")
        yield Target(kafka.bootstrap)


@pytest.mark.parametrize("requirement", OF_DIRECTORIES, ids=sentence)
def test_kraftsim_meets_every_requirement(requirement: Requirement, ours: Target) -> None:
    finding = check(requirement, ours)
    assert finding.is_met, "\n".join([finding.why, *finding.transcript])


@pytest.mark.interop
@pytest.mark.parametrize("requirement", OF_DIRECTORIES, ids=sentence)
def test_apache_kafka_meets_every_requirement(requirement: Requirement, theirs: Target) -> None:
    finding = check(requirement, theirs)
    assert finding.is_met, "\n".join([finding.why, *finding.transcript])

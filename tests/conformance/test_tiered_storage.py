"""Apache Kafka with its LocalTieredStorage, and kraftsim with a directory, meet the requirements
for nodes with a remote store.
"""

from collections.abc import Iterator

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, ClusterSpec
from kraftsim.conformance.requirement import Requirement, all_requirements
from kraftsim.conformance.runner import check
from kraftsim.conformance.target import Target
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.tiered import TIERED_RELEASES, tiered_settings
from tests.conformance.test_security import sentence

WITHOUT_STORE = "tiered-storage/1.1"
CHAPTER = [
    each
    for each in all_requirements()
    if each.section.chapter == "tiered-storage" and each.label != WITHOUT_STORE
]
"""Requirements for nodes without a remote store are tested in test_kraftsim.py and
test_apache_kafka.py.
"""
OURS = {
    "remote.log.storage.system.enable": "true",
    "rsm.config.dir": "remote",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "remote.log.manager.task.interval.ms": "100",
    "remote.log.manager.thread.pool.size": "1",
    "log.retention.check.interval.ms": "100",
    "remote.log.manager.copy.quota.window.num": "6",
    "log.initial.task.delay.ms": "100",
}


@pytest.fixture(scope="module")
def ours() -> Iterator[Target]:
    """One broker and one controller of ours, in one process."""
    port = free_port_range(1)
    with EmbeddedCluster(
        ClusterSpec(brokers=1, port=port, release="4.4", settings=OURS)
    ) as cluster:
        yield Target(cluster.bootstrap, f"127.0.0.1:{port + CONTROLLER_PORT_DISTANCE}")


@pytest.fixture(scope="module", params=TIERED_RELEASES)
def theirs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """One node of Apache Kafka."""
    with ApacheKafka(
        request.param, tiered_settings(tmp_path_factory.mktemp("store"), request.param)
    ) as kafka:
        yield Target(kafka.bootstrap, kafka.controller)


@pytest.mark.parametrize("requirement", CHAPTER, ids=sentence)
def test_kraftsim_meets_every_requirement(requirement: Requirement, ours: Target) -> None:
    finding = check(requirement, ours)
    assert finding.is_met, "\n".join([finding.why, *finding.transcript])


@pytest.mark.interop
@pytest.mark.parametrize("requirement", CHAPTER, ids=sentence)
def test_apache_kafka_meets_every_requirement(requirement: Requirement, theirs: Target) -> None:
    finding = check(requirement, theirs)
    assert finding.is_met, "\n".join([finding.why, *finding.transcript])

"""The section on ZooKeeper: a broker in ZooKeeper mode and a KRaft controller for its migration, of
Apache Kafka 3.9.1 and ours.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, ClusterSpec
from kraftsim.conformance.requirement import Requirement, all_requirements
from kraftsim.conformance.runner import check
from kraftsim.conformance.target import Target
from tests.apache_kafka.harness import _free_ports
from tests.apache_kafka.migration_nodes import Znodes, wait_for
from tests.apache_kafka.migration_run import their_controller
from tests.apache_kafka.zookeeper_mode import broker_of_zookeeper
from tests.node.zookeeper_server import running_zookeeper

CHAPTER = [each for each in all_requirements() if each.section.chapter == "zookeeper"]


def sentence(requirement: Requirement) -> str:
    """The test id of a requirement."""
    return f"{requirement.label} {requirement.sentence}"


@pytest.fixture(scope="module")
def ours() -> Iterator[Target]:
    """One broker and one controller of ours, in one process."""
    port = free_port_range(1)
    with EmbeddedCluster(
        ClusterSpec(zookeeper=True, brokers=1, controllers=1, port=port)
    ) as cluster:
        yield Target(cluster.bootstrap, f"127.0.0.1:{port + CONTROLLER_PORT_DISTANCE}")


@pytest.fixture(scope="module")
def theirs() -> Iterator[Target]:
    """A broker and a controller of theirs, on a ZooKeeper server of ours."""
    with ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="kraftsim-conformance-"))
        )
        zookeeper = stack.enter_context(running_zookeeper(directory / "zookeeper"))
        broker = stack.enter_context(broker_of_zookeeper(zookeeper.port))
        (port,) = _free_ports(1)
        znodes = Znodes(zookeeper.port)
        stack.enter_context(their_controller(port, zookeeper.port, znodes.cluster_id(), directory))
        wait_for(lambda: znodes.get("/migration") is not None, "the controller has started")
        yield Target(broker.bootstrap, f"127.0.0.1:{port}")


@pytest.mark.parametrize("requirement", CHAPTER, ids=sentence)
def test_kraftsim_meets_every_requirement(requirement: Requirement, ours: Target) -> None:
    finding = check(requirement, ours)
    assert finding.is_met, "\n".join([finding.why, *finding.transcript])


@pytest.mark.interop
@pytest.mark.parametrize("requirement", CHAPTER, ids=sentence)
def test_apache_kafka_meets_every_requirement(requirement: Requirement, theirs: Target) -> None:
    finding = check(requirement, theirs)
    assert finding.is_met, "\n".join([finding.why, *finding.transcript])

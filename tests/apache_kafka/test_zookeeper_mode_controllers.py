"""The same requests to Apache Kafka's ZooKeeper-mode controller and to ours: the responses, and the
znodes byte for byte.

Topic ids, which are random, and error messages are not compared: see docs/deviations.md.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.apache_kafka.zookeeper_brokers import OurBroker
from tests.apache_kafka.zookeeper_controller_steps import CONTROLLER_ID, Side, run_steps
from tests.apache_kafka.zookeeper_mode import broker_of_zookeeper
from tests.node.zookeeper_server import RunningZookeeper

pytestmark = pytest.mark.interop

STEPS = 40
SETTINGS = {"zookeeper.session.timeout.ms": "30000", "auto.leader.rebalance.enable": "false"}


@pytest.fixture(scope="module")
def ports(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """(port of the broker, port of its ZooKeeper) of Apache Kafka and of ours; both are
    controllers.
    """
    directory: Path = tmp_path_factory.mktemp("scenarios")
    with ExitStack() as stack:
        zookeepers = [RunningZookeeper(directory / name) for name in ("theirs", "ours")]
        for zookeeper in zookeepers:
            zookeeper.start()
            stack.callback(zookeeper.stop)
        ours = OurBroker(
            directory, CONTROLLER_ID, zookeepers[1].port, auto_leader_rebalance_enable="false"
        )
        ours.start()
        stack.callback(ours.stop)
        theirs = stack.enter_context(
            broker_of_zookeeper(zookeepers[0].port, CONTROLLER_ID, settings=SETTINGS)
        )
        yield (theirs.port, zookeepers[0].port), (ours.port, zookeepers[1].port)


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_both_controllers_respond_and_write_znodes_the_same(
    seed: int, ports: tuple[tuple[int, int], tuple[int, int]], tmp_path: Path
) -> None:
    theirs, ours = ports
    sides = Side("Apache Kafka", *theirs), Side("kraftsim", *ours)
    assert asyncio.run(run_steps(seed, STEPS, sides, tmp_path)) == []

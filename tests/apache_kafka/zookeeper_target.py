"""A broker of Apache Kafka in ZooKeeper mode and a controller that can migrate it: the target of
the conformance section on ZooKeeper.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.apache_kafka.harness import _free_ports
from tests.apache_kafka.migration_nodes import Znodes, wait_for
from tests.apache_kafka.migration_run import their_controller
from tests.apache_kafka.zookeeper_mode import broker_of_zookeeper
from tests.node.zookeeper_server import running_zookeeper


@contextmanager
def zookeeper_mode() -> Iterator[tuple[str, str]]:
    """Start both on a ZooKeeper server of ours, and yield the addresses of the broker and the
    controller.
    """
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
        yield broker.bootstrap, f"127.0.0.1:{port}"

"""One broker of each release line for all clients: ours, and Apache Kafka of the same line if it
starts on this machine.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kraftsim.releases.release import release
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.zookeeper import ApacheZookeeper
from tests.apache_kafka.zookeeper_mode import broker_of_zookeeper
from tests.cluster.running import QUICK_SESSIONS, running_processes

LINES = ("2.3", "2.8", "3.3", "3.9", "4.0", "4.4")
"""The lines under test; before 3.3 in ZooKeeper mode."""
APACHE = {
    "2.3": "2.3.1",
    "2.8": "2.8.2",
    "3.3": "3.3.2",
    "3.9": "3.9.1",
    "4.0": "4.0.2",
    "4.4": "4.4.0",
}
"""Line -> the Apache Kafka release to compare with."""
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


@contextmanager
def ours(line: str) -> Iterator[str]:
    """Run our broker of a line, and yield its address."""
    with tempfile.TemporaryDirectory(prefix="clients-") as directory:
        where = {"controllers": 0, "zookeeper": True} if not release(line).has_kraft else {}
        with running_processes(
            Path(directory) / "run", release=line, settings={**QUICK_SESSIONS, **SETTINGS}, **where
        ) as cluster:
            yield cluster.bootstrap
            cluster.require_running()


@contextmanager
def theirs(line: str) -> Iterator[str]:
    """Run Apache Kafka of a line, and yield its address. Raises Missing."""
    with ExitStack() as running:
        if release(line).has_kraft:
            node = ApacheKafka(APACHE[line], settings=SETTINGS)
        else:
            zookeeper = running.enter_context(ApacheZookeeper())
            zookeeper.start()
            node = broker_of_zookeeper(zookeeper.port, release=APACHE[line], settings=SETTINGS)
        running.enter_context(node)
        yield node.bootstrap

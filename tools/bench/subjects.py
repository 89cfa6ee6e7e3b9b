"""The measured systems: a kraftsim cluster of processes, or an Apache Kafka 3.9 node from Maven,
each by its bootstrap address.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.spec import ClusterSpec
from tools.bench.catalogue import has_java

KRAFTSIM = "kraftsim"
APACHE_KAFKA = "Apache Kafka 3.9.1"
WITHOUT_APACHE_KAFKA = "KRAFTSIM_BENCH_WITHOUT_APACHE_KAFKA"
"""Set in the environment: only kraftsim is measured."""


@contextmanager
def kraftsim_cluster(brokers: int = 1) -> Iterator[ProcessCluster]:
    """Run a cluster, its event logs at their default level."""
    root = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
    cluster = ProcessCluster(
        ClusterSpec(brokers=brokers, port=free_port_range(brokers)), RunDirectory(root)
    )
    asyncio.run(cluster.start())
    try:
        yield cluster
    finally:
        asyncio.run(cluster.stop())
        shutil.rmtree(root)


@contextmanager
def subject(name: str) -> Iterator[str]:
    """Run one subject and yield its bootstrap address."""
    if name == KRAFTSIM:
        with kraftsim_cluster() as cluster:
            yield cluster.bootstrap
        return
    from tests.apache_kafka.harness import SERVER_JVM, ApacheKafka

    with ApacheKafka(jvm=SERVER_JVM) as kafka:
        yield kafka.bootstrap


def subjects() -> list[str]:
    """Return the subjects available here; prints a message if Apache Kafka is not."""
    if os.environ.get(WITHOUT_APACHE_KAFKA):
        return [KRAFTSIM]
    if has_java():
        return [APACHE_KAFKA, KRAFTSIM]
    print("Apache Kafka is left out: there is no Java with Maven on this machine")
    return [KRAFTSIM]

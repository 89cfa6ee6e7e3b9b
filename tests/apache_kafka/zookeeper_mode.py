"""A broker of Apache Kafka in ZooKeeper mode."""

import tempfile
from pathlib import Path

from tests.apache_kafka.class_path import DEFAULT_RELEASE
from tests.apache_kafka.harness import ApacheKafka, _free_ports


def broker_of_zookeeper(
    zookeeper_port: int,
    broker_id: int = 1,
    *,
    release: str = DEFAULT_RELEASE,
    settings: dict[str, str] | None = None,
) -> ApacheKafka:
    """Return a broker, not started yet, with an empty data directory."""
    directory = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
    (port,) = _free_ports(1)
    properties = {
        "broker.id": str(broker_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(directory / "data"),
        "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **(settings or {}),
    }
    (directory / "server.properties").write_text(
        "".join(f"{key}={value}\n" for key, value in properties.items())
    )
    return ApacheKafka(
        release=release, settings={"process.roles": "broker"}, port=port, directory=directory
    )

"""One container of kraftsim: what it runs by default, with settings, with several nodes, and as
Testcontainers starts it.

There is no container engine here. The commands of the image run as processes in the folder that
replaces its root; ports are those of this machine, so every test chooses its own. What an engine
does besides (publish ports, resolve host names, users, the digest of the base image) is not tried.
"""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraftsim.cluster.ports import free_port_range
from tests.cluster.broker_client import batch_of, broker_client
from tests.compose.dockerfile import Image

pytestmark = pytest.mark.interop
SECONDS = 40.0
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
JAVA_WAITS_FOR = r".*Transitioning from RECOVERY to RUNNING.*"
"""org.testcontainers.kafka.KafkaHelper.WAIT_STRATEGY of Testcontainers for Java."""
PYTHON_WAITS_FOR = r".*Kafka Server started.*"
PYTHON_WAITS_FOR_IN_ZOOKEEPER_MODE = r".*\[KafkaServer id=\d+\] started.*"
"""`wait_for` of testcontainers.kafka.KafkaContainer in Python, with and without `with_kraft`."""


class Container:
    """A process of the image, with its log."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        """What it wrote."""
        return self._log.read_text(errors="replace")

    def wait_for(self, pattern: str) -> float:
        """Wait for a line of the log, and return after how many seconds it came."""
        began = time.monotonic()
        while not re.search(pattern, self.log):
            assert self.process.poll() is None, self.log
            assert time.monotonic() - began < SECONDS, self.log
            time.sleep(0.01)
        return time.monotonic() - began


@contextmanager
def container(
    image: Image, home: Path, environment: Mapping[str, str], *command: str
) -> Iterator[Container]:
    """Run the image as `docker run` does, and stop it as `docker stop`: SIGTERM, exit code 0."""
    (home / "node").mkdir(parents=True, exist_ok=True)
    log = home / "container.log"
    words = [image.local(word) for word in (*image.entrypoint, *(command or image.default_command))]
    with open(log, "wb") as output:
        process = subprocess.Popen(
            words,
            cwd=home,
            env={**image.process_environment(), "HOME": str(home), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    running = Container(process, log)
    try:
        yield running
    finally:
        # an engine ends all processes of a container: a shell in front does not pass SIGTERM on
        os.killpg(process.pid, signal.SIGTERM)
        code = process.wait(SECONDS)
    assert code in (0, -signal.SIGTERM), running.log


def on_ports(clients: int, controllers: int) -> dict[str, str]:
    """The settings that keep a node to ports of this test."""
    return {
        "KAFKA_LISTENERS": f"PLAINTEXT://:{clients},CONTROLLER://:{controllers}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{clients}",
    }


def writes_and_reads(address: str, topic: str = "t") -> None:
    """A client creates a topic, writes and reads."""
    with broker_client(address) as broker:
        broker.create_topic(topic)
        broker.produce(topic, batch_of([b"one"]))
        assert broker.values(topic) == [b"one"]


def test_the_image_exposes_kafkas_port_and_checks_its_health(node_image: Image) -> None:
    assert node_image.ports == [9092]
    assert node_image.health == ("kraftsim", "container", "--check")


def test_a_container_runs_one_combined_node_with_kafkas_settings(
    node_image: Image, tmp_path: Path
) -> None:
    port = free_port_range(2)
    environment = {**on_ports(port, port + 1), "KAFKA_NUM_PARTITIONS": "3", "KAFKA_FOO_BAR": "x"}
    with container(node_image, tmp_path, environment) as running:
        running.wait_for(JAVA_WAITS_FOR)
        assert "foo.bar were supplied but are not used" in running.log
        writes_and_reads(f"127.0.0.1:{port}")
        check = node_image.process(*node_image.health, environment=environment)
        assert check.returncode == 0, check.stderr
        addresses = {address for _, _, _, _, address in socket.getaddrinfo("localhost", port)}
        assert addresses  # listens on all of them, so also where an engine forwards to
    assert running.process.returncode == 0 and "event=stopped" in running.log
    check = node_image.process(*node_image.health, environment=environment)
    assert check.returncode == 1 and check.stderr.count("\n") == 1
    with container(node_image, tmp_path, environment) as running:
        running.wait_for(JAVA_WAITS_FOR)
        with broker_client(f"127.0.0.1:{port}") as broker:
            assert broker.values("t") == [b"one"]


def test_testcontainers_for_java_starts_it(node_image: Image, tmp_path: Path) -> None:
    """org.testcontainers.kafka.KafkaContainer: it starts a shell that waits for a script, copies
    the script with the mapped port in it, and waits for a line of the log.
    """
    port = free_port_range(3)
    environment = {
        "CLUSTER_ID": CLUSTER_ID,
        "KAFKA_LISTENERS": f"PLAINTEXT://:{port},BROKER://:{port + 1},CONTROLLER://:{port + 2}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
            "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_NODE_ID": "1",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": str(2**63 - 1),
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
    script = Path(node_image.local("/tmp/testcontainers_start.sh"))
    script.parent.mkdir(exist_ok=True)
    waiting = f"while [ ! -f {script} ]; do sleep 0.1; done; {script}"
    with container(node_image, tmp_path, environment, "sh", "-c", waiting) as running:
        command = node_image.local(
            "#!/bin/bash\n"
            f"export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:{port},"
            f"BROKER://localhost:{port + 1}\n"
            "/etc/kafka/docker/run \n"
        )
        written = script.with_suffix(".new")
        written.write_text(command)
        written.chmod(0o777)
        written.rename(script)
        running.wait_for(JAVA_WAITS_FOR)
        writes_and_reads(f"127.0.0.1:{port}")
    meta = (tmp_path / "node" / "data" / "meta.properties").read_text()
    assert f"cluster.id={CLUSTER_ID}\n" in meta and "node.id=1\n" in meta


@pytest.mark.parametrize("has_kraft", [True, False])
def test_testcontainers_for_python_starts_it(
    node_image: Image, tmp_path: Path, has_kraft: bool
) -> None:
    """testcontainers.kafka.KafkaContainer in Python is made for Confluent's image: its script edits
    /etc/confluent/docker/configure, sources bash-config and calls configure and launch; without
    `with_kraft` it starts ZooKeeper first.
    """
    port = free_port_range(4)
    zookeeper = port + 3
    protocols = "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    environment = {
        "KAFKA_LISTENERS": f"PLAINTEXT://0.0.0.0:{port},BROKER://0.0.0.0:{port + 1}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": protocols,
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
        "KAFKA_BROKER_ID": "1",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
        "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "10000000",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
    before = f"""
echo 'clientPort={zookeeper}' > zookeeper.properties
echo 'dataDir=/var/lib/zookeeper/data' >> zookeeper.properties
echo 'dataLogDir=/var/lib/zookeeper/log' >> zookeeper.properties
zookeeper-server-start zookeeper.properties &
export KAFKA_ZOOKEEPER_CONNECT='localhost:{zookeeper}'
"""
    if has_kraft:
        own = f"{environment['KAFKA_LISTENERS']},CONTROLLER://0.0.0.0:{port + 2}"
        environment |= {
            "CLUSTER_ID": "TUtVM09FVkJOVGN3TlRKRA==",
            "KAFKA_NODE_ID": "1",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": f"{protocols},CONTROLLER:PLAINTEXT",
            "KAFKA_LISTENERS": own,
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@localhost:{port + 2}",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        }
        formats = "kafka-storage format --ignore-formatted -t ID -c /etc/kafka/kafka.properties"
        before = f"""
sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure
echo '{formats}' >> /etc/confluent/docker/configure
"""
    configure = Path(node_image.local("/etc/confluent/docker/configure"))
    former = configure.read_text()
    script = tmp_path / "tc-start.sh"
    waiting = f"while [ ! -f {script} ]; do sleep 0.1; done; sh {script}"
    waits_for = PYTHON_WAITS_FOR if has_kraft else PYTHON_WAITS_FOR_IN_ZOOKEEPER_MODE
    try:
        with container(node_image, tmp_path, environment, "sh", "-c", waiting) as running:
            text = node_image.local(
                f"#!/bin/bash\n{before}\n"
                f"export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:{port},"
                f"BROKER://127.0.0.1:{port + 1}\n"
                ". /etc/confluent/docker/bash-config\n"
                "/etc/confluent/docker/configure\n"
                "/etc/confluent/docker/launch\n"
            )
            (tmp_path / "new").write_text(text)
            (tmp_path / "new").rename(script)
            running.wait_for(waits_for)
            writes_and_reads(f"127.0.0.1:{port}")
    finally:
        configure.write_text(former)


def test_an_unusable_setting_is_one_line_and_exit_code_3(node_image: Image) -> None:
    for environment, line in (
        ({"KAFKA_NODE_ID": "one"}, "Error: node.id: expected a whole number of 0 or more"),
        ({"KRAFTSIM_BROKERS": "many"}, "Error: KRAFTSIM_BROKERS: expected a whole number"),
        ({"KRAFTSIM_RELEASE": "1.0"}, "Error: no release is called 1.0"),
        (
            {"KRAFTSIM_BROKERS": "1", "KRAFTSIM_CONTROLLERS": "3"},
            "Error: KRAFTSIM_CONTROLLERS=3: the controllers are brokers here",
        ),
    ):
        done = node_image.process(
            *node_image.entrypoint, *node_image.default_command, environment=environment
        )
        assert done.returncode == 3 and done.stderr.splitlines()[-1].startswith(line), done.stderr

"""docker-compose.yml cannot rot: its very commands, settings and health checks run here, and a real client works through them."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compose.containers import COMPOSE_FILE, HOUSE, Containers, composed, services

RECORDS = 300
PARTITIONS = 6


def produce_and_read_back(bootstrap: str) -> list[int]:
    """Let librdkafka make a topic, write records with idempotence, and read every partition back; return what was read."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("composed", num_partitions=PARTITIONS, replication_factor=1)])["composed"].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(RECORDS):
        producer.produce("composed", str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("composed", partition, 0) for partition in range(PARTITIONS)])
    found: list[int] = []
    while len(found) < RECORDS:
        messages = consumer.consume(RECORDS, timeout=20)
        assert messages, f"only {len(found)} records came back"
        found += [int(message.value()) for message in messages if message.error() is None]
    consumer.close()
    return found


@pytest.mark.interop
def test_a_real_client_works_through_the_composed_cluster(tmp_path: Path):
    with composed(tmp_path) as containers:
        brokers = [name for name in containers.services if name.startswith("broker-")]
        assert len(brokers) == 3
        bootstrap = f"{containers.address('broker-1')}:9092"
        assert sorted(produce_and_read_back(bootstrap)) == list(range(RECORDS))
        described = AdminClient({"bootstrap.servers": bootstrap}).list_topics("composed", timeout=10)
        leaders = {partition.leader for partition in described.topics["composed"].partitions.values()}
        assert leaders == {1, 2, 3}, "the partitions are spread over the brokers"
        codes = containers.stop()
    assert set(codes.values()) == {0}, "a node that is asked to stop ends with 0"
    events = {file.name.split(".")[0] for file in (tmp_path / "run" / "events").glob("*.jsonl")}
    assert events == set(services())


@pytest.mark.interop
@pytest.mark.spark
def test_the_story_is_played_analysed_and_reported(tmp_path: Path):
    """The profile `story`, with its own command."""
    (tmp_path / "run").mkdir()
    containers = Containers(tmp_path, services("story"))
    command = [containers.mapped(word, "story") for word in containers.services["story"]["command"]]
    done = subprocess.run(command, cwd=tmp_path, env=containers.environment("story"), capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run" / "story" / "report.html").stat().st_size > 10_000


def test_the_file_declares_one_controller_and_three_brokers():
    assert list(services()) == ["controller-101", "broker-1", "broker-2", "broker-3"]
    assert list(services("story")) == ["story"]


def test_every_node_has_a_health_check_a_host_name_and_the_volume():
    for name, service in services().items():
        assert service["hostname"] == name
        assert service["healthcheck"]["test"][:4] == ["CMD", "kraftsim", "doctor", "--node"]
        assert service["volumes"] == ["run:/var/lib/kraftsim/run"]
        assert service["command"] == ["kraftsim", "node", "--environment"]


def test_what_is_published_is_what_is_advertised_and_only_on_this_machine():
    for name, service in services().items():
        if name.startswith("broker-"):
            advertised = re.search(r"EXTERNAL://localhost:(\d+)", service["environment"]["KAFKA_ADVERTISED_LISTENERS"])
            assert advertised is not None
            assert service["ports"] == [f"127.0.0.1:{advertised[1]}:{advertised[1]}"]


def test_images_are_targets_of_the_dockerfile():
    targets = set(re.findall(r"^FROM \S+ AS (\w+)$", (HOUSE / "Dockerfile").read_text(), flags=re.M))
    built = {service["build"]["target"] for service in yaml.safe_load(COMPOSE_FILE.read_text())["services"].values()}
    assert built == targets == {"node", "analysis"}
    users = [shlex.split(line)[1] for line in (HOUSE / "Dockerfile").read_text().splitlines() if line.startswith("USER ")]
    assert users[-1] == "kraftsim", "nothing runs as root"

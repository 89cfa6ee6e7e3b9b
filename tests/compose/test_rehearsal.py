"""The Compose cluster runs with its own commands, environment and health checks, and real clients
use it.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kraftsim.cluster.ports import free_port_range
from tests.compose.composition import Service, composition
from tests.compose.dockerfile import Image
from tests.compose.rehearsal import Rehearsal, rehearsal

pytestmark = pytest.mark.interop
TOPIC = "composed"
SECONDS = 30.0
QUIET: dict[str, str | int | float] = {"log_level": 0, "broker.address.family": "v4"}


def nodes() -> dict[str, Service]:
    """The default services, on free ports."""
    return of_profile("", "BROKER_1_PORT", "BROKER_2_PORT", "BROKER_3_PORT")


def of_profile(profile: str, *ports: str) -> dict[str, Service]:
    """The services of a profile, with free ports in the place of some variables."""
    first = free_port_range(3)
    chosen = composition(**{name: str(first + number) for number, name in enumerate(ports)})
    return {
        name: service
        for name, service in chosen.items()
        if (profile in service.profiles if profile else not service.profiles)
    }


@pytest.fixture(scope="module")
def cluster(node_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsal(nodes(), node_image, tmp_path_factory.mktemp("composed")) as running:
        admin = AdminClient({**QUIET, "bootstrap.servers": outside(running)})
        give_up_at = time.monotonic() + SECONDS
        while (
            len(admin.list_topics(timeout=SECONDS).brokers) < 3
        ):  # a healthy broker may not have the metadata of the others yet
            assert time.monotonic() < give_up_at, "three brokers are unfenced"
            time.sleep(0.05)
        yield running


def outside(cluster: Rehearsal) -> str:
    """The bootstrap servers for a client on this machine."""
    return ",".join(
        f"localhost:{service.published[0].port}"
        for service in cluster.services.values()
        if service.published
    )


def read_all(bootstrap: str, count: int) -> list[Message]:
    consumer = Consumer(
        {**QUIET, "bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(3)])
    read: list[Message] = []
    give_up_at = time.monotonic() + SECONDS
    while len(read) < count:
        assert time.monotonic() < give_up_at, f"{len(read)} of {count} were read"
        read += [message for message in consumer.consume(count, 0.2) if message.error() is None]
    consumer.close()
    return read


def test_clients_inside_and_outside_get_reachable_addresses(cluster: Rehearsal) -> None:
    """advertised.listeners: clients of a published port get published ports, clients of a service
    name get service names.
    """
    described = AdminClient(
        {**QUIET, "bootstrap.servers": outside(cluster).partition(",")[0]}
    ).list_topics(timeout=SECONDS)
    ports = [
        service.published[0].port for service in cluster.services.values() if service.published
    ]
    assert {(str(broker.host), broker.port) for broker in described.brokers.values()} == {
        ("localhost", port) for port in ports
    }
    inside = AdminClient(
        {**QUIET, "bootstrap.servers": f"{cluster.address('broker-2')}:9092"}
    ).list_topics(timeout=SECONDS)
    brokers = [name for name in cluster.services if name.startswith("broker-")]
    assert {(str(broker.host), broker.port) for broker in inside.brokers.values()} == {
        (cluster.address(name), 9092) for name in brokers
    }


def test_records_written_from_outside_survive_a_full_stop(cluster: Rehearsal) -> None:
    """Each broker is leader of a partition; all are stopped, and restarted on the same volumes."""
    admin = AdminClient({**QUIET, "bootstrap.servers": outside(cluster)})
    admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(SECONDS)
    producer = Producer(
        {**QUIET, "bootstrap.servers": outside(cluster), "enable.idempotence": True, "linger.ms": 5}
    )
    for number in range(600):
        producer.produce(TOPIC, b"%d" % number, partition=number % 3)
    assert producer.flush(SECONDS) == 0
    partitions = admin.list_topics(TOPIC, timeout=SECONDS).topics[TOPIC].partitions.values()
    assert {partition.leader for partition in partitions} == {1, 2, 3}
    assert sorted(
        int(message.value() or b"") for message in read_all(outside(cluster), 600)
    ) == list(range(600))
    assert cluster.stop_all() == dict.fromkeys(cluster.services, 0), (
        "a node that is asked to stop exits with 0"
    )
    cluster.start_all()
    assert sorted(
        int(message.value() or b"") for message in read_all(outside(cluster), 600)
    ) == list(range(600))


def test_a_health_check_fails_while_its_node_is_down(cluster: Rehearsal) -> None:
    assert cluster.is_healthy("broker-3")
    cluster.processes["broker-3"].terminate()
    assert cluster.processes["broker-3"].wait(SECONDS) == 0
    assert not cluster.is_healthy("broker-3")
    cluster.start("broker-3")
    cluster.wait_until_healthy("broker-3")


def test_the_quorum_profile_survives_a_node_and_its_logs_are_analysed(
    node_image: Image, analysis_image: Image, tmp_path: Path
) -> None:
    """Three combined nodes; then `run analysis`, which reads the event logs in the shared volume
    and writes the report beside them.
    """
    services = of_profile("quorum", "NODE_1_PORT", "NODE_2_PORT", "NODE_3_PORT")
    with rehearsal(services, node_image, tmp_path) as running:
        running.processes["node-2"].kill()
        running.processes["node-2"].wait()
        places = outside(running).split(",")
        left = f"{places[0]},{places[2]}"
        admin = AdminClient({**QUIET, "bootstrap.servers": left})
        admin.create_topics([NewTopic(TOPIC, 3, 2)])[TOPIC].result(SECONDS)
        producer = Producer({**QUIET, "bootstrap.servers": left, "enable.idempotence": True})
        for number in range(30):
            producer.produce(TOPIC, b"%d" % number, partition=number % 3)
        assert producer.flush(SECONDS) == 0
        assert len(read_all(left, 30)) == 30
        running.start("node-2")
        running.wait_until_healthy("node-2")
    analysis = Rehearsal({"analysis": composition()["analysis"]}, analysis_image, tmp_path)
    done = analysis.run("analysis", seconds=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one-vote-per-epoch" in done.stdout and "violated" not in done.stdout
    assert (analysis.volume("run") / "report.html").stat().st_size > 10_000


def test_the_zookeeper_profile_migrates_its_broker(node_image: Image, tmp_path: Path) -> None:
    """The metadata is copied to the KRaft controller, and the broker starts again without
    ZooKeeper, under the same id on the same volume.
    """
    chosen = of_profile("zookeeper", "ZK_BROKER_PORT")
    port = str(chosen["zk-broker"].published[0].port)
    after = composition(ZK_BROKER_PORT=port)["migrated-broker"]
    services = {**chosen, "migrated-broker": after}
    running = Rehearsal(services, node_image, tmp_path)
    address = f"{running.address('zk-broker')}:9092"
    try:
        for name in chosen:
            running.start(name)
            running.wait_until_healthy(name)
        admin = AdminClient({**QUIET, "bootstrap.servers": address})
        admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(SECONDS)
        give_up_at = time.monotonic() + SECONDS
        log = running.volume("run") / "events" / "controller-301.1.jsonl"
        while '"ZookeeperMetadataCopied"' not in log.read_text():
            assert time.monotonic() < give_up_at, running.log("zk-controller")
            time.sleep(0.1)
        running.processes.pop("zk-broker").terminate()
        running.start("migrated-broker")
        running.wait_until_healthy("migrated-broker")
        moved = AdminClient(
            {**QUIET, "bootstrap.servers": f"{running.address('migrated-broker')}:9092"}
        ).list_topics(timeout=SECONDS)
        assert TOPIC in moved.topics
    finally:
        running.stop_all()


@pytest.mark.spark
def test_the_compose_profile_runs_and_checks_a_scenario(
    analysis_image: Image, tmp_path: Path
) -> None:
    """Its commands, one after the other, in their image."""
    services = {
        name: service
        for name, service in composition(SEED="2", RUN="second").items()
        if "scenario" in service.profiles
    }
    cluster = Rehearsal(services, analysis_image, tmp_path)
    report = services["scenario-report"]
    assert report.depends_on == {"scenario": "service_completed_successfully"}
    for name, seconds in (("scenario", 120), ("scenario-report", 300)):
        done = cluster.run(name, seconds=seconds)
        assert done.returncode == 0, done.stdout + done.stderr
    run = cluster.volume("runs") / "second"
    about = json.loads((run / "run.json").read_text())
    assert (about["scenario"], about["mode"], about["seed"], about["outcome"]) == (
        "producer_ids_survive_failover",
        "processes",
        2,
        "ok",
    )
    assert (run / "report.html").stat().st_size > 10_000
    assert "producer-id-unique" in done.stdout

"""Real clients that authenticate, with or without TLS, on nodes that authenticate to each other;
Kafka's tools for ACLs and credentials.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, ClusterSpec
from tests.apache_kafka.harness import run_java
from tests.conformance.secured import JAAS

pytestmark = pytest.mark.interop
SECONDS = 20.0
SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
Made = dict[str, str | int | float | bool]


@dataclass(frozen=True)
class Secured:
    """The listeners of a cluster, and the certificates that its clients trust."""

    plaintext: str
    sasl: str
    sasl_tls: str
    certified: str
    authority: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Two brokers and a controller that authenticate to each other, the brokers over TLS."""
    directory = tmp_path_factory.mktemp("tls")
    certificate, pem = make_certificate(directory)
    port = free_port_range(8)
    addresses = [
        [f"127.0.0.1:{port + broker + 2 * index}" for index in range(4)] for broker in range(2)
    ]
    settings = {
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,SASL:SASL_PLAINTEXT,SAFE:SASL_SSL,"
            "CERT:SSL"
        ),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin;User:CN=127.0.0.1,O=house",
        "listener.name.cert.ssl.client.auth": "required",
        "listener.name.cert.ssl.keystore.location": "",
        "listener.name.cert.ssl.keystore.key": (directory / "key.pem")
        .read_text()
        .replace("\n", " "),
        "listener.name.cert.ssl.keystore.certificate.chain": certificate.read_text().replace(
            "\n", " "
        ),
        "listener.name.cert.ssl.truststore.certificates": certificate.read_text().replace(
            "\n", " "
        ),
        **{
            f"listener.name.{name}.plain.sasl.jaas.config": JAAS
            for name in ("controller", "sasl", "safe")
        },
        **{
            f"listener.name.{name}.scram-sha-{size}.sasl.jaas.config": SCRAM_JAAS
            for name in ("sasl", "safe")
            for size in (256, 512)
        },
    }
    own = {
        f"broker-{1 + broker}": {
            "listeners": (
                f"PLAINTEXT://{addresses[broker][0]},SASL://{addresses[broker][1]},SAFE://"
                f"{addresses[broker][2]},CERT://{addresses[broker][3]}"
            ),
            "inter.broker.listener.name": "SAFE",
        }
        for broker in range(2)
    }
    assert len(addresses) * 4 < CONTROLLER_PORT_DISTANCE
    with EmbeddedCluster(
        ClusterSpec(brokers=2, port=port, settings=settings, node_settings=own)
    ) as cluster:
        cluster.wait_until_ready()
        plaintext, sasl, sasl_tls, certified = addresses[0]
        yield Secured(plaintext, sasl, sasl_tls, certified, authority=certificate)


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Return a self-signed certificate, and a file that also has its key."""
    key, certificate, both = (
        directory / "key.pem",
        directory / "certificate.pem",
        directory / "both.pem",
    )
    asked = [
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/O=house/CN=127.0.0.1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    command = ["openssl", "req", "-x509", *asked, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    both.write_text(key.read_text() + certificate.read_text())
    return certificate, both


def login(secured: Secured, *, tls: bool, mechanism: str, user: str, password: str) -> Made:
    """Return the settings of librdkafka."""
    return {
        "bootstrap.servers": secured.sasl_tls if tls else secured.sasl,
        "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(secured.authority),
    }


def make_topic(secured: Secured, name: str) -> None:
    """Create a topic with two replicas as a super user."""
    admin = AdminClient(
        login(secured, tls=False, mechanism="PLAIN", user="admin", password="admin-secret")
    )
    admin.create_topics([NewTopic(name, 1, 2)])[name].result(SECONDS)


def make_scram_user(secured: Secured, user: str, password: str, mechanism: str) -> None:
    """With kafka-configs --alter, as an administrator does."""
    change = f"{mechanism}=[iterations=4096,password={password}]"
    named = ("--entity-type", "users", "--entity-name", user)
    run(
        "kafka.admin.ConfigCommand",
        "--bootstrap-server",
        secured.plaintext,
        "--alter",
        "--add-config",
        change,
        *named,
    )
    assert mechanism in run(
        "kafka.admin.ConfigCommand", "--bootstrap-server", secured.plaintext, "--describe", *named
    )


def run(main_class: str, *arguments: str) -> str:
    """Run one of Kafka's tools until it exits."""
    done = run_java("3.9.1", main_class, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def round_trip(settings: Made, topic: str) -> list[bytes]:
    """Write idempotently with acks=all, and read."""
    producer = Producer({**settings, "enable.idempotence": True})
    failures: list[KafkaError] = []
    for number in range(100):
        producer.produce(
            topic,
            b"%d" % number * 1000,
            partition=0,
            on_delivery=lambda error, message: failures.append(error) if error else None,
        )
    assert producer.flush(SECONDS) == 0
    assert failures == []
    consumer = Consumer({**settings, "group.id": "readers", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read: list[bytes] = []
    while len(read) < 100:
        message = consumer.poll(SECONDS)
        assert message is not None and message.error() is None, message and message.error()
        read.append(message.value() or b"")
    consumer.close()
    return read


EXPECTED = [b"%d" % number * 1000 for number in range(100)]


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_librdkafka_writes_and_reads_as_a_super_user(
    secured: Secured, topic: str, tls: bool
) -> None:
    make_topic(secured, topic)
    settings = login(secured, tls=tls, mechanism="PLAIN", user="admin", password="admin-secret")
    assert round_trip(settings, topic) == EXPECTED


def test_librdkafka_logs_in_with_scram_users_and_acls_set_by_kafka_tools(
    secured: Secured, topic: str
) -> None:
    make_topic(secured, topic)
    settings = {}
    for mechanism, user in (("SCRAM-SHA-256", "carol"), ("SCRAM-SHA-512", "dave")):
        make_scram_user(secured, user, "secret of them", mechanism)
        settings[user] = login(
            secured,
            tls=mechanism.endswith("512"),
            mechanism=mechanism,
            user=user,
            password="secret of them",
        )
    refused = error_of_write(settings["carol"], topic)
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    tool = ("kafka.admin.AclCommand", "--bootstrap-server", secured.plaintext)
    names = ("--allow-principal", "User:carol", "--allow-principal", "User:dave")
    run(
        *tool,
        "--add",
        *names,
        "--operation",
        "Read",
        "--operation",
        "Write",
        "--topic",
        topic[:10],
        "--resource-pattern-type",
        "prefixed",
    )
    run(*tool, "--add", *names, "--operation", "Read", "--group", "readers")
    listed = run(*tool, "--list")
    assert "principal=User:carol" in listed and "patternType=PREFIXED" in listed
    for user in ("carol", "dave"):
        assert round_trip({**settings[user]}, topic)[:100] == EXPECTED
    prefixed = ("--topic", topic[:10], "--resource-pattern-type", "prefixed")
    run(*tool, "--remove", "--force", *prefixed)
    assert "User:carol" not in run(*tool, "--list", *prefixed)


def error_of_write(settings: Made, topic: str) -> KafkaError | None:
    """Write one record without idempotence, and return the result."""
    errors: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": 10000})
    producer.produce(
        topic, b"value", partition=0, on_delivery=lambda error, message: errors.append(error)
    )
    producer.flush(SECONDS)
    return errors[0]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_librdkafka_reports_a_wrong_password(secured: Secured, mechanism: str) -> None:
    errors: list[KafkaError] = []
    settings = login(secured, tls=False, mechanism=mechanism, user="alice", password="guess")
    admin = Producer({**settings, "error_cb": errors.append})
    for _ in range(20):
        admin.poll(0.2)
        if errors:
            break
    assert KafkaError._AUTHENTICATION in [error.code() for error in errors], errors


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_kafka_python_produces_and_reports_a_wrong_password(
    secured: Secured, topic: str, tls: bool
) -> None:
    make_topic(secured, topic)
    settings = {
        "bootstrap_servers": secured.sasl_tls if tls else secured.sasl,
        "security_protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "admin",
        "ssl_cafile": str(secured.authority),
    }
    producer = kafka.KafkaProducer(**settings, sasl_plain_password="admin-secret")
    assert producer.send(topic, b"value").get(SECONDS).offset == 0
    producer.close()
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(
            **settings, sasl_plain_password="guess", max_block_ms=3000, bootstrap_timeout_ms=3000
        ).send(topic, b"x").get(5)


def test_a_client_certificate_is_required_and_sets_the_principal(
    secured: Secured, topic: str
) -> None:
    make_topic(secured, topic)
    settings = {
        "bootstrap.servers": secured.certified,
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.authority),
    }
    own = {
        "ssl.certificate.location": str(secured.authority),
        "ssl.key.location": str(secured.authority.with_name("key.pem")),
    }
    assert round_trip({**settings, **own}, topic) == EXPECTED
    errors: list[KafkaError] = []
    stranger = Producer({**settings, "error_cb": errors.append})
    for _ in range(20):
        stranger.poll(0.2)
        if errors:
            break
    assert errors, "a client without a certificate gets a connection error"

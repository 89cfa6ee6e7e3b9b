"""Nodes with a SASL listener and an authorizer, Apache Kafka's and ours, with the same
configuration.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, ClusterSpec
from kraftsim.conformance.expect import settled
from kraftsim.conformance.target import Target
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.zookeeper_mode import broker_of_zookeeper
from tests.node.zookeeper_server import running_zookeeper

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret" '
    'user_alice="alice-secret" user_bob="bob-secret";'
)
SECURITY = {
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,WATCHED:SASL_PLAINTEXT"
    ),
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": JAAS,
    "listener.name.watched.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.watched.plain.sasl.jaas.config": JAAS,
    "controller.listener.names": "CONTROLLER,WATCHED",
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "listener.name.sasl.scram-sha-512.connections.max.reauth.ms": "60000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "group.initial.rebalance.delay.ms": "0",
}
ZOOKEEPER_SECONDS = 30.0


@contextmanager
def secured_apache_kafka(release: str, others: Mapping[str, str] | None = None) -> Iterator[Target]:
    """One node of Apache Kafka, with other settings beside these."""
    port = free_port_range(4)
    plain, sasl, control, watched = (f"127.0.0.1:{port + index}" for index in range(4))
    settings = {
        **SECURITY,
        "listeners": f"PLAINTEXT://{plain},SASL://{sasl},CONTROLLER://{control},WATCHED://{watched}",
        "advertised.listeners": f"PLAINTEXT://{plain},SASL://{sasl}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.voters": f"1@{control}",
        **(others or {}),
    }
    with ApacheKafka(release, settings, port=port, controller_port=port + 2):
        yield _target(plain, control, sasl, watched)


@contextmanager
def secured_kraftsim(
    release: str, brokers: int = 1, others: Mapping[str, str] | None = None
) -> Iterator[Target]:
    """A cluster of ours, with other settings beside these."""
    port = free_port_range(brokers + 1)
    plain, sasl, control = (
        f"127.0.0.1:{port}",
        f"127.0.0.1:{port + brokers}",
        f"127.0.0.1:{port + CONTROLLER_PORT_DISTANCE}",
    )
    watched = f"127.0.0.1:{port + CONTROLLER_PORT_DISTANCE + 1}"
    own = {
        "broker-1": {"listeners": f"PLAINTEXT://{plain},SASL://{sasl}"},
        "controller-101": {"listeners": f"CONTROLLER://{control},WATCHED://{watched}"},
    }
    with EmbeddedCluster(
        ClusterSpec(
            brokers=brokers,
            release=release,
            port=port,
            settings={**SECURITY, **(others or {})},
            node_settings=own,
        )
    ):
        yield _target(plain, control, sasl, watched)


@contextmanager
def secured_zookeeper_mode(release: str) -> Iterator[Target]:
    """A broker of ours in ZooKeeper mode, which is also the controller."""
    port = free_port_range(2)
    plain, sasl = (f"127.0.0.1:{port + index}" for index in range(2))
    settings = _of_zookeeper_mode()
    own = {"broker-1": {"listeners": f"PLAINTEXT://{plain},SASL://{sasl}"}}
    spec = ClusterSpec(
        brokers=1,
        controllers=0,
        zookeeper=True,
        release=release,
        port=port,
        settings=settings,
        node_settings=own,
    )
    with EmbeddedCluster(spec):
        yield Target(plain, "", sasl)


@contextmanager
def secured_apache_kafka_in_zookeeper_mode() -> Iterator[Target]:
    """A broker of Apache Kafka 3.9, the last release line with ZooKeeper, on a ZooKeeper server of
    ours.
    """
    port = free_port_range(2)
    plain, sasl = (f"127.0.0.1:{port + index}" for index in range(2))
    listeners = f"PLAINTEXT://{plain},SASL://{sasl}"
    with (
        TemporaryDirectory(prefix="kraftsim-secured-") as directory,
        running_zookeeper(Path(directory)) as zookeeper,
    ):
        named = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "inter.broker.listener.name": "PLAINTEXT",
        }
        broker = broker_of_zookeeper(zookeeper.port, settings={**_of_zookeeper_mode(), **named})
        broker.port = port
        with broker:
            target = Target(plain, "", sasl)
            settled(
                lambda: _live_brokers(target),
                lambda count: count > 0,
                "a broker registered at the controller",
                ZOOKEEPER_SECONDS,
            )
            yield target


def _live_brokers(target: Target) -> int:
    """Return the number of brokers in Metadata: none until UpdateMetadata of the controller."""
    with target.peer() as peer:
        return len(peer.ask(MetadataRequest(topics=[]), 9, MetadataResponse).brokers)


def _of_zookeeper_mode() -> dict[str, str]:
    """Return the configs without those of KRaft controllers."""
    settings = {
        key: value
        for key, value in SECURITY.items()
        if "watched" not in key and key != "controller.listener.names"
    }
    settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT"
    settings["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"
    return settings


def _target(plain: str, control: str, sasl: str, watched: str) -> Target:
    target = Target(plain, control, sasl)
    target.sasl_controller = watched
    return target

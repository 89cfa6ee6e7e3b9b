"""Nodes with a SASL listener and an authorizer, Apache Kafka's and ours, configured alike."""

from collections.abc import Iterator
from contextlib import contextmanager

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, ClusterSpec
from kraftsim.conformance.target import Target
from tests.apache_kafka.harness import ApacheKafka

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret" user_alice="alice-secret" user_bob="bob-secret";'
)
SECURITY = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,WATCHED:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": JAAS,
    "listener.name.watched.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.watched.plain.sasl.jaas.config": JAAS,
    "controller.listener.names": "CONTROLLER,WATCHED",
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}


@contextmanager
def secured_apache_kafka(release: str) -> Iterator[Target]:
    """One node of Apache Kafka."""
    port = free_port_range(4)
    plain, sasl, control, watched = (f"127.0.0.1:{port + index}" for index in range(4))
    settings = {
        **SECURITY,
        "listeners": f"PLAINTEXT://{plain},SASL://{sasl},CONTROLLER://{control},WATCHED://{watched}",
        "advertised.listeners": f"PLAINTEXT://{plain},SASL://{sasl}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.voters": f"1@{control}",
    }
    with ApacheKafka(release, settings, port=port, controller_port=port + 2):
        yield _target(plain, control, sasl, watched)


@contextmanager
def secured_kraftsim(release: str, brokers: int = 1) -> Iterator[Target]:
    """A cluster of ours."""
    port = free_port_range(brokers + 1)
    plain, sasl, control = f"127.0.0.1:{port}", f"127.0.0.1:{port + brokers}", f"127.0.0.1:{port + CONTROLLER_PORT_DISTANCE}"
    watched = f"127.0.0.1:{port + CONTROLLER_PORT_DISTANCE + 1}"
    own = {
        "broker-1": {"listeners": f"PLAINTEXT://{plain},SASL://{sasl}"},
        "controller-101": {"listeners": f"CONTROLLER://{control},WATCHED://{watched}"},
    }
    with EmbeddedCluster(ClusterSpec(brokers=brokers, release=release, port=port, settings=SECURITY, node_settings=own)):
        yield _target(plain, control, sasl, watched)


def _target(plain: str, control: str, sasl: str, watched: str) -> Target:
    target = Target(plain, control, sasl)
    target.sasl_controller = watched
    return target

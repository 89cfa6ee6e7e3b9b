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
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": JAAS,
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}


@contextmanager
def secured_apache_kafka(release: str) -> Iterator[Target]:
    """One node of Apache Kafka."""
    port = free_port_range(3)
    plain, sasl, control = (f"127.0.0.1:{port + index}" for index in range(3))
    settings = {
        **SECURITY,
        "listeners": f"PLAINTEXT://{plain},SASL://{sasl},CONTROLLER://{control}",
        "advertised.listeners": f"PLAINTEXT://{plain},SASL://{sasl}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.voters": f"1@{control}",
    }
    with ApacheKafka(release, settings, port=port, controller_port=port + 2):
        yield Target(plain, control, sasl)


@contextmanager
def secured_kraftsim(release: str, brokers: int = 1) -> Iterator[Target]:
    """A cluster of ours."""
    port = free_port_range(brokers + 1)
    plain, sasl, control = f"127.0.0.1:{port}", f"127.0.0.1:{port + brokers}", f"127.0.0.1:{port + CONTROLLER_PORT_DISTANCE}"
    own = {"broker-1": {"listeners": f"PLAINTEXT://{plain},SASL://{sasl}"}}
    with EmbeddedCluster(ClusterSpec(brokers=brokers, release=release, port=port, settings=SECURITY, node_settings=own)):
        yield Target(plain, control, sasl)

"""The properties with which a broker of Apache Kafka joins a running cluster, taken from the
property files of the cluster's own nodes.

Source: process.roles, controller.quorum.voters and controller.quorum.bootstrap.servers of
kafka.server.KafkaConfig; KIP-853.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kraftsim.cluster.spec import CLIENT_LISTENER, CONTROLLER_LISTENER

QUORUM_KEYS = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
"""A static quorum is configured with all voters, a dynamic one with bootstrap servers."""
ONE_REPLICA = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""Apache Kafka's internal topics need three brokers by default, and this cluster may have fewer."""


class NothingToJoin(ValueError):
    """There is no such cluster, or the node does not fit into it; one line."""


def broker_properties(
    nodes: Sequence[Mapping[str, str]], *, node_id: int, host: str, port: int, log_dir: Path
) -> dict[str, str]:
    """Return the server.properties of a broker that joins nodes with these properties.

    Raises NothingToJoin.
    """
    if not nodes:
        raise NothingToJoin("there is no cluster: `kraftsim up` writes the properties of its nodes")
    taken = sorted(int(node["node.id"]) for node in nodes)
    if node_id in taken:
        raise NothingToJoin(
            f"node {node_id} is there already (nodes: {', '.join(map(str, taken))}); choose "
            "another --node-id"
        )
    address = f"{host}:{port}"
    if any(
        address == listener.partition("://")[2]
        for node in nodes
        for listener in node["listeners"].split(",")
    ):
        raise NothingToJoin(
            f"{address} is where a node of the cluster listens; choose another --port"
        )
    quorum = {key: nodes[0][key] for key in QUORUM_KEYS if key in nodes[0]}
    return {
        "process.roles": "broker",
        "node.id": str(node_id),
        **quorum,
        "controller.listener.names": CONTROLLER_LISTENER,
        "listener.security.protocol.map": (
            f"{CLIENT_LISTENER}:PLAINTEXT,{CONTROLLER_LISTENER}:PLAINTEXT"
        ),
        "listeners": f"{CLIENT_LISTENER}://{address}",
        "inter.broker.listener.name": CLIENT_LISTENER,
        "log.dirs": str(log_dir),
        **ONE_REPLICA,
    }


def server_properties_text(properties: Mapping[str, str], cluster_id: str) -> str:
    """Return the properties as a file with usage instructions at its beginning."""
    usage = [
        "# kafka-storage.sh format --config THIS_FILE --cluster-id " + cluster_id,
        "# kafka-server-start.sh THIS_FILE",
    ]
    return "\n".join([*usage, *(f"{key}={value}" for key, value in properties.items()), ""])

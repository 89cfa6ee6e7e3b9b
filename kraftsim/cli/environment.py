"""Reads Kafka properties from environment variables as Apache Kafka's container image does, so that
its compose files work.

KAFKA_NODE_ID is node.id; in a name, two underscores stand for one and three for a dash. CLUSTER_ID
is the id of the cluster.
Source: KIP-975, kafka.docker.KafkaDockerWrapper.
"""

import re
from collections.abc import Mapping
from typing import Final

PREFIX: Final = "KAFKA_"
CLUSTER_ID: Final = "CLUSTER_ID"
NO_SETTINGS: Final = frozenset(
    {
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_HOSTNAME",
    }
)
"""Variables that configure the JVM and not the node."""
_STANDS_FOR = {"_": ".", "__": "_", "___": "-"}


def properties_of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that environment variables set."""
    properties = {
        _property_name(variable): value
        for variable, value in environment.items()
        if variable.startswith(PREFIX) and variable not in NO_SETTINGS
    }
    if CLUSTER_ID in environment:
        properties["kraftsim.cluster.id"] = environment[CLUSTER_ID]
    return properties


def _property_name(variable: str) -> str:
    return re.sub(
        "_{1,3}", lambda found: _STANDS_FOR[found[0]], variable.removeprefix(PREFIX).lower()
    )

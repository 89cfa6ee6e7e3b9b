"""Where the properties of a node come from: a Java properties file, or environment variables.

The file has the format of Kafka's server.properties: comments, the three separators, escapes, and
continuation lines. The variables are those of Apache Kafka's container image, so that its compose
files work: KAFKA_NODE_ID is node.id; in a name, two underscores stand for one and three for a dash.
CLUSTER_ID is the id of the cluster. KRAFTSIM_RELEASE is kraftsim.release, and so on for
kraftsim's own settings.
Source: java.util.Properties.load, as far as Kafka's files use it; KIP-975,
kafka.docker.KafkaDockerWrapper.
"""

import re
from collections.abc import Mapping
from typing import Final

ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
SEPARATOR = re.compile(r"(?<!\\)(?:\s*[=:]\s*|\s+)")
GOES_ON = re.compile(r"(?<!\\)(?:\\\\)*\\$")


def read_properties(text: str) -> dict[str, str]:
    """Return the properties of a file's text; the last one of a key wins."""
    properties = {}
    for line in _logical_lines(text):
        key, *rest = SEPARATOR.split(line, maxsplit=1)
        properties[_unescaped(key)] = _unescaped(rest[0]) if rest else ""
    return properties


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    continues = False
    for raw in text.splitlines():
        line = raw.lstrip()
        if not continues and (not line or line[0] in "#!"):
            continue
        ends_open = GOES_ON.search(line) is not None
        content = line[:-1] if ends_open else line
        if continues:
            lines[-1] += content
        else:
            lines.append(content)
        continues = ends_open
    return lines


def _unescaped(text: str) -> str:
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    return re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[1]), text)


PREFIX: Final = "KAFKA_"
OWN_PREFIX: Final = "KRAFTSIM_"
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
    properties |= _own_properties(environment)
    if CLUSTER_ID in environment:
        properties["kraftsim.cluster.id"] = environment[CLUSTER_ID]
    return properties


def _own_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Return kraftsim's own settings; other variables of that prefix are no settings of a node."""
    if not any(variable.startswith(OWN_PREFIX) for variable in environment):
        return {}
    from kraftsim.server.config import declared_keys

    variables = {
        key.upper().replace(".", "_"): key
        for key in declared_keys()
        if key.startswith(OWN_PREFIX.lower().replace("_", "."))
    }
    return {
        variables[variable]: value
        for variable, value in environment.items()
        if variable in variables
    }


def _property_name(variable: str) -> str:
    return re.sub(
        "_{1,3}", lambda found: _STANDS_FOR[found[0]], variable.removeprefix(PREFIX).lower()
    )

"""ConfigRecord (4): one configuration of a topic, a broker, or another resource is set or deleted.

Source: KIP-631, ConfigRecord.json.
"""

from protocol.schema import int8, message, string

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32


@message(key=4, kind="metadata", versions="0", flexible="0+")
class ConfigRecord:
    """A null value deletes the configuration; the resource name "" of a broker means all
    brokers.
    """

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")

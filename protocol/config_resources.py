"""Enum values of configurations: resource types, sources and types of values.

Kept apart from the messages because DescribeConfigs (32), AlterConfigs (33),
IncrementalAlterConfigs (44), ListConfigResources (74) and the metadata log share them.
Source: KIP-133, KIP-226 (sources), KIP-412 (loggers), KIP-569 (types), KIP-714 (client metrics),
KIP-1043 (groups); org.apache.kafka.common.config.ConfigResource,
org.apache.kafka.common.requests.DescribeConfigsResponse.
"""

from enum import IntEnum, unique

NO_CONFIG_SOURCE = -1
"""The source in a version 0 response, which has no sources."""


@unique
class ConfigResourceType(IntEnum):
    """The type of a resource."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    """By its id; an empty name means all brokers."""
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@unique
class ConfigSource(IntEnum):
    """The source of a value."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    """The cluster-wide default for all brokers."""
    STATIC_BROKER_CONFIG = 4
    """The broker's properties file."""
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@unique
class ConfigType(IntEnum):
    """The type of a value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9
    """Never shown."""

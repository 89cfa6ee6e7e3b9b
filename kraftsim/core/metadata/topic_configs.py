"""The definition of a topic configuration, with its broker default.

The configurations themselves are in config_facts.

The topic's own value wins; then the broker's dynamic and static values, under the broker's name for
it.
Source: org.apache.kafka.storage.internals.log.LogConfig (3.9),
org.apache.kafka.server.config.ServerTopicConfigSynonyms.
"""

from dataclasses import dataclass
from typing import Final

from kraftsim.core.metadata.config_definitions import ConfigDefinition

NO_TIERED_STORAGE: Final = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with "
    "remote log storage."
)
COMPRESSIONS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


@dataclass(frozen=True, slots=True)
class TopicConfig(ConfigDefinition):
    """`broker_key` is the broker configuration with the default, if there is one."""

    broker_key: str | None = None

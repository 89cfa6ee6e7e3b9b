"""What a configuration of a topic is, with the broker setting that stands behind it. The configurations themselves are in config_facts.

The topic's own value wins; then comes what was set on the broker, dynamically or in its properties, under the broker's name for it.
Source: org.apache.kafka.storage.internals.log.LogConfig (3.9), org.apache.kafka.server.config.ServerTopicConfigSynonyms.
"""

from dataclasses import dataclass
from typing import Final

from kraftsim.core.metadata.config_definitions import ConfigDefinition

NO_TIERED_STORAGE: Final = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
COMPRESSIONS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


@dataclass(frozen=True, slots=True)
class TopicConfig(ConfigDefinition):
    """`broker_key` is the broker setting that gives the default, where there is one."""

    broker_key: str | None = None

"""What holds for the partitions of one topic: the topic's own settings where it has them, else the broker's.

Source: org.apache.kafka.storage.internals.log.LogConfig, ServerTopicConfigSynonyms.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kraftsim.core.metadata.topic_configs import effective_topic_configs
from kraftsim.core.partitions.batch_rules import AppendRules
from kraftsim.core.partitions.segments import SegmentSettings
from kraftsim.core.partitions.topic_rules import append_rules, segment_settings
from kraftsim.node.config import NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """`flush_messages`: so many records may be appended before the log must be flushed, and answers have to wait for that."""

    rules: AppendRules
    segments: SegmentSettings
    flush_messages: int


def topic_settings(config: NodeConfig, overrides: Mapping[str, str], *, replica_count: int, bounds_min_in_sync_replicas: bool) -> TopicSettings:
    """Return the settings of a topic; the controller has refused values that are none."""
    configs = effective_topic_configs(overrides, _broker_settings(config))
    return TopicSettings(
        rules=append_rules(configs, replica_count=replica_count, bounds_min_in_sync_replicas=bounds_min_in_sync_replicas),
        segments=segment_settings(configs),
        flush_messages=int(configs["flush.messages"]),
    )


def _broker_settings(config: NodeConfig) -> dict[str, str]:
    """Return the broker's settings that stand behind those of topics, by the broker's names for them."""
    return {
        "log.flush.interval.messages": str(config.log_flush_interval_messages),
        "log.index.interval.bytes": str(config.log_index_interval_bytes),
        "message.max.bytes": str(config.message_max_bytes),
        "log.message.timestamp.type": config.log_message_timestamp_type,
        "min.insync.replicas": str(config.min_insync_replicas),
        "log.segment.bytes": str(config.log_segment_bytes),
        "log.roll.ms": str(config.segment_ms),
    }

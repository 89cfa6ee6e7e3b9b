"""The configurations of a topic: names, defaults, the broker settings that stand behind them, and what a value must look like.

The topic's own value wins; then comes what was set on the broker, dynamically or in its properties, under the broker's name for it.
Source: org.apache.kafka.storage.internals.log.LogConfig (3.9), org.apache.kafka.server.config.ServerTopicConfigSynonyms.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftsim.core.metadata.config_definitions import (
    Check,
    ConfigDefinition,
    at_least,
    between,
    gzip_level,
    one_of,
    some_of,
    throttled_replicas,
)
from kraftsim.core.metadata.metadata_versions import known_version_names
from protocol.config_resources import ConfigType

LONG_MAX: Final = 2**63 - 1
WEEK_MS: Final = "604800000"
NO_TIERED_STORAGE: Final = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
COMPRESSIONS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
ZSTD_LEVELS: Final = (-131072, 22)
LZ4_LEVELS: Final = (1, 17)


@dataclass(frozen=True, slots=True)
class TopicConfig(ConfigDefinition):
    """`broker_key` is the broker setting that gives the default, where there is one."""

    broker_key: str | None = None


def _row(kind: ConfigType, default: str, check: Check | None = None, broker_key: str | None = None) -> TopicConfig:
    return TopicConfig(kind, default, check, broker_key)


def _format_version(value: object) -> str | None:
    return None if value in known_version_names() else f"Version {value} is not a valid version"


TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {
    "segment.bytes": _row(ConfigType.INT, str(1 << 30), at_least(14), "log.segment.bytes"),
    "segment.ms": _row(ConfigType.LONG, WEEK_MS, at_least(1), "log.roll.ms"),
    "segment.jitter.ms": _row(ConfigType.LONG, "0", at_least(0), "log.roll.jitter.ms"),
    "segment.index.bytes": _row(ConfigType.INT, "10485760", at_least(4), "log.index.size.max.bytes"),
    "flush.messages": _row(ConfigType.LONG, str(LONG_MAX), at_least(1), "log.flush.interval.messages"),
    "flush.ms": _row(ConfigType.LONG, str(LONG_MAX), at_least(0), "log.flush.interval.ms"),
    "retention.bytes": _row(ConfigType.LONG, "-1", None, "log.retention.bytes"),
    "retention.ms": _row(ConfigType.LONG, WEEK_MS, at_least(-1), "log.retention.ms"),
    "max.message.bytes": _row(ConfigType.INT, "1048588", at_least(0), "message.max.bytes"),
    "index.interval.bytes": _row(ConfigType.INT, "4096", at_least(0), "log.index.interval.bytes"),
    "delete.retention.ms": _row(ConfigType.LONG, "86400000", at_least(0), "log.cleaner.delete.retention.ms"),
    "min.compaction.lag.ms": _row(ConfigType.LONG, "0", at_least(0), "log.cleaner.min.compaction.lag.ms"),
    "max.compaction.lag.ms": _row(ConfigType.LONG, str(LONG_MAX), at_least(1), "log.cleaner.max.compaction.lag.ms"),
    "file.delete.delay.ms": _row(ConfigType.LONG, "60000", at_least(0), "log.segment.delete.delay.ms"),
    "min.cleanable.dirty.ratio": _row(ConfigType.DOUBLE, "0.5", between(0, 1), "log.cleaner.min.cleanable.ratio"),
    "cleanup.policy": _row(ConfigType.LIST, "delete", some_of("compact", "delete"), "log.cleanup.policy"),
    "unclean.leader.election.enable": _row(ConfigType.BOOLEAN, "false", None, "unclean.leader.election.enable"),
    "min.insync.replicas": _row(ConfigType.INT, "1", at_least(1), "min.insync.replicas"),
    "compression.type": _row(ConfigType.STRING, "producer", one_of(*COMPRESSIONS), "compression.type"),
    "compression.gzip.level": _row(ConfigType.INT, "-1", gzip_level, "compression.gzip.level"),
    "compression.lz4.level": _row(ConfigType.INT, "9", between(*LZ4_LEVELS), "compression.lz4.level"),
    "compression.zstd.level": _row(ConfigType.INT, "3", between(*ZSTD_LEVELS), "compression.zstd.level"),
    "preallocate": _row(ConfigType.BOOLEAN, "false", None, "log.preallocate"),
    "message.format.version": _row(ConfigType.STRING, "3.0-IV1", _format_version, "log.message.format.version"),
    "message.timestamp.type": _row(ConfigType.STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"), "log.message.timestamp.type"),
    "message.timestamp.difference.max.ms": _row(ConfigType.LONG, str(LONG_MAX), at_least(0), "log.message.timestamp.difference.max.ms"),
    "message.timestamp.before.max.ms": _row(ConfigType.LONG, str(LONG_MAX), at_least(0), "log.message.timestamp.before.max.ms"),
    "message.timestamp.after.max.ms": _row(ConfigType.LONG, str(LONG_MAX), at_least(0), "log.message.timestamp.after.max.ms"),
    "leader.replication.throttled.replicas": _row(ConfigType.LIST, "", throttled_replicas),
    "follower.replication.throttled.replicas": _row(ConfigType.LIST, "", throttled_replicas),
    "message.downconversion.enable": _row(ConfigType.BOOLEAN, "true", None, "log.message.downconversion.enable"),
    "remote.storage.enable": _row(ConfigType.BOOLEAN, "false"),
    "local.retention.ms": _row(ConfigType.LONG, "-2", at_least(-2), "log.local.retention.ms"),
    "local.retention.bytes": _row(ConfigType.LONG, "-2", at_least(-2), "log.local.retention.bytes"),
    "remote.log.copy.disable": _row(ConfigType.BOOLEAN, "false"),
    "remote.log.delete.on.disable": _row(ConfigType.BOOLEAN, "false"),
}
"""By name, in the order in which Kafka looks at them: of several bad values the first is complained about."""

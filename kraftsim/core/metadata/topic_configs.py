"""The configurations of a topic: names, defaults, and what a value must look like.

A broker setting such as log.segment.bytes stands behind the topic's segment.bytes; the topic's own value wins.
Source: org.apache.kafka.storage.internals.log.LogConfig (3.9), org.apache.kafka.common.config.ConfigDef.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

Parser = Callable[[str], str | None]
"""A value's text -> what is wrong with it, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """`broker_key` is the broker setting that gives the default, where there is one; `default` is Kafka's own."""

    default: str
    complaint: Parser
    broker_key: str | None = None


def _number(kind: str, lowest: int, highest: int) -> Parser:
    def complaint(text: str) -> str | None:
        try:
            value = int(text.strip())
        except ValueError:
            return f"Not a number of type {kind}"
        if value < lowest:
            return f"Value must be at least {lowest}"
        return None if value <= highest else f"Not a number of type {kind}"

    return complaint


def _int(lowest: int) -> Parser:
    return _number("INT", lowest, INT_MAX)


def _long(lowest: int) -> Parser:
    return _number("LONG", lowest, LONG_MAX)


def _one_of(*choices: str) -> Parser:
    return lambda text: None if text in choices else f"String must be one of: {', '.join(choices)}"


def _some_of(*choices: str) -> Parser:
    def complaint(text: str) -> str | None:
        parts = [part.strip() for part in text.split(",")]
        return None if all(part in choices for part in parts) else f"String must be one of: {', '.join(choices)}"

    return complaint


def _boolean(text: str) -> str | None:
    return None if text.strip().lower() in ("true", "false") else "Expected value to be either true or false"


def _ratio(text: str) -> str | None:
    try:
        value = float(text.strip())
    except ValueError:
        return "Not a number of type DOUBLE"
    return None if 0 <= value <= 1 else f"Value must be {'at least 0' if value < 0 else 'no more than 1'}"


def _anything(text: str) -> str | None:
    return None


WEEK_MS: Final = "604800000"

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {
    "cleanup.policy": TopicConfig(default="delete", complaint=_some_of("compact", "delete"), broker_key="log.cleanup.policy"),
    "compression.gzip.level": TopicConfig(default="-1", complaint=_int(-1)),
    "compression.lz4.level": TopicConfig(default="9", complaint=_int(1)),
    "compression.type": TopicConfig(default="producer", complaint=_one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    "compression.zstd.level": TopicConfig(default="3", complaint=_int(-131072)),
    "delete.retention.ms": TopicConfig(default="86400000", complaint=_long(0)),
    "file.delete.delay.ms": TopicConfig(default="60000", complaint=_long(0)),
    "flush.messages": TopicConfig(default=str(LONG_MAX), complaint=_long(1), broker_key="log.flush.interval.messages"),
    "flush.ms": TopicConfig(default=str(LONG_MAX), complaint=_long(0)),
    "follower.replication.throttled.replicas": TopicConfig(default="", complaint=_anything),
    "index.interval.bytes": TopicConfig(default="4096", complaint=_int(0), broker_key="log.index.interval.bytes"),
    "leader.replication.throttled.replicas": TopicConfig(default="", complaint=_anything),
    "local.retention.bytes": TopicConfig(default="-2", complaint=_long(-2)),
    "local.retention.ms": TopicConfig(default="-2", complaint=_long(-2)),
    "max.compaction.lag.ms": TopicConfig(default=str(LONG_MAX), complaint=_long(1)),
    "max.message.bytes": TopicConfig(default="1048588", complaint=_int(0), broker_key="message.max.bytes"),
    "message.downconversion.enable": TopicConfig(default="true", complaint=_boolean),
    "message.format.version": TopicConfig(default="3.0-IV1", complaint=_anything),
    "message.timestamp.after.max.ms": TopicConfig(default=str(LONG_MAX), complaint=_long(0)),
    "message.timestamp.before.max.ms": TopicConfig(default=str(LONG_MAX), complaint=_long(0)),
    "message.timestamp.difference.max.ms": TopicConfig(default=str(LONG_MAX), complaint=_long(0)),
    "message.timestamp.type": TopicConfig(
        default="CreateTime", complaint=_one_of("CreateTime", "LogAppendTime"), broker_key="log.message.timestamp.type"
    ),
    "min.cleanable.dirty.ratio": TopicConfig(default="0.5", complaint=_ratio),
    "min.compaction.lag.ms": TopicConfig(default="0", complaint=_long(0)),
    "min.insync.replicas": TopicConfig(default="1", complaint=_int(1), broker_key="min.insync.replicas"),
    "preallocate": TopicConfig(default="false", complaint=_boolean),
    "remote.log.copy.disable": TopicConfig(default="false", complaint=_boolean),
    "remote.log.delete.on.disable": TopicConfig(default="false", complaint=_boolean),
    "remote.storage.enable": TopicConfig(default="false", complaint=_boolean),
    "retention.bytes": TopicConfig(default="-1", complaint=_long(-(2**63)), broker_key="log.retention.bytes"),
    "retention.ms": TopicConfig(default=WEEK_MS, complaint=_long(-1), broker_key="log.retention.ms"),
    "segment.bytes": TopicConfig(default=str(1 << 30), complaint=_int(14), broker_key="log.segment.bytes"),
    "segment.index.bytes": TopicConfig(default="10485760", complaint=_int(4)),
    "segment.jitter.ms": TopicConfig(default="0", complaint=_long(0)),
    "segment.ms": TopicConfig(default=WEEK_MS, complaint=_long(1), broker_key="log.roll.ms"),
    "unclean.leader.election.enable": TopicConfig(default="false", complaint=_boolean),
}


def complaint_about(name: str, value: str) -> str | None:
    """Return Kafka's sentence about a topic configuration that is unknown or has an impossible value, or None."""
    config = TOPIC_CONFIGS.get(name)
    if config is None:
        return f"Unknown topic config name: {name}"
    complaint = config.complaint(value)
    return None if complaint is None else f"Invalid value {value} for configuration {name}: {complaint}"


def effective_topic_configs(overrides: Mapping[str, str], broker_settings: Mapping[str, str]) -> dict[str, str]:
    """Return every topic configuration by name: the topic's own value, else the broker's (by the broker's key), else Kafka's default."""
    effective = {}
    for name, config in TOPIC_CONFIGS.items():
        broker_value = broker_settings.get(config.broker_key) if config.broker_key is not None else None
        effective[name] = overrides.get(name, config.default if broker_value is None else broker_value)
    return effective

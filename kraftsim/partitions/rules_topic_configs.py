"""From the effective configurations of a topic to the rules of its partitions: appends, cleaning,
segments, retention, down-conversion.

Source: org.apache.kafka.storage.internals.log.LogConfig.
"""

from collections.abc import Mapping
from typing import Final

from kraftsim.partitions.rules_append import AppendRules
from kraftsim.partitions.rules_cleaning import CleaningRules
from kraftsim.partitions.rules_log import RetentionRules, SegmentSettings
from protocol.records.record import Compression

AS_PRODUCED: Final = "producer"
UNCOMPRESSED: Final = "uncompressed"

NO_LIMIT_MS: Final = 2**63 - 1


def append_rules(
    configs: Mapping[str, str], *, replica_count: int, bounds_min_in_sync_replicas: bool
) -> AppendRules:
    """Return the append rules.

    `configs` are the effective ones; since 3.7 min.insync.replicas is at most the replication
    factor.
    """
    demanded = int(configs["min.insync.replicas"])
    return AppendRules(
        max_message_bytes=int(configs["max.message.bytes"]),
        segment_bytes=int(configs["segment.bytes"]),
        keeps_append_time=configs["message.timestamp.type"] == "LogAppendTime",
        is_compacted=has_policy(configs, "compact"),
        timestamp_before_max_ms=_timestamp_limit(configs, "before"),
        timestamp_after_max_ms=_timestamp_limit(configs, "after"),
        min_in_sync_replicas=min(demanded, replica_count)
        if bounds_min_in_sync_replicas
        else demanded,
        compression=_compression(configs["compression.type"]),
    )


def has_policy(configs: Mapping[str, str], policy: str) -> bool:
    """Return whether cleanup.policy has `compact` or `delete`. `configs` are the effective ones."""
    return policy in configs["cleanup.policy"].replace(" ", "").split(",")


def cleaning_rules(configs: Mapping[str, str]) -> CleaningRules:
    """Return the cleaning rules. `configs` are the effective ones."""
    return CleaningRules(
        is_compacted=has_policy(configs, "compact"),
        min_cleanable_ratio=float(configs["min.cleanable.dirty.ratio"]),
        min_compaction_lag_ms=int(configs["min.compaction.lag.ms"]),
        max_compaction_lag_ms=int(configs["max.compaction.lag.ms"]),
        delete_retention_ms=int(configs["delete.retention.ms"]),
        segment_bytes=int(configs["segment.bytes"]),
        index_bytes=int(configs["segment.index.bytes"]),
    )


def converts_down(configs: Mapping[str, str]) -> bool:
    """Return whether records are down-converted for old consumers (KIP-283).

    `configs` are the effective ones.
    """
    return configs.get("message.downconversion.enable", "true").strip().lower() == "true"


def segment_settings(configs: Mapping[str, str]) -> SegmentSettings:
    """Return the segment settings. `configs` are the effective ones.

    With max.compaction.lag.ms the active segment is rolled by then (KIP-354).
    """
    segment_ms, max_lag_ms = int(configs["segment.ms"]), int(configs["max.compaction.lag.ms"])
    return SegmentSettings(
        segment_bytes=int(configs["segment.bytes"]),
        segment_ms=min(segment_ms, max_lag_ms)
        if has_policy(configs, "compact") and max_lag_ms > 0
        else segment_ms,
        index_interval_bytes=int(configs["index.interval.bytes"]),
    )


def retention_rules(configs: Mapping[str, str]) -> RetentionRules:
    """Return the retention rules. `configs` are the effective ones."""
    return RetentionRules(
        is_deleted=has_policy(configs, "delete"),
        retention_ms=int(configs["retention.ms"]),
        retention_bytes=int(configs["retention.bytes"]),
    )


def _compression(name: str) -> Compression | None:
    if name == AS_PRODUCED:
        return None
    return Compression.NONE if name == UNCOMPRESSED else Compression[name.upper()]


def _timestamp_limit(configs: Mapping[str, str], side: str) -> int:
    """Return the limit of one side; the older setting for both sides applies where it is stricter
    (KIP-937).

    Before 3.6 there is only the older one.
    """
    allowed = int(configs.get(f"message.timestamp.{side}.max.ms", NO_LIMIT_MS))
    either = configs.get("message.timestamp.difference.max.ms")
    return allowed if either is None else min(allowed, int(either))

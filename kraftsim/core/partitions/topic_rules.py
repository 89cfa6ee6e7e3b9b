"""What the configurations of a topic mean for its partitions.   Source: org.apache.kafka.storage.internals.log.LogConfig."""

from collections.abc import Mapping
from typing import Final

from kraftsim.core.partitions.batch_rules import AppendRules
from kraftsim.core.partitions.retention import RetentionRules
from kraftsim.core.partitions.segments import SegmentSettings
from protocol.compression import Compression

AS_PRODUCED: Final = "producer"
UNCOMPRESSED: Final = "uncompressed"


def append_rules(configs: Mapping[str, str], *, replica_count: int, bounds_min_in_sync_replicas: bool) -> AppendRules:
    """Return the rules for batches. `configs` are the effective ones; since 3.7 a partition never demands more replicas in sync than it has."""
    demanded = int(configs["min.insync.replicas"])
    return AppendRules(
        max_message_bytes=int(configs["max.message.bytes"]),
        segment_bytes=int(configs["segment.bytes"]),
        keeps_append_time=configs["message.timestamp.type"] == "LogAppendTime",
        is_compacted="compact" in configs["cleanup.policy"].replace(" ", "").split(","),
        timestamp_before_max_ms=_timestamp_limit(configs, "before"),
        timestamp_after_max_ms=_timestamp_limit(configs, "after"),
        min_in_sync_replicas=min(demanded, replica_count) if bounds_min_in_sync_replicas else demanded,
        compression=_compression(configs["compression.type"]),
    )


def converts_down(configs: Mapping[str, str]) -> bool:
    """Return whether readers of old message formats are served (KIP-283). `configs` are the effective ones."""
    return configs["message.downconversion.enable"].strip().lower() == "true"


def segment_settings(configs: Mapping[str, str]) -> SegmentSettings:
    """Return when segments roll and how dense their indexes are. `configs` are the effective ones."""
    return SegmentSettings(
        segment_bytes=int(configs["segment.bytes"]),
        segment_ms=int(configs["segment.ms"]),
        index_interval_bytes=int(configs["index.interval.bytes"]),
    )


def retention_rules(configs: Mapping[str, str]) -> RetentionRules:
    """Return how long records are kept. `configs` are the effective ones."""
    return RetentionRules(
        is_deleted="delete" in configs["cleanup.policy"].replace(" ", "").split(","),
        retention_ms=int(configs["retention.ms"]),
        retention_bytes=int(configs["retention.bytes"]),
    )


def _compression(name: str) -> Compression | None:
    if name == AS_PRODUCED:
        return None
    return Compression.NONE if name == UNCOMPRESSED else Compression[name.upper()]


def _timestamp_limit(configs: Mapping[str, str], side: str) -> int:
    """Return the limit of one side; the older setting for both sides counts where it is the stricter one (KIP-937)."""
    return min(int(configs[f"message.timestamp.{side}.max.ms"]), int(configs["message.timestamp.difference.max.ms"]))

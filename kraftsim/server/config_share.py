"""The settings of share groups, which `NodeConfig` has among its own.

Source: org.apache.kafka.coordinator.share.ShareCoordinatorConfig.
"""

from dataclasses import dataclass

from kraftsim.server.config_keys import integer, setting


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareProperties:
    """The share coordinator and its topic `__share_group_state` (KIP-932)."""

    share_coordinator_state_topic_num_partitions: int = setting(
        "share.coordinator.state.topic.num.partitions", integer(at_least=1), "50"
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        "share.coordinator.state.topic.replication.factor",
        integer(at_least=1, at_most=32767),
        "3",
    )
    share_coordinator_state_topic_min_isr: int = setting(
        "share.coordinator.state.topic.min.isr", integer(at_least=1, at_most=32767), "2"
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        "share.coordinator.state.topic.segment.bytes", integer(at_least=1), "104857600"
    )
    share_coordinator_state_topic_compression_codec: int = setting(
        "share.coordinator.state.topic.compression.codec", integer(at_least=0, at_most=4), "0"
    )
    share_coordinator_load_buffer_size: int = setting(
        "share.coordinator.load.buffer.size", integer(at_least=1), "5242880"
    )
    share_coordinator_write_timeout_ms: int = setting(
        "share.coordinator.write.timeout.ms", integer(at_least=1), "5000"
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        "share.coordinator.snapshot.update.records.per.snapshot",
        integer(at_least=0, at_most=500),
        "500",
    )
    share_coordinator_state_topic_prune_interval_ms: int = setting(
        "share.coordinator.state.topic.prune.interval.ms", integer(at_least=1), "300000"
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = setting(
        "share.coordinator.cold.partition.snapshot.interval.ms", integer(at_least=1), "300000"
    )

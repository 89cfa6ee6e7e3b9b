"""What a coordinator of groups was told, by Kafka's property names.   Source: org.apache.kafka.coordinator.group.GroupCoordinatorConfig."""

from dataclasses import dataclass
from typing import Final

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""GroupCoordinator.NewMemberJoinTimeoutMs: a member that has never had an answer has no session yet; so long its first join may wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """group.initial.rebalance.delay.ms, group.{min,max}.session.timeout.ms, group.max.size, offset.metadata.max.bytes, offsets.retention.minutes."""

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10080 * 60 * 1000

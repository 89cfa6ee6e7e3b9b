"""What a coordinator of groups was told, by Kafka's property names.   Source: org.apache.kafka.coordinator.group.GroupCoordinatorConfig."""

from dataclasses import dataclass
from typing import Final

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""GroupCoordinator.NewMemberJoinTimeoutMs: a member that has never had an answer has no session yet; so long its first join may wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """group.initial.rebalance.delay.ms, group.{min,max}.session.timeout.ms, group.max.size, offset.metadata.max.bytes, offsets.retention.minutes.

    Those of consumer groups: group.consumer.{session.timeout.ms, heartbeat.interval.ms, max.size, assignors, assignment.interval.ms}.
    """

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10080 * 60 * 1000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is taken where no member wants another."""
    consumer_assignment_interval_ms: int = 0
    consumer_first_epoch: int = 0
    """The epoch of a group before its first member (KIP-1263: 1)."""
    consumer_settles_empty: bool = False
    """Whether a group whose last member went has its target at once (KIP-1263)."""
    consumer_may_come_anew: bool = False
    """Whether a member that is known may join without having left (since 4.2)."""
    consumer_takes_back: bool = False
    """Whether a member may be given at once what it has just given up, as long as nobody else got it (since 4.0)."""
    consumer_keeps_assignment_epochs: bool = False
    """Whether commits of a past epoch are judged by the epochs in which partitions were assigned, which its records tell (KIP-1251)."""
    consumer_migration_policy: str = "disabled"
    """group.consumer.migration.policy: which groups with members change their protocol: `upgrade`, `downgrade`, `bidirectional` or `disabled`."""
    makes_group_unjudged: bool = True
    """Whether a group that nobody knows is made for a transactional commit before that is judged (up to 3.9)."""

    @property
    def upgrades_groups(self) -> bool:
        """Whether a classic group with members becomes a consumer group when somebody joins who speaks the consumer protocol."""
        return self.consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def downgrades_groups(self) -> bool:
        """Whether a consumer group becomes a classic one when the last member goes that speaks the consumer protocol."""
        return self.consumer_migration_policy in ("downgrade", "bidirectional")

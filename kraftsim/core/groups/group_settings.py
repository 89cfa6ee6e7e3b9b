"""Settings of a group coordinator, by Kafka's property names.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorConfig.
"""

from dataclasses import dataclass
from typing import Final

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""GroupCoordinator.NewMemberJoinTimeoutMs: the first join of a new member, which has no session
yet, may wait for this long.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """group.initial.rebalance.delay.ms, group.{min,max}.session.timeout.ms, group.max.size,
    offset.metadata.max.bytes, offsets.retention.minutes.

    Those of consumer groups: group.consumer.{session.timeout.ms, heartbeat.interval.ms, max.size,
    assignors, assignment.interval.ms}.
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
    """The first one is the default, used if no member has a preference."""
    consumer_assignment_interval_ms: int = 0
    consumer_first_epoch: int = 0
    """The group epoch before the first member (KIP-1263: 1)."""
    consumer_settles_empty: bool = False
    """Whether the target assignment is updated at once when the last member leaves (KIP-1263)."""
    consumer_may_rejoin: bool = False
    """Whether a known member may join again without leaving first (since 4.2)."""
    consumer_takes_back: bool = False
    """Whether a member may get back at once a partition that it has just revoked, if no other
    member got it (since 4.0).
    """
    consumer_keeps_assignment_epochs: bool = False
    """Whether commits with an older epoch are validated by partition assignment epochs, which the
    records contain (KIP-1251).
    """
    consumer_migration_policy: str = "disabled"
    """group.consumer.migration.policy, for groups with members: `upgrade`, `downgrade`,
    `bidirectional` or `disabled`.
    """
    makes_group_unjudged: bool = True
    """Whether an unknown group is created for a transactional commit before the commit is validated
    (up to 3.9).
    """

    @property
    def upgrades_groups(self) -> bool:
        """Whether a classic group with members is converted when a consumer-protocol member
        joins.
        """
        return self.consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def downgrades_groups(self) -> bool:
        """Whether a consumer group is converted to classic when its last consumer-protocol member
        leaves.
        """
        return self.consumer_migration_policy in ("downgrade", "bidirectional")

"""The group coordinator's configuration: the broker's properties, with the defaults of the emulated
release.
"""

from typing import Final, Protocol

from kraftsim.groups.rules_timing import GroupSettings
from kraftsim.server.config import NodeConfig

CONSUMER: Final = "consumer"
BIDIRECTIONAL: Final = "bidirectional"
DISABLED: Final = "disabled"
DELAYED_MS: Final = 1000
FIRST_EPOCH_WITH_DELAY: Final = 1


class GroupParts(Protocol):
    """What the release decides for groups."""

    @property
    def has_consumer_groups(self) -> bool:
        """Whether consumer groups (KIP-848) are enabled by default."""
        ...

    @property
    def delays_assignments(self) -> bool:
        """Whether target assignments are computed at intervals."""
        ...

    @property
    def members_may_rejoin(self) -> bool:
        """Whether a member may rejoin without having left."""
        ...

    @property
    def members_take_back(self) -> bool:
        """Whether a revoked partition may return to its member in the same step."""
        ...

    @property
    def keeps_assignment_epochs(self) -> bool:
        """Whether members may commit since the epoch in which a partition was assigned."""
        ...


def group_settings(config: NodeConfig, parts: GroupParts) -> GroupSettings:
    """Return the effective group configuration."""
    interval_ms = config.group_consumer_assignment_interval_ms
    return GroupSettings(
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        consumer_max_size=config.group_consumer_max_size,
        consumer_assignors=tuple(
            name for name in config.group_consumer_assignors if "." not in name
        )
        or ("uniform", "range"),
        consumer_assignment_interval_ms=(DELAYED_MS if interval_ms is None else interval_ms)
        if parts.delays_assignments
        else 0,
        consumer_first_epoch=FIRST_EPOCH_WITH_DELAY if parts.delays_assignments else 0,
        consumer_settles_empty=parts.delays_assignments,
        consumer_may_rejoin=parts.members_may_rejoin,
        consumer_takes_back=parts.members_take_back,
        consumer_keeps_assignment_epochs=parts.keeps_assignment_epochs,
        consumer_migration_policy=config.group_consumer_migration_policy
        or (BIDIRECTIONAL if parts.has_consumer_groups else DISABLED),
        makes_group_unjudged=not parts.has_consumer_groups,
    )


def may_serve_consumers(config: NodeConfig, parts: GroupParts) -> bool:
    """Return whether the configuration enables consumer groups: by default since 4.0, only if
    explicitly enabled before.
    """
    protocols = config.group_coordinator_rebalance_protocols
    return CONSUMER in protocols if protocols else parts.has_consumer_groups

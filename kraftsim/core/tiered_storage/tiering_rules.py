"""The tiered storage settings of a topic.

Source: LogConfig (remoteStorageEnable, localRetentionMs), KIP-405, KIP-950.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kraftsim.core.metadata.tiering_configs import AS_THE_WHOLE, is_true
from kraftsim.core.partitions.retention import RetentionRules


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringRules:
    """`is_tiered`: closed segments are copied and the oldest local ones deleted.

    `copies`: copying is enabled. -2: the retention of the whole log.
    """

    is_tiered: bool = False
    copies: bool = True
    local_retention_ms: int = AS_THE_WHOLE
    local_retention_bytes: int = AS_THE_WHOLE

    def local_retention(self, whole: RetentionRules) -> RetentionRules:
        """Return the local retention, derived from the retention of the whole log."""
        return replace(
            whole,
            retention_ms=whole.retention_ms
            if self.local_retention_ms == AS_THE_WHOLE
            else self.local_retention_ms,
            retention_bytes=whole.retention_bytes
            if self.local_retention_bytes == AS_THE_WHOLE
            else self.local_retention_bytes,
        )


NOT_TIERED = TieringRules()


def tiering_rules(configs: Mapping[str, str], *, is_enabled: bool) -> TieringRules:
    """Return the rules for a topic.

    `configs` are the effective ones; `is_enabled`: the broker has remote storage.
    """
    if not is_enabled or not is_true(configs, "remote.storage.enable"):
        return NOT_TIERED
    return TieringRules(
        is_tiered=True,
        copies=not is_true(configs, "remote.log.copy.disable"),
        local_retention_ms=int(configs["local.retention.ms"]),
        local_retention_bytes=int(configs["local.retention.bytes"]),
    )

"""The definition of a broker configuration: type, default, and dynamic update mode.

The configurations themselves are in config_facts.

Source: kafka.server.KafkaConfig.configDef and DynamicBrokerConfig.AllDynamicConfigs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kraftsim.core.metadata.config_definitions import Check, ConfigDefinition, at_least
from protocol.config_resources import ConfigType


class UpdateMode(Enum):
    """The dynamic update mode of a configuration."""

    READ_ONLY = "read-only"
    INTERNAL = "internal"
    """Read-only and internal: for Kafka's own tests, not described to clients."""
    PER_BROKER = "per-broker"
    """Per-broker only."""
    CLUSTER_WIDE = "cluster-wide"
    """Per-broker, or as cluster-wide default."""


@dataclass(frozen=True, slots=True)
class BrokerConfig(ConfigDefinition):
    """A broker configuration."""

    mode: UpdateMode = UpdateMode.READ_ONLY

    @property
    def is_dynamic(self) -> bool:
        """Whether it can be updated dynamically."""
        return self.mode in (UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE)


def _row(
    kind: ConfigType,
    default: str | None,
    mode: UpdateMode = UpdateMode.READ_ONLY,
    check: Check | None = None,
) -> BrokerConfig:
    return BrokerConfig(kind, default, check, mode)


LONG: Final = ConfigType.LONG
CLUSTER_WIDE: Final = UpdateMode.CLUSTER_WIDE

DYNAMIC_ONLY: Final[Mapping[str, BrokerConfig]] = {
    "follower.replication.throttled.rate": _row(
        LONG, "9223372036854775807", CLUSTER_WIDE, at_least(0)
    ),
    "leader.replication.throttled.rate": _row(
        LONG, "9223372036854775807", CLUSTER_WIDE, at_least(0)
    ),
    "replica.alter.log.dirs.io.max.bytes.per.second": _row(
        LONG, "9223372036854775807", CLUSTER_WIDE, at_least(0)
    ),
}
"""Dynamic-only configurations, which are not described until they are set."""

"""What a setting of a broker is: its type, its default, and whether it can be changed while the broker runs.

The settings themselves are in config_facts.

Source: kafka.server.KafkaConfig.configDef and DynamicBrokerConfig.AllDynamicConfigs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kraftsim.core.metadata.config_definitions import Check, ConfigDefinition, at_least
from protocol.config_resources import ConfigType


class UpdateMode(Enum):
    """How a configuration can be changed while brokers run."""

    READ_ONLY = "read-only"
    INTERNAL = "internal"
    """Read-only, for tests of Kafka's own, and described to no client."""
    PER_BROKER = "per-broker"
    """Only for one broker at a time."""
    CLUSTER_WIDE = "cluster-wide"
    """For one broker or for all."""


@dataclass(frozen=True, slots=True)
class BrokerConfig(ConfigDefinition):
    """A configuration of a broker."""

    mode: UpdateMode = UpdateMode.READ_ONLY

    @property
    def is_dynamic(self) -> bool:
        """Whether it can be changed while the broker runs."""
        return self.mode in (UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE)


def _row(kind: ConfigType, default: str | None, mode: UpdateMode = UpdateMode.READ_ONLY, check: Check | None = None) -> BrokerConfig:
    return BrokerConfig(kind, default, check, mode)


LONG: Final = ConfigType.LONG
CLUSTER_WIDE: Final = UpdateMode.CLUSTER_WIDE

DYNAMIC_ONLY: Final[Mapping[str, BrokerConfig]] = {
    "follower.replication.throttled.rate": _row(LONG, "9223372036854775807", CLUSTER_WIDE, at_least(0)),
    "leader.replication.throttled.rate": _row(LONG, "9223372036854775807", CLUSTER_WIDE, at_least(0)),
    "replica.alter.log.dirs.io.max.bytes.per.second": _row(LONG, "9223372036854775807", CLUSTER_WIDE, at_least(0)),
}
"""What can only be set dynamically, and is in no list of a broker's configurations until it is."""

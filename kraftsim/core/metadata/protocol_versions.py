"""inter.broker.protocol.version: the levels by name, their order, and what each enables.

A ZooKeeper-mode cluster has no finalized level: each broker uses its own setting, and they differ
during a rolling upgrade. Levels before 3.0-IV1 have no number.
Source: org.apache.kafka.server.common.MetadataVersion, kafka.api.ApiVersion (2.3 to 2.8).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from kraftsim.core.metadata.metadata_versions import BEFORE_KRAFT, METADATA_VERSIONS

WITHOUT_NUMBER: Final = -1
LEVELS_BY_NAME: Final[Mapping[str, int]] = {
    **dict.fromkeys(BEFORE_KRAFT.split(), WITHOUT_NUMBER),
    **{version.name: level for level, version in METADATA_VERSIONS.items()},
}
"""In order; -1 for a level without a number."""
RANKS: Final[Mapping[str, int]] = {name: rank for rank, name in enumerate(LEVELS_BY_NAME)}
LAST_RANK_OF_3_9: Final = RANKS["3.9-IV0"]


class UnknownProtocolVersion(ValueError):
    """No level has this name; the message is Kafka's."""


@dataclass(frozen=True, slots=True, order=True)
class ProtocolVersion:
    """A level such as 2.8-IV1; a later one is greater."""

    rank: int
    name: str = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> "ProtocolVersion":
        """Return a level by its name, or the last one of a release ("2.8", "2.8.1").

        Raises UnknownProtocolVersion.
        """
        key = _looked_up_by(text)
        name = key if key in RANKS else _last_of_releases().get(key)
        if name is None or RANKS[name] > LAST_RANK_OF_3_9:
            raise UnknownProtocolVersion(f"Version {text} is not a valid version")
        return cls(RANKS[name], name)

    @property
    def level(self) -> int:
        """The level of metadata.version, -1 before 3.0-IV1."""
        return LEVELS_BY_NAME[self.name]

    @property
    def release(self) -> str:
        """The release line that introduced it, such as 2.8."""
        return self.name.partition("-")[0]

    def is_at_least(self, name: str) -> bool:
        """Return whether this level is at least the named one."""
        return self.rank >= RANKS[name]

    @property
    def has_feature_znode(self) -> bool:
        """Whether the controller stores finalized features in /feature, and brokers register their
        supported features (KIP-584).
        """
        return self.is_at_least("2.7-IV0")

    @property
    def uses_alter_partition(self) -> bool:
        """Whether a leader sends AlterPartition to change the ISR (KIP-497; before: it writes the
        state znode and an ISR change notification).
        """
        return self.is_at_least("2.7-IV2")

    @property
    def has_topic_ids(self) -> bool:
        """Whether a topic has an id (KIP-516)."""
        return self.is_at_least("2.8-IV0")

    @property
    def allocates_producer_ids(self) -> bool:
        """Whether a broker gets producer ids from the controller (KIP-730; before: from
        ZooKeeper).
        """
        return self.is_at_least("3.0-IV0")

    @property
    def has_leader_recovery(self) -> bool:
        """Whether the leader recovery state is recorded (KIP-704)."""
        return self.is_at_least("3.2-IV0")

    @property
    def can_migrate(self) -> bool:
        """Whether a migration to KRaft is possible, and requests are forwarded (KIP-866)."""
        return self.is_at_least("3.4-IV0")


def _looked_up_by(text: str) -> str:
    """Return the lookup key of Kafka: the first two components, for 0.x the first three."""
    parts = text.split(".")
    return ".".join(parts[: 3 if parts[0] == "0" else 2])


@cache
def _last_of_releases() -> dict[str, str]:
    """Return release -> its last level."""
    return {name.partition("-")[0]: name for name in RANKS}

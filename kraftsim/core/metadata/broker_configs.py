"""The effective configuration of a broker: dynamic values of the broker and of the cluster, static
properties, and defaults.

Some configurations have synonyms in other units, which apply if the preferred names are not set.
Source: kafka.server.DynamicBrokerConfig, kafka.server.DynamicConfig, KIP-226.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftsim.core.metadata.config_releases import KAFKA_3_9
from kraftsim.core.metadata.config_tables import LISTENER_PREFIX, ConfigTables, base_name
from kraftsim.core.metadata.tiering_configs import SYSTEM_ENABLE
from protocol.config_resources import ConfigSource
from protocol.disk.java_integers import parse_int32

MS_PER_HOUR: Final = 3_600_000
MS_PER_MINUTE: Final = 60_000
OWN_PREFIX: Final = "kraftsim."
"""Configurations of kraftsim, which no Kafka client uses."""

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    name: names
    for names in (
        ("log.roll.ms", "log.roll.hours"),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    )
    for name in names
} | {"log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")}
"""name -> its synonyms in order of precedence."""
MS_PER_UNIT: Final = {
    "log.roll.hours": MS_PER_HOUR,
    "log.roll.jitter.hours": MS_PER_HOUR,
    "log.retention.hours": MS_PER_HOUR,
    "log.retention.minutes": MS_PER_MINUTE,
}


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The layers of a broker's configuration in order of precedence.

    `static` are its properties.
    """

    static: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    """Dynamic configuration of this broker."""
    cluster: Mapping[str, str] = field(default_factory=dict)
    """Dynamic default of all brokers."""
    tables: ConfigTables = KAFKA_3_9

    def layers(self) -> Iterable[tuple[ConfigSource, Mapping[str, str]]]:
        """Yield the source of each layer, and its values by name."""
        yield ConfigSource.DYNAMIC_BROKER_CONFIG, self.own
        yield ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.cluster
        yield ConfigSource.STATIC_BROKER_CONFIG, self.static
        yield ConfigSource.DEFAULT_CONFIG, self.tables.broker_defaults

    def value(self, name: str) -> str | None:
        """Return the effective value of a name, without its synonyms; None if not set."""
        return next((layer[name] for _, layer in self.layers() if name in layer), None)

    def names(self) -> list[str]:
        """Return the names of all configurations to describe."""
        set_here = (
            name
            for layer in (self.static, self.cluster, self.own)
            for name in layer
            if not name.startswith(OWN_PREFIX)
        )
        return list(dict.fromkeys((*self.tables.broker, *set_here)))

    def for_topics(self) -> dict[str, str]:
        """Return the defaults of topic configurations, by the preferred broker name of each."""
        found = {}
        for name in self.tables.broker_keys_of_topics:
            value = next(
                (each for each in map(self._in_its_unit, synonyms_of(name)) if each is not None),
                None,
            )
            if value is not None:
                found[name] = value
        tiering = self.value(SYSTEM_ENABLE)
        if tiering is not None:
            found[SYSTEM_ENABLE] = tiering
        return found

    def _in_its_unit(self, name: str) -> str | None:
        """Return a value in the unit of its preferred synonym; a negative value is unlimited."""
        value = self.value(name)
        if value is None or name not in MS_PER_UNIT:
            return value
        return "-1" if int(value) < 0 else str(int(value) * MS_PER_UNIT[name])


def in_milliseconds(name: str, value: str) -> str:
    """Return a broker value in the unit of the topic configuration that it is the default of: hours
    and minutes become milliseconds.

    A value that is not a 32-bit number counts as 0.
    Source: org.apache.kafka.server.config.ConfigSynonym.
    """
    if name not in MS_PER_UNIT:
        return value
    try:
        return str(parse_int32(value.strip()) * MS_PER_UNIT[name])
    except ValueError:
        return "0"


def static_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the static properties of a node; its id has both names (node.id, broker.id)."""
    return {**given, "broker.id": given["node.id"]} if "node.id" in given else dict(given)


def synonyms_of(name: str) -> tuple[str, ...]:
    """Return the synonyms of a configuration, itself included."""
    if name.startswith(LISTENER_PREFIX):
        return name, base_name(name)
    return SYNONYMS.get(name, (name,))

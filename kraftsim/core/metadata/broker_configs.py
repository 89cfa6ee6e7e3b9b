"""What holds for a broker: what was set on it, or on all brokers, while they run; what its properties say; and what goes without saying.

Some settings have older names, in other units, that count where the newer ones are not set.
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
"""Settings of ours, which no client of Kafka asks for."""

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    name: names
    for names in (
        ("log.roll.ms", "log.roll.hours"),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    )
    for name in names
} | {"log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")}
"""name -> every name that says the same, the strongest first."""
MS_PER_UNIT: Final = {
    "log.roll.hours": MS_PER_HOUR,
    "log.roll.jitter.hours": MS_PER_HOUR,
    "log.retention.hours": MS_PER_HOUR,
    "log.retention.minutes": MS_PER_MINUTE,
}


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The layers of one broker's settings, the strongest first. `static` is what its properties say."""

    static: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    """Set on this broker while it runs."""
    cluster: Mapping[str, str] = field(default_factory=dict)
    """Set on all brokers while they run."""
    tables: ConfigTables = KAFKA_3_9

    def layers(self) -> Iterable[tuple[ConfigSource, Mapping[str, str]]]:
        """Yield where values come from, and the values by name."""
        yield ConfigSource.DYNAMIC_BROKER_CONFIG, self.own
        yield ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.cluster
        yield ConfigSource.STATIC_BROKER_CONFIG, self.static
        yield ConfigSource.DEFAULT_CONFIG, self.tables.broker_defaults

    def value(self, name: str) -> str | None:
        """Return what holds under a name itself, whatever its synonyms say; None: nothing."""
        return next((layer[name] for _, layer in self.layers() if name in layer), None)

    def names(self) -> list[str]:
        """Return every name there is to tell of this broker."""
        set_here = (name for layer in (self.static, self.cluster, self.own) for name in layer if not name.startswith(OWN_PREFIX))
        return list(dict.fromkeys((*self.tables.broker, *set_here)))

    def for_topics(self) -> dict[str, str]:
        """Return what stands behind the configurations of topics, by the broker's strongest names for it."""
        found = {}
        for name in self.tables.broker_keys_of_topics:
            value = next((told for told in map(self._in_its_unit, synonyms_of(name)) if told is not None), None)
            if value is not None:
                found[name] = value
        tiering = self.value(SYSTEM_ENABLE)
        if tiering is not None:
            found[SYSTEM_ENABLE] = tiering
        return found

    def _in_its_unit(self, name: str) -> str | None:
        """Return a value as the strongest of its synonyms would say it; less than nothing means without end."""
        value = self.value(name)
        if value is None or name not in MS_PER_UNIT:
            return value
        return "-1" if int(value) < 0 else str(int(value) * MS_PER_UNIT[name])


def in_milliseconds(name: str, value: str) -> str:
    """Return the value of a setting as the topics' setting that it stands behind would say it: hours and minutes in milliseconds, all else as it is.

    What is no number of 32 bits counts as 0.   Source: org.apache.kafka.server.config.ConfigSynonym.
    """
    if name not in MS_PER_UNIT:
        return value
    try:
        return str(parse_int32(value.strip()) * MS_PER_UNIT[name])
    except ValueError:
        return "0"


def static_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a node as Kafka reads them: it has its id under both names."""
    return {**given, "broker.id": given["node.id"]} if "node.id" in given else dict(given)


def synonyms_of(name: str) -> tuple[str, ...]:
    """Return every name that says what a setting says, itself among them."""
    if name.startswith(LISTENER_PREFIX):
        return name, base_name(name)
    return SYNONYMS.get(name, (name,))

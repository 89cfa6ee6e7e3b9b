"""What holds for a broker: what was set on it, or on all brokers, while they run; what its properties say; and what goes without saying.

Some settings have older names, in other units, that count where the newer ones are not set.
Source: kafka.server.DynamicBrokerConfig, kafka.server.DynamicConfig, KIP-226.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftsim.core.metadata.broker_config_table import BROKER_CONFIGS, DYNAMIC_ONLY, BrokerConfig, UpdateMode
from kraftsim.core.metadata.topic_configs import TOPIC_CONFIGS
from protocol.config_resources import ConfigSource
from protocol.disk.java_integers import parse_int32

MS_PER_HOUR: Final = 3_600_000
MS_PER_MINUTE: Final = 60_000
OWN_PREFIX: Final = "kraftsim."
"""Settings of ours, which no client of Kafka asks for."""
LISTENER_PREFIX: Final = "listener.name."
LISTENER_CLUSTER_WIDE: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
SECURITY_PREFIX: Final = "ssl."

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

    def layers(self) -> Iterable[tuple[ConfigSource, Mapping[str, str]]]:
        """Yield where values come from, and the values by name."""
        yield ConfigSource.DYNAMIC_BROKER_CONFIG, self.own
        yield ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.cluster
        yield ConfigSource.STATIC_BROKER_CONFIG, self.static
        yield ConfigSource.DEFAULT_CONFIG, DEFAULTS

    def value(self, name: str) -> str | None:
        """Return what holds under a name itself, whatever its synonyms say; None: nothing."""
        return next((layer[name] for _, layer in self.layers() if name in layer), None)

    def names(self) -> list[str]:
        """Return every name there is to tell of this broker."""
        set_here = (name for layer in (self.static, self.cluster, self.own) for name in layer if not name.startswith(OWN_PREFIX))
        return list(dict.fromkeys((*BROKER_CONFIGS, *set_here)))

    def for_topics(self) -> dict[str, str]:
        """Return what stands behind the configurations of topics, by the broker's strongest names for it."""
        found = {}
        for name in TOPIC_KEYS:
            value = next((told for told in map(self._in_its_unit, synonyms_of(name)) if told is not None), None)
            if value is not None:
                found[name] = value
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


def applicable(values: Mapping[str, str], *, is_for_all: bool) -> dict[str, str]:
    """Return what of the values that were set while brokers run can be followed; a controller takes any."""
    return {name: value for name, value in values.items() if complaint_about_dynamic({name: value}, is_for_all=is_for_all) is None}


def static_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a node as Kafka reads them: it has its id under both names."""
    return {**given, "broker.id": given["node.id"]} if "node.id" in given else dict(given)


def synonyms_of(name: str) -> tuple[str, ...]:
    """Return every name that says what a setting says, itself among them."""
    if name.startswith(LISTENER_PREFIX):
        return name, _base_name(name)
    return SYNONYMS.get(name, (name,))


def definition_of(name: str) -> BrokerConfig | None:
    """Return what is known of a setting, also under the name of a listener; None for one that Kafka does not know."""
    return BROKER_CONFIGS.get(_base_name(name)) or DYNAMIC_ONLY.get(name)


def is_dynamic(name: str) -> bool:
    """Tell whether a setting of Kafka's can be changed while the broker runs."""
    known = BROKER_CONFIGS.get(name)
    return known is not None and known.is_dynamic


def complaint_about_dynamic(values: Mapping[str, str], *, is_for_all: bool) -> str | None:
    """Return Kafka's sentence about what cannot be set while brokers run, on one or (`is_for_all`) on all of them, or None.

    A name that Kafka does not know is taken: it may be meant for a plugin.
    """
    fixed = [name for name in values if name in BROKER_CONFIGS and not BROKER_CONFIGS[name].is_dynamic]
    if fixed:
        return f"Cannot update these configs dynamically: {_as_set(fixed)}"
    unsafe = [name for name in values if name.startswith(SECURITY_PREFIX) and is_dynamic(name)]
    if unsafe:
        return f"These security configs can be dynamically updated only per-listener using the listener prefix: {_as_set(unsafe)}"
    for name, value in values.items():
        known = definition_of(name)
        complaint = known.complaint(_base_name(name), value) if known is not None and known.is_dynamic else None
        if complaint is not None:
            return complaint
    single = [name for name in values if _is_for_one_broker(name)]
    if is_for_all and single:
        return f"Cannot update these configs at default cluster level, broker id must be specified: {_as_set(single)}"
    return None


def _is_for_one_broker(name: str) -> bool:
    if name.startswith(LISTENER_PREFIX):
        return _base_name(name) not in LISTENER_CLUSTER_WIDE
    return name in BROKER_CONFIGS and BROKER_CONFIGS[name].mode is UpdateMode.PER_BROKER


def _base_name(name: str) -> str:
    """Return the name of a setting without the listener that it is for."""
    return name.split(".", 3)[3] if name.startswith(LISTENER_PREFIX) and name.count(".") >= 3 else name


def _as_set(names: Iterable[str]) -> str:
    """Return names as Scala prints a set."""
    return f"Set({', '.join(names)})"


DEFAULTS: Final[Mapping[str, str]] = {name: config.default for name, config in BROKER_CONFIGS.items() if config.default is not None}
TOPIC_KEYS: Final = tuple(config.broker_key for config in TOPIC_CONFIGS.values() if config.broker_key is not None)

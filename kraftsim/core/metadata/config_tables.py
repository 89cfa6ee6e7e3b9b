"""The configurations of a release, and derived rules: dynamic updates, and effective topic
configurations.

Source: kafka.server.{DynamicBrokerConfig, DynamicConfig},
org.apache.kafka.storage.internals.log.LogConfig, KIP-226.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from kraftsim.core.metadata.broker_config_table import DYNAMIC_ONLY, BrokerConfig, UpdateMode
from kraftsim.core.metadata.config_definitions import ConfigDefinition
from kraftsim.core.metadata.dynamic_rules import complaint_about_number
from kraftsim.core.metadata.tiering_configs import complaint_about_tiering, is_true
from kraftsim.core.metadata.topic_configs import TopicConfig

LISTENER_PREFIX: Final = "listener.name."
LISTENER_CLUSTER_WIDE: Final = (
    "max.connections",
    "max.connection.creation.rate",
    "num.network.threads",
)
OF_LISTENERS_ONLY: Final = frozenset(
    {
        "ssl.client.auth",
        "ssl.engine.factory.class",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Dynamic configurations that need a listener prefix (SslConfigs.RECONFIGURABLE_CONFIGS)."""


@dataclass(frozen=True, eq=False)
class ConfigTables:
    """All broker configurations, and the topic configurations in Kafka's order of validation."""

    broker: Mapping[str, BrokerConfig]
    topic: Mapping[str, TopicConfig]
    internal: Mapping[str, BrokerConfig] = field(default_factory=dict)
    """Internal broker configurations, which are not described."""
    client_metrics: Mapping[str, ConfigDefinition] = field(default_factory=dict)
    """The definitions of client metrics subscriptions (since 4.0)."""
    describes_client_metrics: bool = False
    """Whether all client metrics configurations are described, with types (since 4.1; before: those
    that are set).
    """

    @cached_property
    def broker_defaults(self) -> Mapping[str, str]:
        """The default values, by name."""
        return {
            name: config.default
            for name, config in self.broker.items()
            if config.default is not None
        }

    @cached_property
    def broker_keys_of_topics(self) -> tuple[str, ...]:
        """The broker configurations that are defaults of topic configurations."""
        return tuple(
            config.broker_key for config in self.topic.values() if config.broker_key is not None
        )

    def definition_of(self, name: str) -> BrokerConfig | None:
        """Return the definition of a broker configuration, also with a listener prefix; None for an
        unknown one.
        """
        return self.broker.get(base_name(name)) or DYNAMIC_ONLY.get(name)

    def is_dynamic(self, name: str) -> bool:
        """Return whether a known configuration can be updated dynamically."""
        known = self.broker.get(name)
        return known is not None and known.is_dynamic

    def complaint_about_dynamic(self, values: Mapping[str, str], *, is_for_all: bool) -> str | None:
        """Return Kafka's error message about values that cannot be set dynamically, on one or
        (`is_for_all`) on all brokers, or None.

        An unknown name is accepted: it may belong to a plugin.
        """
        fixed = [
            name for name in values if name in self.broker and not self.broker[name].is_dynamic
        ]
        if fixed:
            return f"Cannot update these configs dynamically: {_as_set(fixed)}"
        unsafe = [name for name in values if name in OF_LISTENERS_ONLY]
        if unsafe:
            return (
                "These security configs can be dynamically updated only per-listener using the "
                f"listener prefix: {_as_set(unsafe)}"
            )
        for name, value in values.items():
            known = self.definition_of(name)
            if known is None or not known.is_dynamic:
                continue
            complaint = known.complaint(base_name(name), value) or complaint_about_number(
                base_name(name), value
            )
            if complaint is not None:
                return complaint
        single = [name for name in values if self._is_for_one_broker(name)]
        if is_for_all and single:
            return (
                "Cannot update these configs at default cluster level, broker id must be "
                f"specified: {_as_set(single)}"
            )
        return None

    def applicable(self, values: Mapping[str, str], *, is_for_all: bool) -> dict[str, str]:
        """Return those dynamic values that apply on a broker; a controller accepts any."""
        return {
            name: value
            for name, value in values.items()
            if self.complaint_about_dynamic({name: value}, is_for_all=is_for_all) is None
        }

    def complaint_about_topic(
        self,
        values: Mapping[str, str],
        broker_settings: Mapping[str, str],
        present: Mapping[str, str] | None = None,
    ) -> str | None:
        """Return Kafka's message about the first error in the overrides of a topic, or None;
        `present` are the current ones.
        """
        unknown = next((name for name in sorted(values) if name not in self.topic), None)
        if unknown is not None:
            return f"Unknown topic config name: {unknown}"
        for name, config in self.topic.items():
            complaint = config.complaint(name, values[name]) if name in values else None
            if complaint is not None:
                return complaint
        effective = self.effective_topic_configs(values, broker_settings)
        shortest, longest = (
            int(effective["min.compaction.lag.ms"]),
            int(effective["max.compaction.lag.ms"]),
        )
        if shortest > longest:
            return (
                f"conflict topic config setting min.compaction.lag.ms ({shortest}) > "
                f"max.compaction.lag.ms ({longest})"
            )
        return complaint_about_tiering(
            effective, broker_settings, was_tiered=is_true(present or {}, "remote.storage.enable")
        )

    def effective_topic_configs(
        self, overrides: Mapping[str, str], broker_settings: Mapping[str, str]
    ) -> dict[str, str]:
        """Return all topic configurations by name: the topic override, else the broker value, else
        Kafka's default.
        """
        effective = {}
        for name, config in self.topic.items():
            assert config.default is not None, "every topic configuration has a default"
            broker_value = (
                broker_settings.get(config.broker_key) if config.broker_key is not None else None
            )
            effective[name] = overrides.get(
                name, config.default if broker_value is None else broker_value
            )
        return effective

    def _is_for_one_broker(self, name: str) -> bool:
        if name.startswith(LISTENER_PREFIX):
            return base_name(name) not in LISTENER_CLUSTER_WIDE
        return name in self.broker and self.broker[name].mode is UpdateMode.PER_BROKER


def base_name(name: str) -> str:
    """Return the name of a configuration without its listener prefix."""
    return (
        name.split(".", 3)[3] if name.startswith(LISTENER_PREFIX) and name.count(".") >= 3 else name
    )


def _as_set(names: Iterable[str]) -> str:
    """Return names in the format of a printed Scala set."""
    return f"Set({', '.join(names)})"

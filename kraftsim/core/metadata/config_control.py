"""Dynamic configurations of topics and brokers.

Source: org.apache.kafka.controller.ConfigurationControlManager.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.broker_configs import BrokerSettings, in_milliseconds, synonyms_of
from kraftsim.core.metadata.controller_node import ControllerNode
from kraftsim.core.metadata.topic_configs import TopicConfig
from kraftsim.core.timeline import Journal, TimelineDict
from protocol.config_resources import ConfigResourceType, ConfigSource
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreatableTopicConfig
from protocol.metadata.m04_config import TOPIC_RESOURCE, ConfigRecord

NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})
ALL_BROKERS: Final = ""
MIN_IN_SYNC_CONFIG: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveConfig:
    """A configuration of a new topic, and its source."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigControl:
    """(resource type, resource name) -> its own values by name.

    `node` is the controller, whose static properties are the last layer.
    """

    def __init__(self, journal: Journal, node: ControllerNode | None = None) -> None:
        self._configs: TimelineDict[tuple[int, str], Mapping[str, str]] = TimelineDict(journal)
        self._node = node or ControllerNode()
        self.tables = self._node.config_tables
        """The configuration definitions of the node's release."""
        self._behind_topics: (
            tuple[tuple[Mapping[str, str], Mapping[str, str]], Mapping[str, str]] | None
        ) = None
        """Cache: the immutable mappings of this broker's and all brokers' configurations, and the
        topic defaults derived from them.
        """

    def configs_of(self, resource_type: int, resource_name: str) -> Mapping[str, str]:
        """Return the values set on a resource itself; read-only."""
        return self._configs.get((resource_type, resource_name)) or NO_CONFIGS

    def of_all_brokers(self, name: str) -> str | None:
        """Return the cluster-wide broker default of a name; None if not set."""
        return self.configs_of(ConfigResourceType.BROKER, ALL_BROKERS).get(name)

    def resources(self) -> list[tuple[int, str]]:
        """Return the resources with configurations, sorted."""
        return sorted(resource for resource, configs in self._configs.items() if configs)

    def static_min_in_sync_replicas(self) -> str:
        """Return min.insync.replicas of the static properties, or its default."""
        return (
            self._node.static_configs.get(MIN_IN_SYNC_CONFIG)
            or self.tables.topic[MIN_IN_SYNC_CONFIG].default
            or "1"
        )

    def broker_settings(self) -> BrokerSettings:
        """Return the configuration of this node, as the default of topic configurations."""
        return BrokerSettings(
            static=self._node.static_configs,
            own=self.tables.applicable(
                self.configs_of(ConfigResourceType.BROKER, str(self._node.node_id)),
                is_for_all=False,
            ),
            cluster=self.tables.applicable(
                self.configs_of(ConfigResourceType.BROKER, ALL_BROKERS), is_for_all=True
            ),
            tables=self.tables,
        )

    def behind_topics(self) -> Mapping[str, str]:
        """Return the defaults of topic configurations; recomputed only after broker configurations
        have changed.

        Called for each topic of a request. Read-only.
        """
        layers = (
            self.configs_of(ConfigResourceType.BROKER, str(self._node.node_id)),
            self.configs_of(ConfigResourceType.BROKER, ALL_BROKERS),
        )
        if self._behind_topics is None or any(
            before is not now for before, now in zip(self._behind_topics[0], layers, strict=True)
        ):
            self._behind_topics = (layers, self.broker_settings().for_topics())
        return self._behind_topics[1]

    def effective_topic_config(self, topic: str, name: str) -> str:
        """Return the effective value of a topic: topic override, dynamic broker, dynamic cluster
        default, static broker, or Kafka's default.
        """
        own = self.configs_of(TOPIC_RESOURCE, topic).get(name)
        return (
            self.tables.effective_topic_configs({}, self.behind_topics())[name]
            if own is None
            else own
        )

    def configs_of_new_topic(self, overrides: Mapping[str, str]) -> list[EffectiveConfig]:
        """Return the configurations of a topic with these overrides, sorted by name, as in a
        CreateTopics response.

        Unlike DescribeConfigs it uses the configuration of this controller, and no defaults but
        those of topics.
        Source: KIP-525, org.apache.kafka.metadata.KafkaConfigSchema.resolveEffectiveTopicConfigs.
        """
        layers = (
            (
                ConfigSource.DYNAMIC_BROKER_CONFIG,
                self.configs_of(ConfigResourceType.BROKER, str(self._node.node_id)),
            ),
            (
                ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
                self.configs_of(ConfigResourceType.BROKER, ALL_BROKERS),
            ),
            (ConfigSource.STATIC_BROKER_CONFIG, self._node.static_configs),
        )
        return [
            _described(name, config, overrides, layers)
            for name, config in sorted(self.tables.topic.items())
        ]

    def decide_topic_configs(
        self, topic: str, configs: Sequence[CreatableTopicConfig]
    ) -> list[ConfigRecord] | Refusal:
        """Validate the configurations of a new topic. Fails with INVALID_CONFIG."""
        without_value = [config.name for config in configs if config.value is None]
        if without_value:
            return Refusal(
                ErrorCode.INVALID_CONFIG,
                f"Null value not supported for topic configs: {','.join(without_value)}",
            )
        values = {config.name: config.value for config in configs if config.value is not None}
        complaint = self.tables.complaint_about_topic(values, self.behind_topics())
        if complaint is not None:
            return Refusal(ErrorCode.INVALID_CONFIG, complaint)
        return [
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=name, value=value)
            for name, value in values.items()
        ]

    def replay(self, record: ConfigRecord) -> None:
        """Replay a value; null deletes it."""
        self._configs[record.resource_type, record.resource_name] = changed_configs(
            self.configs_of(record.resource_type, record.resource_name), record
        )

    def forget(self, resource_type: int, resource_name: str) -> None:
        """Delete all configurations of a resource that was removed."""
        if (resource_type, resource_name) in self._configs:
            del self._configs[resource_type, resource_name]


def _described(
    name: str,
    config: TopicConfig,
    overrides: Mapping[str, str],
    layers: Sequence[tuple[ConfigSource, Mapping[str, str]]],
) -> EffectiveConfig:
    if name in overrides:
        return EffectiveConfig(name=name, value=overrides[name], source=ConfigSource.TOPIC_CONFIG)
    keys = () if config.broker_key is None else synonyms_of(config.broker_key)
    for source, layer in layers:
        key = next((key for key in keys if key in layer), None)
        if key is not None:
            return EffectiveConfig(name=name, value=in_milliseconds(key, layer[key]), source=source)
    return EffectiveConfig(name=name, value=config.default, source=ConfigSource.DEFAULT_CONFIG)


def changed_configs(configs: Mapping[str, str], record: ConfigRecord) -> Mapping[str, str]:
    """Return a resource's configurations after a record, as a new mapping."""
    others = {name: value for name, value in configs.items() if name != record.name}
    return others if record.value is None else {**others, record.name: record.value}

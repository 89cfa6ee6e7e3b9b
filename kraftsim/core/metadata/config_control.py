"""The dynamic configurations of topics and brokers.   Source: org.apache.kafka.controller.ConfigurationControlManager."""

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
class ToldConfig:
    """A configuration of a new topic, and who set it."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigControl:
    """(resource type, resource name) -> its own values by name. `node` is the controller itself, whose properties stand behind them."""

    def __init__(self, journal: Journal, node: ControllerNode | None = None) -> None:
        self._configs: TimelineDict[tuple[int, str], Mapping[str, str]] = TimelineDict(journal)
        self._node = node or ControllerNode()
        self.tables = self._node.config_tables
        """What its release knows."""
        self._behind_topics: tuple[tuple[Mapping[str, str], Mapping[str, str]], Mapping[str, str]] | None = None
        """The settings of this broker and of all brokers, which are never changed where they are, and what follows from them."""

    def configs_of(self, resource_type: int, resource_name: str) -> Mapping[str, str]:
        """Return what was set on a resource itself; to be read only."""
        return self._configs.get((resource_type, resource_name)) or NO_CONFIGS

    def of_all_brokers(self, name: str) -> str | None:
        """Return what was set for all brokers under a name; None if nothing was."""
        return self.configs_of(ConfigResourceType.BROKER, ALL_BROKERS).get(name)

    def resources(self) -> list[tuple[int, str]]:
        """Return what has configurations of its own, in order."""
        return sorted(resource for resource, configs in self._configs.items() if configs)

    def static_min_in_sync_replicas(self) -> str:
        """Return min.insync.replicas as the properties of this node say it, or as it goes without saying."""
        return self._node.static_configs.get(MIN_IN_SYNC_CONFIG) or self.tables.topic[MIN_IN_SYNC_CONFIG].default or "1"

    def broker_settings(self) -> BrokerSettings:
        """Return what holds for this node where a topic has no value of its own."""
        return BrokerSettings(
            static=self._node.static_configs,
            own=self.tables.applicable(self.configs_of(ConfigResourceType.BROKER, str(self._node.node_id)), is_for_all=False),
            cluster=self.tables.applicable(self.configs_of(ConfigResourceType.BROKER, ALL_BROKERS), is_for_all=True),
            tables=self.tables,
        )

    def behind_topics(self) -> Mapping[str, str]:
        """Return what stands behind the configurations of topics; worked out again only after settings of brokers have changed.

        Requests ask it for each of their topics. To be read only.
        """
        layers = (self.configs_of(ConfigResourceType.BROKER, str(self._node.node_id)), self.configs_of(ConfigResourceType.BROKER, ALL_BROKERS))
        if self._behind_topics is None or any(before is not now for before, now in zip(self._behind_topics[0], layers, strict=True)):
            self._behind_topics = (layers, self.broker_settings().for_topics())
        return self._behind_topics[1]

    def effective_topic_config(self, topic: str, name: str) -> str:
        """Return what holds for a topic: its own value, what was set on this node, on all nodes, this node's properties, or Kafka's default."""
        own = self.configs_of(TOPIC_RESOURCE, topic).get(name)
        return self.tables.effective_topic_configs({}, self.behind_topics())[name] if own is None else own

    def told_of_new_topic(self, overrides: Mapping[str, str]) -> list[ToldConfig]:
        """Return all that will hold for a topic with these values of its own, by name, as the controller tells who made it.

        Unlike DescribeConfigs it looks at what this node was told, and at nothing that goes without saying but the topic's own defaults.
        Source: KIP-525, org.apache.kafka.metadata.KafkaConfigSchema.resolveEffectiveTopicConfigs.
        """
        layers = (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self.configs_of(ConfigResourceType.BROKER, str(self._node.node_id))),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.configs_of(ConfigResourceType.BROKER, ALL_BROKERS)),
            (ConfigSource.STATIC_BROKER_CONFIG, self._node.static_configs),
        )
        return [_told(name, config, overrides, layers) for name, config in sorted(self.tables.topic.items())]

    def decide_topic_configs(self, topic: str, configs: Sequence[CreatableTopicConfig]) -> list[ConfigRecord] | Refusal:
        """Propose the configurations of a new topic. Refuses with INVALID_CONFIG."""
        without_value = [config.name for config in configs if config.value is None]
        if without_value:
            return Refusal(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(without_value)}")
        values = {config.name: config.value for config in configs if config.value is not None}
        complaint = self.tables.complaint_about_topic(values, self.behind_topics())
        if complaint is not None:
            return Refusal(ErrorCode.INVALID_CONFIG, complaint)
        return [ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=name, value=value) for name, value in values.items()]

    def replay(self, record: ConfigRecord) -> None:
        """Take a value from the log; null takes it away."""
        self._configs[record.resource_type, record.resource_name] = changed_configs(
            self.configs_of(record.resource_type, record.resource_name), record
        )

    def forget(self, resource_type: int, resource_name: str) -> None:
        """Drop everything that was set on a resource, because it is gone."""
        if (resource_type, resource_name) in self._configs:
            del self._configs[resource_type, resource_name]


def _told(name: str, config: TopicConfig, overrides: Mapping[str, str], layers: Sequence[tuple[ConfigSource, Mapping[str, str]]]) -> ToldConfig:
    if name in overrides:
        return ToldConfig(name=name, value=overrides[name], source=ConfigSource.TOPIC_CONFIG)
    keys = () if config.broker_key is None else synonyms_of(config.broker_key)
    for source, layer in layers:
        key = next((key for key in keys if key in layer), None)
        if key is not None:
            return ToldConfig(name=name, value=in_milliseconds(key, layer[key]), source=source)
    return ToldConfig(name=name, value=config.default, source=ConfigSource.DEFAULT_CONFIG)


def changed_configs(configs: Mapping[str, str], record: ConfigRecord) -> Mapping[str, str]:
    """Return a resource's configurations after a record, as a new mapping."""
    others = {name: value for name, value in configs.items() if name != record.name}
    return others if record.value is None else {**others, record.name: record.value}

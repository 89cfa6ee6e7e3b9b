"""Dynamic configurations of topics, brokers, client metrics and groups on the controller: their
state, and their alteration.

Source: KIP-133, KIP-339, org.apache.kafka.controller.ConfigurationControlManager,
kafka.server.{ControllerApis, ControllerConfigurationValidator}.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from kraftsim.core.decision import Decision, Refusal, Steps, ends_step, whole
from kraftsim.core.timeline import Journal, TimelineDict
from kraftsim.groups.rules_group_configs import complaint_about_group
from kraftsim.metadata.events import ConfigChanged
from kraftsim.metadata.rules_config_definitions import ConfigDefinition, TopicConfig, java_split
from kraftsim.metadata.rules_config_releases import refuse_client_metrics
from kraftsim.metadata.rules_described_configs import (
    BrokerSettings,
    ControllerNode,
    in_milliseconds,
    synonyms_of,
)
from kraftsim.metadata.rules_topic_names import why_name_is_invalid
from protocol.config_resources import ConfigResourceType, ConfigSource
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreatableTopicConfig
from protocol.messages.k33_alter_configs import AlterConfigsRequest
from protocol.messages.k44_incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterableConfig,
    IncrementalAlterConfigsRequest,
)
from protocol.metadata.settings import TOPIC_RESOURCE, ConfigRecord
from protocol.metadata.topics import ClearElrRecord
from protocol.schema import Message
from protocol.storage.text_files import parse_int32

NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})
ALL_BROKERS: Final = ""
MIN_IN_SYNC_CONFIG: Final = "min.insync.replicas"


# --------------------------------------------------------------------------------------------------
# The configurations that are set


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

    def static_setting(self, name: str) -> str | None:
        """Return a setting of the static properties, or its default; None: there is no such
        setting.
        """
        given = self._node.static_configs.get(name)
        return self.tables.default_of(name) if given is None else given

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


# --------------------------------------------------------------------------------------------------
# AlterConfigs and IncrementalAlterConfigs
#
# Each resource succeeds or fails by itself; all changes are one batch. A broker record is written
# even if nothing changes, so that the broker reloads its files (KAFKA-14136). Broker values are
# validated by the broker that forwards the request.

Resource: TypeAlias = tuple[int, str]
"""(resource type, resource name)."""
Results: TypeAlias = list[tuple[Resource, Refusal | None]]
Values: TypeAlias = Mapping[str, str | None]
RefuseMissing: TypeAlias = Callable[[ConfigResourceType, str], Refusal | None]
RECORDS_MAX: Final = 10_000
TWICE: Final = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
UNFORESEEN: Final = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
TOO_LARGE: Final = Refusal(
    ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigView:
    """The state that validation reads.

    `refuse_missing` returns the error of a resource that does not exist.
    """

    configs: ConfigControl
    resource_types: frozenset[ConfigResourceType]
    refuse_missing: RefuseMissing
    has_eligible_leaders: bool = False
    """Whether leader eligibility depends on min.insync.replicas (KIP-966)."""


def decide_alter_configs(
    view: ConfigView, request: IncrementalAlterConfigsRequest
) -> Decision[Results] | Refusal:
    """Apply incremental changes.

    Fails as a whole where Kafka's controller does, or with POLICY_VIOLATION if the request is too
    large.
    """
    return whole(alter_configs_steps(view, request))


def alter_configs_steps(
    view: ConfigView, request: IncrementalAlterConfigsRequest
) -> Steps[Decision[Results] | Refusal]:
    """Like `decide_alter_configs`, in steps."""
    asked = {(each.resource_type, each.resource_name): each.configs for each in request.resources}
    results, resources = _sorted_out(
        view, [(each.resource_type, each.resource_name) for each in request.resources]
    )
    proposed = []
    for index, resource in enumerate(resources):
        altered = _altered(view, resource, asked[resource])
        if altered is UNFORESEEN:
            return UNFORESEEN
        proposed.append((resource, altered, ()))
        if ends_step(index):
            yield
    return (yield from _decided(view, results, proposed, validate_only=request.validate_only))


def decide_replace_configs(
    view: ConfigView, request: AlterConfigsRequest
) -> Decision[Results] | Refusal:
    """Replace all configurations of the resources.

    Fails as a whole with POLICY_VIOLATION if the request is too large.
    """
    return whole(replace_configs_steps(view, request))


def replace_configs_steps(
    view: ConfigView, request: AlterConfigsRequest
) -> Steps[Decision[Results] | Refusal]:
    """Like `decide_replace_configs`, in steps."""
    asked = {(each.resource_type, each.resource_name): each.configs for each in request.resources}
    results, resources = _sorted_out(
        view, [(each.resource_type, each.resource_name) for each in request.resources]
    )
    proposed: list[tuple[Resource, Values | Refusal, Sequence[str]]] = []
    for index, resource in enumerate(resources):
        if ends_step(index):
            yield
        if resource[0] == ConfigResourceType.BROKER_LOGGER:
            results.append(
                (
                    resource,
                    Refusal(ErrorCode.INVALID_REQUEST, "Unexpected resource type BROKER_LOGGER."),
                )
            )
            continue
        present = view.configs.configs_of(*resource)
        named = {config.name: config.value for config in asked[resource]}
        changed = {
            name: value
            for name, value in named.items()
            if _is_written(resource, present.get(name), value)
        }
        proposed.append((resource, changed, [name for name in present if name not in named]))
    return (yield from _decided(view, results, proposed, validate_only=request.validate_only))


def _sorted_out(view: ConfigView, asked: Sequence[Resource]) -> tuple[Results, list[Resource]]:
    """Return the resources that fail before any value is checked, and the remaining ones without
    duplicates.
    """
    refused: Results = []
    twice: dict[Resource, None] = {}
    left: dict[Resource, None] = {}
    for resource in asked:
        if resource[0] not in view.resource_types:
            refused.append(
                (
                    resource,
                    Refusal(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {resource[0]}."),
                )
            )
        elif resource in left:
            del left[resource]
            twice[resource] = None
            refused.append((resource, TWICE))
        elif resource not in twice:
            left[resource] = None
    return refused, list(left)


def _altered(
    view: ConfigView, resource: Resource, operations: Sequence[AlterableConfig]
) -> Values | Refusal:
    """Return the changed values by name; None deletes the value.

    Of several operations on one name the last one wins.
    """
    present = view.configs.configs_of(*resource)
    changed: dict[str, str | None] = {}
    for name, operation in {operation.name: operation for operation in operations}.items():
        altered = _altered_value(_definition(view, resource, name), present.get(name), operation)
        if isinstance(altered, Refusal):
            return altered
        if _is_written(resource, present.get(name), altered):
            changed[name] = altered
    return changed


def _altered_value(
    definition: ConfigDefinition | None, present: str | None, operation: AlterableConfig
) -> str | Refusal | None:
    """Return the value after an operation; None: the resource has no value of its own."""
    if operation.config_operation in (SET, DELETE):
        return operation.value if operation.config_operation == SET else None
    if operation.config_operation not in (APPEND, SUBTRACT):
        return UNFORESEEN
    verb, change = (
        ("APPEND", _appended) if operation.config_operation == APPEND else ("SUBTRACT", _subtracted)
    )
    if definition is None or not definition.is_list:
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            f"Can't {verb} to key {operation.name} because its type is not LIST.",
        )
    return (
        UNFORESEEN
        if operation.value is None
        else change(definition.default if present is None else present, operation.value)
    )


def _decided(
    view: ConfigView,
    results: Results,
    proposed: Sequence[tuple[Resource, Values | Refusal, Sequence[str]]],
    *,
    validate_only: bool,
) -> Steps[Decision[Results] | Refusal]:
    records: list[Message] = []
    for index, (resource, changed, dropped) in enumerate(proposed):
        if ends_step(index):
            yield
        refusal = (
            changed
            if isinstance(changed, Refusal)
            else _refuse_values(view, resource, changed, dropped)
        )
        results.append((resource, refusal))
        if refusal is None and not isinstance(changed, Refusal):
            records += _records(resource, {**changed, **dict.fromkeys(dropped)})
    if len(records) > RECORDS_MAX:
        return TOO_LARGE
    if validate_only:
        return Decision([], results)
    facts = tuple(_fact(view, record) for record in records if isinstance(record, ConfigRecord))
    return Decision(
        [*records, *(clear_elr_records(records) if view.has_eligible_leaders else ())],
        results,
        facts,
    )


def _refuse_values(
    view: ConfigView, resource: Resource, changed: Values, dropped: Sequence[str]
) -> Refusal | None:
    """Return the error of the resulting configuration, or None."""
    resource_type, name = ConfigResourceType(resource[0]), resource[1]
    together: dict[str, str | None] = {**view.configs.configs_of(*resource), **changed}
    gone = frozenset(dropped)
    then = {key: value for key, value in together.items() if value is not None and key not in gone}
    if view.has_eligible_leaders and resource_type is ConfigResourceType.BROKER:
        refusal = _refuse_min_in_sync(name, {**changed, **dict.fromkeys(dropped)})
        if refusal is not None:
            return refusal
    return (
        refuse_resource(resource_type, name)
        or _refuse_configs(view, resource_type, name, then)
        or view.refuse_missing(resource_type, name)
    )


def _refuse_min_in_sync(broker: str, changed: Values) -> Refusal | None:
    """Return why min.insync.replicas of a broker or of all brokers cannot change while ELR is
    enabled, or None.
    """
    if MIN_IN_SYNC_CONFIG not in changed:
        return None
    if broker:
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        )
    if changed[MIN_IN_SYNC_CONFIG] is None:
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        )
    return None


def clear_elr_records(records: Sequence[Message]) -> list[Message]:
    """Return the records for a changed min.insync.replicas: they clear the eligible leader replicas
    of these topics, or of all.
    """
    changed = [
        record
        for record in records
        if isinstance(record, ConfigRecord) and record.name == MIN_IN_SYNC_CONFIG
    ]
    return [
        ClearElrRecord(
            topic_name=record.resource_name if record.resource_type == TOPIC_RESOURCE else ""
        )
        for record in changed
    ]


def refuse_resource(resource_type: ConfigResourceType, name: str) -> Refusal | None:
    """Return the error of an invalid resource name, or None."""
    if resource_type is ConfigResourceType.TOPIC:
        if not name:
            return Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        why = why_name_is_invalid(name)
        return None if why is None else Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    if resource_type is ConfigResourceType.GROUP and not name:
        return Refusal(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    if resource_type is ConfigResourceType.BROKER and name:
        try:
            broker_id = parse_int32(name)
        except ValueError:
            return Refusal(
                ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number."
            )
        return (
            Refusal(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
            if broker_id < 0
            else None
        )
    return None


def _refuse_configs(
    view: ConfigView, resource_type: ConfigResourceType, name: str, configs: Mapping[str, str]
) -> Refusal | None:
    match resource_type:
        case ConfigResourceType.TOPIC:
            complaint = view.configs.tables.complaint_about_topic(
                configs, view.configs.behind_topics(), view.configs.configs_of(resource_type, name)
            )
            return None if complaint is None else Refusal(ErrorCode.INVALID_CONFIG, complaint)
        case ConfigResourceType.CLIENT_METRICS:
            return refuse_client_metrics(name, configs, view.configs.tables.client_metrics)
        case ConfigResourceType.GROUP:
            complaint = complaint_about_group(
                view.configs.tables.groups, configs, view.configs.static_setting
            )
            return None if complaint is None else Refusal(ErrorCode.INVALID_CONFIG, complaint)
        case _:
            return None


def _definition(view: ConfigView, resource: Resource, name: str) -> ConfigDefinition | None:
    match resource[0]:
        case ConfigResourceType.TOPIC:
            return view.configs.tables.topic.get(name)
        case ConfigResourceType.BROKER:
            return view.configs.tables.definition_of(name)
        case _:
            return None


def _is_written(resource: Resource, present: str | None, value: str | None) -> bool:
    return present != value or resource[0] == ConfigResourceType.BROKER


def _appended(present: str | None, text: str) -> str:
    parts = _parts(present)
    present_parts = frozenset(parts)
    parts += [part for part in dict.fromkeys(java_split(text)) if part not in present_parts]
    return ",".join(parts)


def _subtracted(present: str | None, text: str) -> str:
    """Remove the first occurrence of each element of the text, like java.util.List.remove."""
    times = Counter(java_split(text))
    left = []
    for part in _parts(present):
        if times[part]:
            times[part] -= 1
        else:
            left.append(part)
    return ",".join(left)


def _parts(text: str | None) -> list[str]:
    return [] if text is None else [part for part in text.split(",") if part]


def _records(resource: Resource, values: Values) -> Iterator[ConfigRecord]:
    for name, value in values.items():
        yield ConfigRecord(
            resource_type=resource[0], resource_name=resource[1], name=name, value=value
        )


def _fact(view: ConfigView, record: ConfigRecord) -> ConfigChanged:
    definition = _definition(view, (record.resource_type, record.resource_name), record.name)
    is_secret = record.resource_type == ConfigResourceType.BROKER and (
        definition is None or definition.is_sensitive
    )
    return ConfigChanged(
        resource_type=record.resource_type,
        resource_name=record.resource_name,
        name=record.name,
        value=None if is_secret else record.value,
        is_removed=record.value is None,
    )

"""Effective configurations of a node: their layers, DescribeConfigs, the validation of changes
before a broker forwards them, and the local properties of a controller.

Source: KIP-133, KIP-226, KIP-569, KIP-590, kafka.server.{ConfigAdminManager.preprocess,
ConfigHelper, DynamicBrokerConfig, DynamicConfig}.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_group_configs import GroupConfig, text_behind
from kraftsim.metadata.rules_config_definitions import (
    ADVERTISED,
    SYSTEM_ENABLE,
    ConfigDefinition,
    complaint_about_change,
    java_split,
    plain_text,
)
from kraftsim.metadata.rules_config_releases import (
    DEFINITIONS,
    KAFKA_3_9,
    LISTENER_PREFIX,
    ConfigTables,
    base_name,
)
from protocol.config_resources import ConfigResourceType, ConfigSource, ConfigType
from protocol.errors import ErrorCode
from protocol.messages.k33_alter_configs import AlterConfigsResource as ReplacedResource
from protocol.messages.k44_incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterableConfig,
    AlterConfigsResource,
)
from protocol.storage.text_files import parse_int32

AnyResource: TypeAlias = AlterConfigsResource | ReplacedResource
Holds: TypeAlias = Callable[[str], str | None]
TWICE: Final = Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
DUPLICATE_KEY: Final = Refusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


# --------------------------------------------------------------------------------------------------
# Validation on the broker, before it forwards a change
#
# A broker validates its own and the cluster-wide broker configurations, as the controller accepts
# any value for them.


def _nothing_holds(name: str) -> None:
    """Return None: no value is set."""


def count_resources(resources: Iterable[AnyResource]) -> Counter[tuple[int, str]]:
    """Return how often each (resource type, resource name) occurs in a request: counted once for
    all resources.
    """
    return Counter((each.resource_type, each.resource_name) for each in resources)


def refuse_common(times: Mapping[tuple[int, str], int], resource: AnyResource) -> Refusal | None:
    """Return the error of a duplicate or malformed resource, or None.

    `times` is the result of `count_resources`.
    """
    if times[resource.resource_type, resource.resource_name] > 1:
        return TWICE
    if len({config.name for config in resource.configs}) < len(resource.configs):
        return DUPLICATE_KEY
    without_value = [
        config.name
        for config in resource.configs
        if config.value is None and getattr(config, "config_operation", SET) != DELETE
    ]
    if without_value:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(without_value)}"
        )
    return None


def refuse_type(resource: AnyResource, allowed: frozenset[ConfigResourceType]) -> Refusal | None:
    """Return the error of an unsupported resource type, or None."""
    if resource.resource_type in allowed:
        return None
    return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def refuse_altered_broker(
    tables: ConfigTables,
    node_id: int,
    resource: AlterConfigsResource,
    present: Mapping[str, str],
    holds: Holds = _nothing_holds,
) -> Refusal | None:
    """Return the error of incremental broker changes, or None.

    `present` are the broker's values before the change, `holds` returns the effective value of a
    name.
    """
    refusal = _refuse_other_broker(node_id, resource.resource_name)
    if refusal is not None:
        return refusal
    values = dict(present)
    unknown = next(
        (
            each.config_operation
            for each in resource.configs
            if each.config_operation not in (SET, DELETE, APPEND, SUBTRACT)
        ),
        None,
    )
    if unknown is not None:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown operations type {unknown}")
    for operation in resource.configs:
        refusal = _apply(tables, values, operation)
        if refusal is not None:
            return refusal
    changed = [operation.name for operation in resource.configs]
    return _refuse_values(tables, values, resource.resource_name, changed, holds)


def refuse_replaced_broker(
    tables: ConfigTables, node_id: int, resource: ReplacedResource, holds: Holds = _nothing_holds
) -> Refusal | None:
    """Return the error of replaced broker configurations, or None. `holds` as above."""
    values = {config.name: config.value for config in resource.configs if config.value is not None}
    other = _refuse_other_broker(node_id, resource.resource_name)
    return other or _refuse_values(tables, values, resource.resource_name, list(values), holds)


def _refuse_other_broker(node_id: int, name: str) -> Refusal | None:
    if not name:
        return None
    try:
        is_own = parse_int32(name) == node_id
    except ValueError:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    return (
        None
        if is_own
        else Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node_id}, but received {name}",
        )
    )


def _apply(
    tables: ConfigTables, values: dict[str, str], operation: AlterableConfig
) -> Refusal | None:
    """Apply one operation to the values, or return its error."""
    name, text = operation.name, operation.value
    if operation.config_operation == SET:
        assert text is not None, "a null value was rejected before"
        values[name] = text
    elif operation.config_operation == DELETE:
        values.pop(name, None)
    else:
        assert text is not None, "a null value was rejected before"
        config = tables.broker.get(name)
        if config is None:
            return Refusal(
                ErrorCode.UNKNOWN_SERVER_ERROR
            )  # an uncaught exception of the lookup (before 4.4)
        verb = "append" if operation.config_operation == APPEND else "subtract"
        if not config.is_list:
            return Refusal(
                ErrorCode.INVALID_CONFIG,
                f"Config value {verb} is not allowed for config key: {name}",
            )
        parts = [part for part in values.get(name, config.default or "").split(",") if part]
        changed = java_split(text)
        present = frozenset(parts)
        values[name] = ",".join(
            [*parts, *(part for part in changed if part not in present)]
            if verb == "append"
            else _without(parts, changed)
        )
    return None


def _without(parts: list[str], taken: Sequence[str]) -> list[str]:
    gone = frozenset(taken)
    return [part for part in parts if part not in gone]


def _refuse_values(
    tables: ConfigTables,
    values: Mapping[str, str],
    name: str,
    changed: Collection[str],
    holds: Holds,
) -> Refusal | None:
    complaint = tables.complaint_about_dynamic(values, is_for_all=not name)
    if complaint is None:
        definitions = {each: tables.definition_of(each) for each in changed if each in values}
        known = {
            each: values[each]
            for each, definition in definitions.items()
            if definition is not None and definition.is_dynamic
        }
        complaint = complaint_about_change(
            known, holds, is_advertised_dynamic=tables.is_dynamic(ADVERTISED)
        )
    return None if complaint is None else Refusal(ErrorCode.INVALID_REQUEST, complaint)


# --------------------------------------------------------------------------------------------------
# The layers of a broker's configuration: dynamic values of the broker and of the cluster, static
# properties, defaults
#
# Some configurations have synonyms in other units, which apply if the preferred names are not set.

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


# --------------------------------------------------------------------------------------------------
# DescribeConfigs of topics, brokers and client metrics: each value with its source and synonyms

DYNAMIC_DEFAULT: Final = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A value that applies if none before it is set.

    The value of a sensitive configuration is None.
    """

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConfig:
    """One configuration.

    The value is None if it is sensitive or not set. `kind` None: the response has no type.
    """

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[Synonym, ...] = ()
    kind: ConfigType | None = None


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerSettings, names: Collection[str] | None = None
) -> list[DescribedConfig]:
    """Return the effective configurations of a topic on a broker: all, or the named ones."""
    effective = broker.tables.effective_topic_configs(overrides, broker.for_topics())
    return [
        _of_topic(name, effective[name], overrides, broker)
        for name in broker.tables.topic
        if _is_asked(name, names)
    ]


def describe_broker(
    broker: BrokerSettings, names: Collection[str] | None = None
) -> list[DescribedConfig]:
    """Return the effective configurations of one broker: all, or the named ones."""
    return [
        _of_broker(name, broker.value(name), broker)
        for name in broker.names()
        if _is_asked(name, names)
    ]


def describe_all_brokers(
    broker: BrokerSettings, names: Collection[str] | None = None
) -> list[DescribedConfig]:
    """Return the dynamic defaults of all brokers: all, or the named ones."""
    return [
        _of_all_brokers(name, value, broker)
        for name, value in broker.cluster.items()
        if _is_asked(name, names)
    ]


def describe_client_metrics(
    configs: Mapping[str, str], names: Collection[str] | None = None, *, is_complete: bool
) -> list[DescribedConfig]:
    """Return the values set on a subscription, or (`is_complete`, since 4.1) all configurations:
    all, or the named ones.
    """
    if is_complete:
        return [_of_client_metrics(name, configs) for name in DEFINITIONS if _is_asked(name, names)]
    return [
        DescribedConfig(name=name, value=value, source=ConfigSource.CLIENT_METRICS_CONFIG)
        for name, value in configs.items()
    ]


def describe_group(
    own: Mapping[str, str], broker: BrokerSettings, names: Collection[str] | None = None
) -> list[DescribedConfig]:
    """Return the configurations of a group, which need not exist: all, or the named ones. `own` are
    its own values.
    """
    return [
        _of_group(name, definition, own, broker)
        for name, definition in broker.tables.groups.configs.items()
        if not definition.is_internal and _is_asked(name, names)
    ]


def _of_group(
    name: str, definition: GroupConfig, own: Mapping[str, str], broker: BrokerSettings
) -> DescribedConfig:
    groups, default = broker.tables.groups, ConfigSource.DEFAULT_CONFIG
    behind = text_behind(groups, name, broker.value, has_own=True)
    text = own.get(name, behind)
    value = None if text is None else plain_text(definition.kind, text)
    synonyms: tuple[Synonym, ...] = ()
    if not groups.shows_brokers:
        synonyms = () if name in own else (Synonym(name=name, value=value, source=default),)
    elif definition.broker_key is None:
        synonyms = (Synonym(name=name, value=definition.default, source=default),)
    else:
        synonyms = _synonyms(definition.broker_key, broker, is_secret=False)
    if name in own:
        set_here = Synonym(name=name, value=value, source=ConfigSource.GROUP_CONFIG)
        synonyms = (set_here, *synonyms)
    return DescribedConfig(
        name=name, value=value, source=_source(synonyms), synonyms=synonyms, kind=definition.kind
    )


def _of_client_metrics(name: str, configs: Mapping[str, str]) -> DescribedConfig:
    definition, source = DEFINITIONS[name], ConfigSource.CLIENT_METRICS_CONFIG
    if name not in configs:
        return DescribedConfig(
            name=name,
            value=definition.default,
            source=ConfigSource.DEFAULT_CONFIG,
            kind=definition.kind,
        )
    shown = plain_text(definition.kind, configs[name])
    return DescribedConfig(
        name=name,
        value=shown,
        source=source,
        synonyms=(Synonym(name=name, value=shown, source=source),),
        kind=definition.kind,
    )


def _of_topic(
    name: str, value: str, overrides: Mapping[str, str], broker: BrokerSettings
) -> DescribedConfig:
    config = broker.tables.topic[name]
    shown = plain_text(config.kind, value)
    behind = (
        () if config.broker_key is None else _synonyms(config.broker_key, broker, is_secret=False)
    )
    own = (
        (Synonym(name=name, value=shown, source=ConfigSource.TOPIC_CONFIG),)
        if name in overrides
        else ()
    )
    synonyms = own + behind
    return DescribedConfig(
        name=name, value=shown, source=_source(synonyms), synonyms=synonyms, kind=config.kind
    )


def _of_broker(name: str, value: str | None, broker: BrokerSettings) -> DescribedConfig:
    config = broker.tables.definition_of(name)
    is_secret = config is None or config.is_sensitive
    synonyms = _synonyms(name, broker, is_secret=is_secret)
    return DescribedConfig(
        name=name,
        value=_shown(config, value),
        source=_source(synonyms),
        is_read_only=not broker.tables.is_dynamic(name),
        is_sensitive=is_secret,
        synonyms=synonyms,
        kind=ConfigType.UNKNOWN if config is None else config.kind,
    )


def _of_all_brokers(name: str, value: str, broker: BrokerSettings) -> DescribedConfig:
    described = _of_broker(name, value, broker)
    synonyms = tuple(each for each in described.synonyms if each.source is DYNAMIC_DEFAULT)
    return DescribedConfig(
        name=name,
        value=described.value,
        source=_source(synonyms),
        is_read_only=described.is_read_only,
        is_sensitive=described.is_sensitive,
        synonyms=synonyms,
        kind=described.kind,
    )


def _synonyms(name: str, broker: BrokerSettings, *, is_secret: bool) -> tuple[Synonym, ...]:
    """Return the values of all synonyms of a configuration, in order of precedence, its own name
    first.
    """
    found = [
        Synonym(name=each, value=None if is_secret else layer[each], source=source)
        for source, layer in broker.layers()
        for each in synonyms_of(name)
        if each in layer
    ]
    first = next((index for index, synonym in enumerate(found) if synonym.name == name), len(found))
    return tuple(found[first:])


def _source(synonyms: tuple[Synonym, ...]) -> ConfigSource:
    return synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG


def _shown(config: ConfigDefinition | None, value: str | None) -> str | None:
    if config is None or config.is_sensitive or value is None:
        return None
    return (
        value.strip()
        if config.kind in (ConfigType.STRING, ConfigType.CLASS)
        else plain_text(config.kind, value)
    )


def _is_asked(name: str, names: Collection[str] | None) -> bool:
    return not names or name in names


# --------------------------------------------------------------------------------------------------
# The local properties of a controller: node id, supported features, static configuration, quorum
# voters
#
# Source: org.apache.kafka.controller.QuorumFeatures, org.apache.kafka.metadata.KafkaConfigSchema.

UNKNOWN_ID: Final = -1
BEFORE_CLIENT_METRICS: Final = frozenset(
    (ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationBehavior:
    """Release differences of partition changes.

    `moves_wait_for_all`: a reassignment completes only when all target replicas are in sync (up to
    4.2). `assignments_forget_eligible`: assigning a replica to a directory clears the eligible
    leader replicas (up to 4.2).
    """

    moves_wait_for_all: bool = True
    assignments_forget_eligible: bool = True


EARLY_BEHAVIOR: Final = ReplicationBehavior()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerNode:
    """One controller.

    `supported_features`: feature -> (min, max level); `quorum_ids`: the static voters.
    """

    node_id: int = UNKNOWN_ID
    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    quorum_ids: tuple[int, ...] = ()
    static_configs: Mapping[str, str] = field(default_factory=dict)
    config_tables: ConfigTables = KAFKA_3_9
    resource_types: frozenset[ConfigResourceType] = BEFORE_CLIENT_METRICS | {
        ConfigResourceType.CLIENT_METRICS
    }
    """The resource types with configurations in its release."""
    fences_at_registration: bool = False
    """Whether the registration of a new incarnation fences the partitions of the former one (since
    4.0).
    """
    checks_sessions_periodically: bool = False
    """Whether it looks for expired broker sessions eight times per session (since 4.0)."""
    explains_unregistration: bool = False
    """Whether the error of a failed unregistration has a message (since 4.0)."""
    replication: ReplicationBehavior = EARLY_BEHAVIOR
    names_downgrades: bool = False
    """Whether the error of an unsafe metadata.version downgrade names both levels (since 4.3)."""
    migrates: bool = False
    """Whether it migrates the cluster from ZooKeeper (zookeeper.metadata.migration.enable)."""
    inter_broker_listener: str | None = None
    """The listener that a migrating broker must have."""
    updates_features_atomically: bool = False
    """Whether UpdateFeatures is all or nothing (since 4.0)."""

"""DescribeConfigs of topics, brokers and client metrics: each value with its source and synonyms.

Source: KIP-133, KIP-226, KIP-569, kafka.server.ConfigHelper.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kraftsim.core.metadata.broker_configs import BrokerSettings, synonyms_of
from kraftsim.core.metadata.client_metrics import DEFINITIONS
from kraftsim.core.metadata.config_definitions import ConfigDefinition, plain_text
from protocol.config_resources import ConfigSource, ConfigType

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

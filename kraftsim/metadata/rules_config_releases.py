"""The configurations of a release, and what follows from them: dynamic updates, effective topic
configurations, client metrics subscriptions.

Source: kafka.server.{KafkaConfig.configDef, DynamicBrokerConfig, DynamicConfig},
org.apache.kafka.storage.internals.log.LogConfig, KIP-226.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import inf
from typing import Final, TypeAlias

from kraftsim.core.decision import Refusal
from kraftsim.core.expressions import is_java_expression
from kraftsim.groups.rules_group_configs import (
    NO_GROUP_CONFIGS,
    GroupConfig,
    GroupDefinitions,
    reset_strategy,
    reset_strategy_4_0,
)
from kraftsim.metadata.config_facts import brokers_2, brokers_3, brokers_4, groups, topics
from kraftsim.metadata.rules_config_definitions import (
    ADVERTISED,
    DYNAMIC_ONLY,
    NO_ADVERTISED,
    BrokerConfig,
    Check,
    ConfigDefinition,
    TopicConfig,
    UpdateMode,
    any_case_of,
    between,
    complaint_about_number,
    complaint_about_tiering,
    gzip_level,
    is_true,
    java_split,
    no_empty_elements,
    non_empty,
    non_empty_some_of,
    one_of,
    parse_value,
    some_of,
    throttled_replicas,
)
from kraftsim.metadata.rules_versions import known_version_names
from protocol.config_resources import ConfigType
from protocol.errors import ErrorCode
from protocol.storage.text_files import parse_int32

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


# --------------------------------------------------------------------------------------------------
# The tables of a release, and the rules that read them


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
    groups: GroupDefinitions = NO_GROUP_CONFIGS

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

    def default_of(self, name: str) -> str | None:
        """Return the default of a broker configuration, also of an internal one; None: there is
        none.
        """
        known = self.broker.get(name) or self.internal.get(name)
        return None if known is None else known.default

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


# --------------------------------------------------------------------------------------------------
# Client metrics subscriptions (KIP-714)
#
# Source: org.apache.kafka.server.metrics.ClientMetricsConfigs (3.9, 4.0).

DEFINITIONS: Final = {
    "interval.ms": ConfigDefinition(ConfigType.INT, "300000"),
    "match": ConfigDefinition(ConfigType.LIST, ""),
    "metrics": ConfigDefinition(ConfigType.LIST, ""),
}
WITHOUT_EMPTY_ELEMENTS: Final = {
    name: replace(definition, check=no_empty_elements)
    if definition.kind is ConfigType.LIST
    else definition
    for name, definition in DEFINITIONS.items()
}
"""Since 4.2."""
NAMES: Final = ("metrics", "interval.ms", "match")
INTERVALS_MS: Final = (100, 3_600_000)
MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def refuse_client_metrics(
    subscription: str, configs: Mapping[str, str], definitions: Mapping[str, ConfigDefinition]
) -> Refusal | None:
    """Return why a subscription is invalid, or None.

    Values are parsed by `definitions` first; there are none before 4.0.
    """
    if not subscription:
        return Refusal(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    unknown = next((name for name in sorted(configs) if name not in NAMES), None)
    if unknown is not None:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {unknown}"
        )
    for name, definition in definitions.items():
        complaint = definition.complaint(name, configs[name]) if name in configs else None
        if complaint is not None:
            return Refusal(ErrorCode.INVALID_CONFIG, complaint)
    return _refuse_interval(configs.get("interval.ms")) or _refuse_patterns(
        _patterns(configs.get("match"), is_list=bool(definitions))
    )


def _patterns(text: str | None, *, is_list: bool) -> Sequence[str]:
    """Split at commas; before values had types, empty ones at the end were dropped."""
    if text is None:
        return ()
    if not is_list:
        return java_split(text)
    parts = parse_value(ConfigType.LIST, text)
    assert isinstance(parts, tuple), "the value is parsed as a list"
    return parts


def _refuse_interval(text: str | None) -> Refusal | None:
    if text is None:
        return None
    try:
        interval_ms = parse_int32(text)
    except ValueError:
        return Refusal(
            ErrorCode.UNKNOWN_SERVER_ERROR
        )  # the exception of Integer.parseInt is not caught before 4.0
    if INTERVALS_MS[0] <= interval_ms <= INTERVALS_MS[1]:
        return None
    why = (
        f"Invalid value {interval_ms} for interval.ms, interval must be between "
        f"{INTERVALS_MS[0]} and {INTERVALS_MS[1]} (1 hour)"
    )
    return Refusal(ErrorCode.INVALID_REQUEST, why)


def _refuse_patterns(patterns: Sequence[str]) -> Refusal | None:
    for pattern in patterns:
        parts = java_split(pattern, "=")
        if (
            len(parts) != 2
            or parts[0].strip() not in MATCHED
            or not is_java_expression(parts[1].strip())
        ):
            return Refusal(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
    return None


# --------------------------------------------------------------------------------------------------
# The tables of each release line: the generated rows of `config_facts`, up to that line
#
# Created on first use. The rows are those of KafkaConfig.configDef, DynamicBrokerConfig and
# LogConfig of each release; `tests/apache_kafka/config_facts.py` writes them.

Rows: TypeAlias = dict[str, tuple[str | None, ...]]
BROKER_ROWS: Final = brokers_2.CHANGED | brokers_3.CHANGED | brokers_4.CHANGED
BROKER_GONE: Final = brokers_2.GONE | brokers_3.GONE | brokers_4.GONE
LINES: Final = tuple(BROKER_ROWS)
"""The release lines, oldest first."""
NEXT_LINE: Final = "trunk"
"""The line that is not released yet; no binary could be asked for its configurations."""
DEFAULT_LINE: Final = "3.9"
FIRST_WITHOUT_EMPTY_ELEMENTS: Final = "4.2"
"""Since then list elements must not be empty (KIP-1161)."""
FIRST_WITH_TYPED_CLIENT_METRICS: Final = "4.0"
FIRST_WITH_DESCRIBED_CLIENT_METRICS: Final = "4.1"
"""Both measured with Apache Kafka 3.9.1, 4.0.2, 4.1.2 and 4.4.0."""
FIRST_WITH_CLAMPED_GROUPS: Final = "4.3"
DEFINED_PREFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    FIRST_WITH_CLAMPED_GROUPS: (),
    "4.1": ("streams.",),
    "4.0": ("share.session.", "share.heartbeat."),
}
FIRST_WITH_GIVEN_GROUP_VALUES: Final = "4.4"
INTERNAL: Final = "internal"
_NUMBER: Final = r"(-?\d+(?:\.\d+)?)"
_NUMBERS = re.compile(rf"\[{_NUMBER},\.\.\.(?:,{_NUMBER})?\]")
_ANY_CASE = "(case insensitive) "
BY_DURATION_TOO: Final = ", by_duration:PnDTnHnMn.nS]"


@cache
def config_tables(line: str) -> ConfigTables:
    """Return the configurations of a release line: those of the newest released one for the line
    after it, those of 3.9 for an unknown line.
    """
    if line not in LINES:
        return config_tables(LINES[-1] if line == NEXT_LINE else DEFAULT_LINE)
    brokers, of_topics = (
        rows_until(BROKER_ROWS, BROKER_GONE, line),
        rows_until(topics.CHANGED, topics.GONE, line),
    )
    names = _ordered(topics.ORDERS, of_topics, line)
    known = {name: _broker_config(brokers[name], line) for name in sorted(brokers)}
    return ConfigTables(
        {name: config for name, config in known.items() if config.mode is not UpdateMode.INTERNAL},
        {
            name: _topic_config(of_topics[name], line)
            for name in names
            if of_topics[name][3:4] != (INTERNAL,)
        },
        {name: config for name, config in known.items() if config.mode is UpdateMode.INTERNAL},
        _client_metrics(line),
        is_since(line, FIRST_WITH_DESCRIBED_CLIENT_METRICS),
        _group_definitions(line),
    )


def is_since(line: str, first: str) -> bool:
    """Return whether a release line is `first` or later."""
    return LINES.index(line) >= LINES.index(first)


def _group_definitions(line: str) -> GroupDefinitions:
    rows = rows_until(groups.CHANGED, groups.GONE, line)
    configs = {
        name: _group_config(rows[name], line) for name in _ordered(groups.ORDERS, rows, line)
    }
    return GroupDefinitions(
        configs=configs,
        shows_brokers=is_since(line, FIRST_WITH_CLAMPED_GROUPS),
        defined_prefixes=next(
            (names for first, names in DEFINED_PREFIXES.items() if is_since(line, first)), ()
        ),
        validates_given=is_since(line, FIRST_WITH_GIVEN_GROUP_VALUES),
        clamps=is_since(line, FIRST_WITH_CLAMPED_GROUPS),
    )


def _group_config(row: tuple[str | None, ...], line: str) -> GroupConfig:
    behind, valid = _fields(row)
    kind = ConfigType[str(row[1])]
    check = no_empty_elements if kind is ConfigType.LIST else _check(kind, valid, line)
    return GroupConfig(kind, _default(row), check, behind or None, row[5:] == (INTERNAL,))


def _ordered(orders: Mapping[str, tuple[str, ...]], rows: Rows, line: str) -> list[str]:
    """Return the names of the rows in the order of validation."""
    before = LINES[: LINES.index(line) + 1]
    order = next((orders[each] for each in reversed(before) if each in orders), ())
    return [
        *(name for name in order if name in rows),
        *(name for name in rows if name not in order),
    ]


def _client_metrics(line: str) -> Mapping[str, ConfigDefinition]:
    if not is_since(line, FIRST_WITH_TYPED_CLIENT_METRICS):
        return {}
    without_empty = is_since(line, FIRST_WITHOUT_EMPTY_ELEMENTS)
    return WITHOUT_EMPTY_ELEMENTS if without_empty else DEFINITIONS


@cache
def all_broker_settings() -> frozenset[str]:
    """Return the names of all broker configurations of any release."""
    return frozenset(str(row[0]) for rows in BROKER_ROWS.values() for row in rows)


def rows_until(
    changed: dict[str, tuple[tuple[str | None, ...], ...]],
    gone: dict[str, tuple[str, ...]],
    line: str,
) -> Rows:
    """Return the rows that apply to a release line, by name."""
    found: Rows = {}
    for each in LINES[: LINES.index(line) + 1]:
        found.update({str(row[0]): row for row in changed.get(each, ())})
        for name in gone.get(each, ()):
            del found[name]
    return found


def _fields(row: tuple[str | None, ...]) -> Iterator[str]:
    """Yield the fields of a row after the default; omitted ones are empty."""
    return (text or "" for text in (*row[3:], "", "")[:2])


def _broker_config(row: tuple[str | None, ...], line: str) -> BrokerConfig:
    mode, valid = _fields(row)
    kind, default = ConfigType[str(row[1])], _default(row)
    return BrokerConfig(
        kind, default, _check(kind, valid, line), UpdateMode(mode) if mode else UpdateMode.READ_ONLY
    )


def _topic_config(row: tuple[str | None, ...], line: str) -> TopicConfig:
    behind, valid = _fields(row)
    kind, default = ConfigType[str(row[1])], _default(row)
    return TopicConfig(kind, default, _check(kind, valid, line), behind or None)


def _default(row: tuple[str | None, ...]) -> str | None:
    return row[2] if len(row) > 2 else ""


@cache
def _check(kind: ConfigType, valid: str, line: str) -> Check | None:
    """Return the validator for the valid values in the definition's text."""
    numbers = _NUMBERS.fullmatch(valid)
    if numbers is not None:
        return between(_number(numbers[1]), _number(numbers[2]) if numbers[2] else inf)
    match valid:
        case "versions":
            return _format_version
        case "[1,...,9] or -1":
            return gzip_level
        case "non-empty string":
            return non_empty
        case "[partitionId]:[brokerId],[partitionId]:[brokerId],...":
            return throttled_replicas
    if valid.endswith(BY_DURATION_TOO):
        return reset_strategy_4_0 if valid.startswith("[earliest") else reset_strategy
    if valid.startswith(_ANY_CASE):
        return any_case_of(*_elements(valid.removeprefix(_ANY_CASE)))
    if not valid.startswith("["):
        return None
    assert "..." not in valid, f"unknown format of a range: {valid}"
    if kind is not ConfigType.LIST:
        return one_of(*_elements(valid))
    some = non_empty_some_of if is_since(line, FIRST_WITHOUT_EMPTY_ELEMENTS) else some_of
    return some(*_elements(valid))


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _elements(valid: str) -> tuple[str, ...]:
    return tuple(valid.strip("[]").split(", "))


def _format_version(value: object) -> str | None:
    return None if value in known_version_names() else f"Version {value} is not a valid version"


KAFKA_3_9: Final = config_tables(DEFAULT_LINE)


# --------------------------------------------------------------------------------------------------
# Combinations of broker settings with which Apache Kafka does not start, although each value is
# valid by its definition
#
# The messages are Kafka's, without the prefix of Scala's `require`.
# Source: kafka.server.KafkaConfig.validateValues,
# org.apache.kafka.storage.internals.log.CleanerConfig.

INTER_BROKER: Final = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL: Final = "security.inter.broker.protocol"
EARLY, CONTROLLERS = "early.start.listeners", "controller.listener.names"
PROTOCOLS: Final = "group.coordinator.rebalance.protocols"
IDLE, LOGIN_DELAY = "connections.max.idle.ms", "connection.failed.authentication.delay.ms"
PER_IP, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"
QUEUED, LARGEST_REQUEST = "queued.max.request.bytes", "socket.request.max.bytes"
FETCH_WAIT, FETCH_TIMEOUT, LAG = (
    "replica.fetch.wait.max.ms",
    "replica.socket.timeout.ms",
    "replica.lag.time.max.ms",
)
CLEANER_THREADS, DEDUPE_BUFFER = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
BYTES_PER_CLEANER: Final = 1024 * 1024
NOT_ABOVE: Final = (
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    ("group.streams.num.warmup.replicas", "group.streams.max.warmup.replicas"),
)
NOT_BELOW: Final = (
    ("group.share.max.share.sessions", "group.share.max.size"),
    ("group.streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms"),
)
GROUP_KINDS: Final = ("consumer", "share", "streams")
Given = Callable[[str], bool]
Number = Callable[[str], int | None]


def complaint_at_start(is_given: Given, value: Callable[[str], str | None]) -> str | None:
    """Return why a broker does not start, or None.

    `is_given` returns whether the properties have a name, `value` its effective value or default;
    None: the release has no such setting. Values are valid by their definitions.
    """

    def number(name: str) -> int | None:
        text = value(name)
        if text is None:
            return None
        parsed = parse_value(ConfigType.LONG, text)
        assert isinstance(parsed, int), "the definition allows integers only"
        return parsed

    if is_given(INTER_BROKER) and not value(INTER_BROKER):
        return "The provided listener name is null or empty string"
    if is_given(INTER_BROKER) and is_given(INTER_BROKER_PROTOCOL):
        return f"Only one of {INTER_BROKER} and {INTER_BROKER_PROTOCOL} should be set."
    if (
        is_given(PROTOCOLS)
        and value(PROTOCOLS) is not None
        and "classic" not in _elements_of_text(value(PROTOCOLS))
    ):
        return "Disabling the 'classic' protocol is not supported."
    if is_given(ADVERTISED) and not _elements_of_text(value(ADVERTISED)):
        return NO_ADVERTISED
    listeners = [
        element.partition("://")[0].upper() for element in _elements_of_text(value("listeners"))
    ]
    for name in _elements_of_text(value(EARLY)) if is_given(EARLY) else ():
        if name not in listeners:
            return (
                f"{EARLY} contains listener {name}, but this is not contained in listeners or "
                f"{CONTROLLERS}"
            )
    if number(PER_IP) == 0 and not value(OVERRIDES):
        return f"{PER_IP} can be set to zero only if {OVERRIDES} property is set."
    return (
        _about_cleaner(number)
        or _about_retention(is_given, number)
        or _about_network(number)
        or _about_assignments(number)
    )


def _elements_of_text(text: str | None) -> list[str]:
    return [element.strip() for element in (text or "").split(",") if element.strip()]


def _about_cleaner(number: Number) -> str | None:
    threads, buffer = number(CLEANER_THREADS), number(DEDUPE_BUFFER)
    if threads is None or buffer is None:
        return None
    if threads == 0:
        return "/ by zero"
    return (
        f"{DEDUPE_BUFFER} must be at least 1MB per cleaner thread."
        if buffer // threads <= BYTES_PER_CLEANER
        else None
    )


def _about_retention(is_given: Given, number: Number) -> str | None:
    for unit in ("ms", "minutes", "hours"):
        if is_given(f"log.retention.{unit}"):
            if number(f"log.retention.{unit}") == 0:
                return "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
            break
    for name, least in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        found = number(name) if is_given(name) else None
        if found is not None and found < least:
            return f"{name} must be greater than or equal to {least}"
    return None


def _about_network(number: Number) -> str | None:
    queued, largest = number(QUEUED), number(LARGEST_REQUEST)
    if queued is not None and largest is not None and 0 < queued < largest:
        return f"{QUEUED} must be larger or equal to {LARGEST_REQUEST}"
    wait, timeout = number(FETCH_WAIT), number(FETCH_TIMEOUT)
    if wait is not None and timeout is not None and wait > timeout:
        return (
            f"{FETCH_TIMEOUT} should always be at least {FETCH_WAIT} to prevent unnecessary "
            "socket timeouts"
        )
    lag = number(LAG)
    if wait is not None and lag is not None and wait > lag:
        return (
            f"{FETCH_WAIT} should always be less than or equal to {LAG} to prevent frequent "
            "changes in ISR"
        )
    idle, delay = number(IDLE), number(LOGIN_DELAY)
    if idle is not None and delay is not None and 0 <= idle <= delay:
        return (
            f"{LOGIN_DELAY}={delay} should always be less than {IDLE}={idle} to prevent failed "
            "authentication responses from timing out"
        )
    return None


def _about_assignments(number: Number) -> str | None:
    for kind in GROUP_KINDS:
        name, shortest, longest = (
            f"group.{kind}.{bound}assignment.interval.ms" for bound in ("", "min.", "max.")
        )
        own, low, high = number(name), number(shortest), number(longest)
        if own is None or low is None or high is None:
            continue
        if high < low:
            return f"{longest} must be greater than or equal to {shortest}"
        if own < low:
            return f"{name} must be greater than or equal to {shortest}"
        if own > high:
            return f"{name} must be less than or equal to {longest}"
    return _about_bounds(number)


def _about_bounds(number: Number) -> str | None:
    for name, bound in (*NOT_ABOVE, *NOT_BELOW):
        own, limit = number(name), number(bound)
        if own is None or limit is None:
            continue
        if (name, bound) in NOT_ABOVE and own > limit:
            return f"{name} must be less than or equal to {bound}"
        if (name, bound) in NOT_BELOW and own < limit:
            return f"{name} must be greater than or equal to {bound}"
    return None

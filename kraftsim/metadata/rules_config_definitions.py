"""Configuration definitions: type, default, validation of a value, and the rules between several
values. The error messages are Kafka's.

The configurations themselves are the generated rows of `kraftsim/metadata/config_facts`.
Source: org.apache.kafka.common.config.ConfigDef (parseType, Range, ValidString, ValidList),
org.apache.kafka.storage.internals.log.LogConfig, kafka.server.KafkaConfig.configDef.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from math import inf, isfinite, isnan
from typing import Final

from protocol.config_resources import ConfigType
from protocol.storage.text_files import parse_int32, parse_int64

Value = bool | int | float | str | tuple[str, ...]
Check = Callable[[Value], "str | tuple[str | None, str] | None"]
"""A value -> its error, or None; for one element of a list (element, error); (None, message)
replaces the whole message.
"""

_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
PLAIN_NOTATION: Final = (1e-3, 1e7)
"""Java prints doubles outside of this range with an exponent."""


# --------------------------------------------------------------------------------------------------
# A definition, and the text forms of values


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
    """The definition of a configuration. `default` is in Kafka's text form; None: there is none."""

    kind: ConfigType
    default: str | None
    check: Check | None = None

    @property
    def is_list(self) -> bool:
        """Whether it is a list, to which values can be appended."""
        return self.kind is ConfigType.LIST

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is sensitive, so that it is not returned."""
        return self.kind is ConfigType.PASSWORD

    def complaint(self, name: str, text: str) -> str | None:
        """Return Kafka's error message about an invalid value, or None."""
        try:
            value = parse_value(self.kind, text)
        except ValueError as reason:
            return f"Invalid value {text} for configuration {name}: {reason}"
        found = None if self.check is None else self.check(value)
        if found is None:
            return None
        shown, why = found if isinstance(found, tuple) else (shown_value(value), found)
        sentence = why.format(name=name)
        return (
            sentence
            if shown is None
            else f"Invalid value {shown} for configuration {name}: {sentence}"
        )


def parse_value(kind: ConfigType, text: str) -> Value:
    """Parse a text. Raises ValueError with the reason."""
    plain = text.strip()
    match kind:
        case ConfigType.BOOLEAN:
            if plain.lower() not in ("true", "false"):
                raise ValueError("Expected value to be either true or false")
            return plain.lower() == "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            return _integer(kind, plain)
        case ConfigType.DOUBLE:
            if _DOUBLE.fullmatch(plain) is None:
                raise ValueError(f"Not a number of type {kind.name}")
            return float(
                plain.rstrip("fFdD") if plain[-1] in "fFdD" else plain.replace("Infinity", "inf")
            )
        case ConfigType.LIST:
            return tuple(part.strip() for part in plain.split(",")) if plain else ()
        case _:
            return plain


def shown_value(value: Value) -> str:
    """Return a value in Java's text form."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return shown_double(value)
        case tuple():
            return f"[{', '.join(value)}]"
        case _:
            return str(value)


def plain_text(kind: ConfigType, text: str) -> str:
    """Return a valid value as responses show it: in Java's text form of the parsed value."""
    value = parse_value(kind, text)
    return ",".join(value) if isinstance(value, tuple) else shown_value(value)


# Validators
# --------------------------------------------------------------------------------------------------


def at_least(lowest: float) -> Check:
    """A number not below a minimum."""
    return between(lowest, inf)


def between(lowest: float, highest: float) -> Check:
    """A number in a range, inclusive."""

    def check(value: Value) -> str | None:
        assert isinstance(value, int | float), "a range is for numbers"
        if value < lowest:
            return f"Value must be at least {lowest}"
        return f"Value must be no more than {highest}" if value > highest else None

    return check


def one_of(*choices: str) -> Check:
    """One of some strings."""
    return lambda value: (
        None if value in choices else f"String must be one of: {', '.join(choices)}"
    )


def any_case_of(*choices: str) -> Check:
    """One of some strings, case-insensitive."""
    lower = [choice.lower() for choice in choices]
    return lambda value: (
        None
        if str(value).lower() in lower
        else f"String must be one of (case insensitive): {', '.join(choices)}"
    )


def non_empty(value: Value) -> str | None:
    """A string that is not empty."""
    return None if value else "String must be non-empty"


def some_of(*choices: str) -> Check:
    """A list of these strings, possibly empty."""

    def check(value: Value) -> tuple[str, str] | None:
        assert isinstance(value, tuple), "this check is for lists"
        wrong = next((part for part in value if part not in choices), None)
        return None if wrong is None else (wrong, f"String must be one of: {', '.join(choices)}")

    return check


EMPTY_ELEMENT: Final = (None, "Configuration '{name}' values must not be empty.")


def no_empty_elements(value: Value) -> tuple[str | None, str] | None:
    """No list element may be empty (since 4.2, KIP-1161)."""
    assert isinstance(value, tuple), "this check is for lists"
    return EMPTY_ELEMENT if "" in value else None


def java_split(text: str, separator: str = ",") -> list[str]:
    """Split like Java's String.split: empty parts at the end are dropped."""
    parts = text.split(separator)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts if parts != [""] or not text else []


def non_empty_some_of(*choices: str) -> Check:
    """Like `some_of` since 4.2: no element may be empty (KIP-1161); the first invalid one is
    reported.
    """
    any_of = some_of(*choices)

    def check(value: Value) -> str | tuple[str | None, str] | None:
        assert isinstance(value, tuple), "this check is for lists"
        wrong = next((part for part in value if part not in choices), None)
        return EMPTY_ELEMENT if wrong == "" else any_of(value)

    return check


def gzip_level(value: Value) -> str | None:
    """A gzip level; -1 is gzip's own default."""
    return (
        None
        if isinstance(value, int) and (value == -1 or 1 <= value <= 9)
        else "Value must be between 1 and 9 or equal to -1"
    )


def throttled_replicas(value: Value) -> str | None:
    """All replicas, or some as partition:broker."""
    assert isinstance(value, tuple), "this check is for lists"
    if all(re.fullmatch(r"([0-9]+:[0-9]+)?", part) for part in value) or "".join(value) == "*":
        return None
    return (
        "{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


def _integer(kind: ConfigType, plain: str) -> int:
    try:
        value = parse_int64(plain) if kind is ConfigType.LONG else parse_int32(plain)
        if kind is ConfigType.SHORT and not -(2**15) <= value < 2**15:
            raise ValueError(plain)
    except ValueError:
        raise ValueError(f"Not a number of type {kind.name}") from None
    return value


def shown_double(value: float) -> str:
    """Return a double in the format of Java's Double.toString."""
    if not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or PLAIN_NOTATION[0] <= abs(value) < PLAIN_NOTATION[1]:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), "the number is finite"
    plain = "".join(map(str, digits))
    return f"{'-' if sign else ''}{plain[0]}.{plain[1:] or '0'}E{exponent + len(plain) - 1}"


# --------------------------------------------------------------------------------------------------
# Topic configurations, with their broker defaults
#
# The topic's own value wins; then the broker's dynamic and static values, under the broker's name
# for it.
# Source: LogConfig (3.9), org.apache.kafka.server.config.ServerTopicConfigSynonyms.

NO_TIERED_STORAGE: Final = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with "
    "remote log storage."
)
COMPRESSIONS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


@dataclass(frozen=True, slots=True)
class TopicConfig(ConfigDefinition):
    """`broker_key` is the broker configuration with the default, if there is one."""

    broker_key: str | None = None


# --------------------------------------------------------------------------------------------------
# Broker configurations, with their dynamic update mode
#
# Source: kafka.server.KafkaConfig.configDef and DynamicBrokerConfig.AllDynamicConfigs.


class UpdateMode(Enum):
    """The dynamic update mode of a configuration."""

    READ_ONLY = "read-only"
    INTERNAL = "internal"
    """Read-only and internal: for Kafka's own tests, not described to clients."""
    PER_BROKER = "per-broker"
    """Per-broker only."""
    CLUSTER_WIDE = "cluster-wide"
    """Per-broker, or as cluster-wide default."""


@dataclass(frozen=True, slots=True)
class BrokerConfig(ConfigDefinition):
    """A broker configuration."""

    mode: UpdateMode = UpdateMode.READ_ONLY

    @property
    def is_dynamic(self) -> bool:
        """Whether it can be updated dynamically."""
        return self.mode in (UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE)


def _row(
    kind: ConfigType,
    default: str | None,
    mode: UpdateMode = UpdateMode.READ_ONLY,
    check: Check | None = None,
) -> BrokerConfig:
    return BrokerConfig(kind, default, check, mode)


LONG: Final = ConfigType.LONG
CLUSTER_WIDE: Final = UpdateMode.CLUSTER_WIDE

DYNAMIC_ONLY: Final[Mapping[str, BrokerConfig]] = {
    "follower.replication.throttled.rate": _row(
        LONG, "9223372036854775807", CLUSTER_WIDE, at_least(0)
    ),
    "leader.replication.throttled.rate": _row(
        LONG, "9223372036854775807", CLUSTER_WIDE, at_least(0)
    ),
    "replica.alter.log.dirs.io.max.bytes.per.second": _row(
        LONG, "9223372036854775807", CLUSTER_WIDE, at_least(0)
    ),
}
"""Dynamic-only configurations, which are not described until they are set."""


# --------------------------------------------------------------------------------------------------
# Tiered storage: the rules between the effective configurations of a topic
#
# Source: LogConfig.validateTopicLogConfigValues, KIP-405, KIP-950.

SYSTEM_ENABLE: Final = "remote.log.storage.system.enable"
"""The broker setting that enables tiered storage."""
AS_THE_WHOLE: Final = -2
"""A local retention equal to that of the whole log."""
WITHOUT_LIMIT: Final = -1
NOT_COMPACTED: Final = "Remote log storage is unsupported for the compacted topics"
NOT_TURNED_OFF: Final = (
    "It is invalid to disable remote storage without deleting remote data. If you want to keep "
    "the remote data and turn to read only, please set "
    "`remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable remote "
    "storage and delete all remote data, please set "
    "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
)
NOT_IDENTICAL: Final = (
    "When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and "
    "`retention.{unit}` must be set to the identical value because there will be no more logs "
    "copied to the remote storage."
)


def complaint_about_tiering(
    effective: Mapping[str, str], broker_settings: Mapping[str, str], was_tiered: bool = False
) -> str | None:
    """Return the error of a topic's effective configurations, or None.

    `was_tiered`: whether it is tiered so far.
    """
    if not is_true(effective, "remote.storage.enable"):
        return (
            NOT_TURNED_OFF
            if was_tiered and not is_true(effective, "remote.log.delete.on.disable")
            else None
        )
    if not is_true(broker_settings, SYSTEM_ENABLE):
        return NO_TIERED_STORAGE
    if "compact" in effective["cleanup.policy"].lower():
        return NOT_COMPACTED
    complaint = _complaint_about_retention(effective, "bytes") or _complaint_about_retention(
        effective, "ms"
    )
    if complaint is not None or not is_true(effective, "remote.log.copy.disable"):
        return complaint
    for unit in ("bytes", "ms"):
        local = int(effective[f"local.retention.{unit}"])
        if local not in (AS_THE_WHOLE, int(effective[f"retention.{unit}"])):
            return NOT_IDENTICAL.format(unit=unit)
    return None


def is_true(configs: Mapping[str, str], name: str) -> bool:
    """Return whether a configuration is set and true."""
    return name in configs and bool(parse_value(ConfigType.BOOLEAN, configs[name]))


def _complaint_about_retention(effective: Mapping[str, str], unit: str) -> str | None:
    whole, local = int(effective[f"retention.{unit}"]), int(effective[f"local.retention.{unit}"])
    has_limit = whole > WITHOUT_LIMIT if unit == "bytes" else whole != WITHOUT_LIMIT
    if not has_limit or local == AS_THE_WHOLE:
        return None
    if local == WITHOUT_LIMIT:
        why = f"Value must not be -1 as retention.{unit} value is set as {whole}."
    elif local > whole:
        why = f"Value must not be more than retention.{unit} property value: {whole}"
    else:
        return None
    return f"Invalid value {local} for configuration local.retention.{unit}: {why}"


# --------------------------------------------------------------------------------------------------
# Values that Apache Kafka rejects as dynamic updates although their definitions allow them
#
# Measured with Apache Kafka 4.4.0 by IncrementalAlterConfigs with validate_only.
# Source: kafka.network.ConnectionQuotas (validateReconfiguration), KafkaConfig.validateValues,
# DynamicThreadPool, DynamicListenerConfig.

RECONFIGURED: Final = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid "
    "dynamic configuration"
)
REQUIRED: Final = "requirement failed: {}"
MAX_CONNECTIONS, CREATION_RATE = "max.connections", "max.connection.creation.rate"
PER_IP, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"
THREAD_COUNTS: Final = frozenset(
    {
        "background.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
    }
)
LISTENERS, PROTOCOL_MAP, INTER_BROKER = (
    "listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
)
ADVERTISED: Final = "advertised.listeners"
NO_ADVERTISED: Final = (
    "There must be at least one broker advertised listener. Perhaps all listeners appear in "
    "controller.listener.names?"
)
NOT_ALTERED: Final = (
    "Advertised listeners cannot be altered when using a Raft-based metadata quorum."
)
ROLES, CONTROLLERS = "process.roles", "controller.listener.names"
ONLY_A_BROKER: Final = "KRaft with just the broker role"
WITHOUT_PROTOCOL: Final = (
    "Controller listener with name {} defined in controller.listener.names not found in "
    "listener.security.protocol.map  (an explicit security mapping for each controller listener "
    "is required if listener.security.protocol.map is non-empty, or if there are security "
    "protocols other than PLAINTEXT in use)"
)
INTER_BROKER_PROTOCOL: Final = "security.inter.broker.protocol"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
RETENTION_UNITS: Final = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}
LOCAL, WHOLE = "log.local.retention.", "log.retention."
UNLIMITED, AS_WHOLE = -1, -2
CLEANER_THREADS, DEDUPE_BUFFER = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
MEGABYTE: Final = 1024 * 1024
CORDONED, ALL_DIRECTORIES = "cordoned.log.dirs", "*"
SettingLookup = Callable[[str], str | None]


def complaint_about_number(name: str, text: str) -> str | None:
    """Return why a value is rejected independently of other configurations, or None.

    `text` is valid by its definition.
    """
    match name:
        case "max.connections" | "max.connection.creation.rate" if _number(text) <= 0:
            return RECONFIGURED.format(f"Invalid {name} {_number(text)}")
        case "log.roll.ms" if _number(text) < 1:
            return REQUIRED.format("log.roll.ms must be greater than or equal to 1")
        case "log.roll.jitter.ms" if _number(text) < 0:
            return REQUIRED.format("log.roll.jitter.ms must be greater than or equal to 0")
        case "log.retention.ms" if _number(text) == 0:
            return REQUIRED.format(
                "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
            )
        case "num.replica.fetchers" if _number(text) < 1:
            return (
                f"Invalid value {_number(text)} for configuration {name}: Value must be at least 1"
            )
    return _complaint_about_overrides(text) if name == OVERRIDES else None


def complaint_about_change(
    changed: Mapping[str, str], present: SettingLookup, *, is_advertised_dynamic: bool = False
) -> str | None:
    """Return why changes are rejected on top of the `present` values, or None.

    `present` returns the broker's effective value of a name before the change; values are valid by
    their definitions. `is_advertised_dynamic`: the release compares the advertised listeners, and
    rejects a change in KRaft (up to 3.9); later ones reject the configuration itself.
    """

    def then(name: str) -> str | None:
        return changed.get(name, present(name))

    for name, text in changed.items():
        current = present(name) or present(name.split(".", 3)[-1])
        if (
            name.removeprefix("listener.name.").split(".", 1)[-1] in THREAD_COUNTS
            or name in THREAD_COUNTS
        ):
            complaint = _complaint_about_threads(
                name.split(".", 3)[-1] if name not in THREAD_COUNTS else name, text, current
            )
            if complaint is not None:
                return complaint
    if CLEANER_THREADS in changed and _number(changed[CLEANER_THREADS]) == 0:
        return "/ by zero"
    if changed.keys() & {CLEANER_THREADS, DEDUPE_BUFFER}:
        threads, buffer = then(CLEANER_THREADS), then(DEDUPE_BUFFER)
        if (
            threads is not None
            and buffer is not None
            and _number(buffer) // max(1, _number(threads)) <= MEGABYTE
        ):
            return REQUIRED.format(f"{DEDUPE_BUFFER} must be at least 1MB per cleaner thread.")
    if PER_IP in changed and _number(changed[PER_IP]) == 0 and not then(OVERRIDES):
        return REQUIRED.format(f"{PER_IP} can be set to zero only if {OVERRIDES} property is set.")
    for name, text in changed.items():
        if name.endswith(".assignment.interval.ms"):
            lowest, highest = (
                name.replace(".assignment", f".{bound}.assignment") for bound in ("min", "max")
            )
            low, high = present(lowest), present(highest)
            if low is not None and _number(text) < _number(low):
                return f"{name} must be greater than or equal to {lowest}"
            if high is not None and _number(text) > _number(high):
                return f"{name} must be less than or equal to {highest}"
    return (
        _complaint_about_changed_cordons(changed, present)
        or _complaint_about_local_retention(changed, then)
        or _complaint_about_listeners(
            changed, present, then, is_advertised_dynamic=is_advertised_dynamic
        )
    )


def _complaint_about_changed_cordons(
    changed: Mapping[str, str], present: SettingLookup
) -> str | None:
    directories = present("log.dirs") or present("log.dir")
    complaint = complaint_about_cordons(changed.get(CORDONED), directories)
    return None if complaint is None else REQUIRED.format(complaint)


def complaint_about_cordons(text: str | None, directories: str | None) -> str | None:
    """Return why directories cannot be cordoned, or None: they are directories of the broker, or
    all of them (KIP-1066).
    """
    named = dict.fromkeys(_elements(text))
    if ALL_DIRECTORIES in named:
        alone = f"When {CORDONED} is set to {ALL_DIRECTORIES}, it must not contain other values"
        return None if len(named) == 1 else alone
    own = _elements(directories)
    missing = [path for path in named if path not in own]
    if not missing:
        return None
    return (
        f"All entries in {CORDONED} must be present in log.dirs or log.dir. Missing entries : "
        f"{', '.join(missing)}"
    )


def _complaint_about_local_retention(changed: Mapping[str, str], then: SettingLookup) -> str | None:
    """Return why local retention would exceed the retention of the whole log, or None."""
    if not any(name.startswith((LOCAL, WHOLE)) for name in changed):
        return None
    whole_ms = next(
        (
            _number(text) * unit
            for name, unit in RETENTION_UNITS.items()
            if (text := then(WHOLE + name)) is not None
        ),
        UNLIMITED,
    )
    whole_bytes = _number(then(f"{WHOLE}bytes") or str(UNLIMITED))
    for unit, whole in (("ms", whole_ms), ("bytes", whole_bytes)):
        local = _number(then(LOCAL + unit) or str(AS_WHOLE))
        if whole <= UNLIMITED or local == AS_WHOLE:
            continue
        name = LOCAL + unit
        if local == UNLIMITED:
            why = f"Value must not be -1 as {WHOLE}{unit} value is set as {whole}."
        elif local > whole:
            why = f"Value must not be more than {WHOLE}{unit} property value: {whole}"
        else:
            continue
        return RECONFIGURED.format(f"Invalid value {local} for configuration {name}: {why}")
    return None


def _complaint_about_listeners(
    changed: Mapping[str, str],
    present: SettingLookup,
    then: SettingLookup,
    *,
    is_advertised_dynamic: bool,
) -> str | None:
    """Return why the listeners are invalid, or None."""
    if not changed.keys() & {ADVERTISED, LISTENERS, PROTOCOL_MAP}:
        return None
    if ADVERTISED in changed and not _elements(changed[ADVERTISED]):
        return REQUIRED.format(NO_ADVERTISED)
    endpoints = _elements(then(LISTENERS))
    if not endpoints:
        return (
            f"Configuration '{LISTENERS}' must not be empty. Valid values include: any non-empty "
            "value"
        )
    protocols, complaint = _protocols(then(PROTOCOL_MAP))
    if complaint is not None:
        return complaint
    complaint = _complaint_about_addresses(endpoints, protocols)
    if complaint is not None:
        return complaint
    names = [_listener_of(endpoint) for endpoint in endpoints]
    of_controllers = [name.upper() for name in _elements(present(CONTROLLERS))]
    hidden = next(
        (name for name in of_controllers if PROTOCOL_MAP in changed and name not in protocols), None
    )
    if hidden is not None:
        return WITHOUT_PROTOCOL.format(hidden)
    if any(name in names for name in of_controllers):
        return REQUIRED.format(
            f"{CONTROLLERS} must not contain a value appearing in the '{LISTENERS}' "
            f"configuration when running {ONLY_A_BROKER}"
        )
    inter_broker = (then(INTER_BROKER) or then(INTER_BROKER_PROTOCOL) or PROTOCOLS[0]).upper()
    if inter_broker not in names:
        options = f"The valid options based on currently configured listeners are {','.join(names)}"
        return REQUIRED.format(
            f"{INTER_BROKER} must be a listener name defined in advertised.listeners. {options}"
        )
    if (
        is_advertised_dynamic
        and present(ROLES)
        and _elements(then(ADVERTISED) or then(LISTENERS))
        != _elements(present(ADVERTISED) or present(LISTENERS))
    ):
        return RECONFIGURED.format(NOT_ALTERED)
    before, _ = _protocols(present(PROTOCOL_MAP))
    moved = next(
        (
            name
            for endpoint in _elements(present(LISTENERS))
            if _is_changed(name := _listener_of(endpoint), names, before, protocols)
        ),
        None,
    )
    return (
        None
        if moved is None
        else RECONFIGURED.format(
            f"Security protocol cannot be updated for existing listener ListenerName({moved})"
        )
    )


def _is_changed(
    name: str, names: Sequence[str], before: Mapping[str, str], after: Mapping[str, str]
) -> bool:
    return name in names and name in before and before[name] != after[name]


def _protocols(text: str | None) -> tuple[dict[str, str], str | None]:
    """Return the security protocol of each listener, the last of several; or the error of the
    map.
    """
    found: dict[str, str] = {}
    for pair in _elements(text):
        name, colon, protocol = pair.rpartition(":")
        if not colon:
            return (
                {},
                (
                    f"Error parsing configuration property '{PROTOCOL_MAP}': begin 0, end -1, "
                    f"length {len(pair)}"
                ),
            )
        if protocol.strip().upper() not in PROTOCOLS:
            return {}, f"Invalid security protocol `{protocol.strip()}` defined in {PROTOCOL_MAP}"
        found[name.strip().upper()] = protocol.strip().upper()
    return found, None


def _complaint_about_addresses(
    endpoints: Sequence[str], protocols: Mapping[str, str]
) -> str | None:
    """Return the error of a listener that cannot be parsed, has no security protocol, or conflicts
    with another one.
    """
    shown = f"[{', '.join(endpoints)}]"
    for endpoint in endpoints:
        if not _is_endpoint(endpoint):
            return (
                f"Error creating broker listeners from '{shown}': Unable to parse {endpoint} to "
                "a broker endpoint"
            )
    unmapped = next((name for name in map(_listener_of, endpoints) if name not in protocols), None)
    if unmapped is not None:
        return (
            f"Error creating broker listeners from '{shown}': No security protocol defined for "
            f"listener {unmapped}"
        )
    if len({_listener_of(endpoint) for endpoint in endpoints}) < len(endpoints):
        return (
            f"Error creating broker listeners from '{shown}': Each listener must have a "
            f"different name, listeners: {shown}"
        )
    ports = [port for endpoint in endpoints if (port := endpoint.rpartition(":")[2]) != "0"]
    times = Counter(ports)
    twice = next((port for port in ports if times[port] > 1), None)
    if twice is None:
        return None
    hosts = [
        endpoint.partition("://")[2].rpartition(":")[0]
        for endpoint in endpoints
        if endpoint.endswith(f":{twice}")
    ]
    if sorted(host.startswith("[") for host in hosts) == [False, True]:
        return None
    rule = "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6"
    return (
        f"Error creating broker listeners from '{shown}': {rule}, listeners: {shown}, port: {twice}"
    )


def _is_endpoint(endpoint: str) -> bool:
    """Return whether this is a listener address, NAME://HOST:PORT; IPv6 addresses are in brackets,
    an empty host is any.
    """
    name, separator, address = endpoint.partition("://")
    host, colon, port = address.rpartition(":")
    in_brackets = host.startswith("[") and host.endswith("]")
    allowed = ":%." if in_brackets else "-%._"
    plain = host[1:-1] if in_brackets else host
    is_host = all(sign in allowed or (sign.isascii() and sign.isalnum()) for sign in plain)
    return bool(name and separator and colon) and is_host and port.isascii() and port.isdecimal()


def _listener_of(endpoint: str) -> str:
    return endpoint.partition("://")[0].upper()


def _complaint_about_threads(name: str, text: str, current: str | None) -> str | None:
    if current is None:
        return None
    wanted, now = _number(text), _number(current)
    failed = f"Dynamic thread count update validation failed for {name}={wanted}, value should"
    if wanted < now // 2:
        return RECONFIGURED.format(f"{failed} be at least half the current value {now}")
    if wanted > now * 2:
        return RECONFIGURED.format(f"{failed} not be greater than double the current value {now}")
    return None


def _complaint_about_overrides(text: str) -> str | None:
    if not text.strip():
        return None
    for pair in _elements(text):
        _, colon, count = pair.rpartition(":")
        if not colon:
            return (
                f"Error parsing configuration property '{OVERRIDES}': begin 0, end -1, length "
                f"{len(pair)}"
            )
        if not count.strip().removeprefix("-").isdecimal():
            return f'For input string: "{count}"'
    return None


def _elements(text: str | None) -> list[str]:
    return [element.strip() for element in (text or "").split(",") if element.strip()]


def _number(text: str) -> int:
    value = parse_value(ConfigType.LONG, text)
    assert isinstance(value, int), "the definition allows integers only"
    return value

"""Values that Apache Kafka rejects as dynamic updates although their definitions allow them.

Measured with Apache Kafka 4.4.0 by IncrementalAlterConfigs with validate_only.
Source: kafka.network.ConnectionQuotas (validateReconfiguration), KafkaConfig.validateValues,
DynamicThreadPool, DynamicListenerConfig.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kraftsim.core.metadata.config_definitions import parse_value
from protocol.config_resources import ConfigType

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
    return _complaint_about_local_retention(changed, then) or _complaint_about_listeners(
        changed, present, then, is_advertised_dynamic=is_advertised_dynamic
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

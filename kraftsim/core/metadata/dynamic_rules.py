"""Which values of settings Apache Kafka does not take while a broker runs, though their definitions allow them.

Asked of Apache Kafka 4.4.0 by IncrementalAlterConfigs with validate_only.
Source: kafka.network.ConnectionQuotas (validateReconfiguration), KafkaConfig.validateValues, DynamicThreadPool, DynamicListenerConfig.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kraftsim.core.metadata.config_definitions import parse_value
from protocol.config_resources import ConfigType

RECONFIGURED: Final = "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
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
LISTENERS, PROTOCOL_MAP, INTER_BROKER = "listeners", "listener.security.protocol.map", "inter.broker.listener.name"
ADVERTISED: Final = "advertised.listeners"
NOT_ALTERED: Final = "Advertised listeners cannot be altered when using a Raft-based metadata quorum."
CLEANER_THREADS, DEDUPE_BUFFER = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
MEGABYTE: Final = 1024 * 1024
Value = Callable[[str], str | None]


def complaint_about_number(name: str, text: str) -> str | None:
    """Return why a value of a setting cannot be followed, whatever the others are, or None. `text` fits the definition."""
    match name:
        case "max.connections" | "max.connection.creation.rate" if _number(text) <= 0:
            return RECONFIGURED.format(f"Invalid {name} {_number(text)}")
        case "log.roll.ms" if _number(text) < 1:
            return REQUIRED.format("log.roll.ms must be greater than or equal to 1")
        case "log.roll.jitter.ms" if _number(text) < 0:
            return REQUIRED.format("log.roll.jitter.ms must be greater than or equal to 0")
        case "log.retention.ms" if _number(text) == 0:
            return REQUIRED.format("log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
        case "num.replica.fetchers" if _number(text) < 1:
            return f"Invalid value {_number(text)} for configuration {name}: Value must be at least 1"
    return _complaint_about_overrides(text) if name == OVERRIDES else None


def complaint_about_change(changed: Mapping[str, str], present: Value) -> str | None:
    """Return why settings cannot be changed so where `present` holds, or None.

    `present` returns what holds for the broker under a name before the change; values fit their definitions.
    """

    def then(name: str) -> str | None:
        return changed.get(name, present(name))

    for name, text in changed.items():
        current = present(name) or present(name.split(".", 3)[-1])
        if name.removeprefix("listener.name.").split(".", 1)[-1] in THREAD_COUNTS or name in THREAD_COUNTS:
            complaint = _complaint_about_threads(name.split(".", 3)[-1] if name not in THREAD_COUNTS else name, text, current)
            if complaint is not None:
                return complaint
    if CLEANER_THREADS in changed and _number(changed[CLEANER_THREADS]) == 0:
        return "/ by zero"
    if changed.keys() & {CLEANER_THREADS, DEDUPE_BUFFER}:
        threads, buffer = then(CLEANER_THREADS), then(DEDUPE_BUFFER)
        if threads is not None and buffer is not None and _number(buffer) // max(1, _number(threads)) < MEGABYTE:
            return REQUIRED.format(f"{DEDUPE_BUFFER} must be at least 1MB per cleaner thread.")
    if PER_IP in changed and _number(changed[PER_IP]) == 0 and not then(OVERRIDES):
        return REQUIRED.format(f"{PER_IP} can be set to zero only if {OVERRIDES} property is set.")
    for name, text in changed.items():
        if name.endswith(".assignment.interval.ms"):
            highest = name.replace(".assignment", ".max.assignment")
            bound = present(highest)
            if bound is not None and _number(text) > _number(bound):
                return f"{name} must be less than or equal to {highest}"
    return _complaint_about_listeners(changed, present, then)


def _complaint_about_listeners(changed: Mapping[str, str], present: Value, then: Value) -> str | None:
    """Return why a broker could not be reached any more, or None."""
    if ADVERTISED in changed and changed[ADVERTISED] != present(ADVERTISED):
        return NOT_ALTERED
    if not changed.keys() & {LISTENERS, PROTOCOL_MAP}:
        return None
    words = _words(then(LISTENERS))
    if not words:
        return f"Configuration '{LISTENERS}' must not be empty. Valid values include: any non-empty value"
    shown = f"[{', '.join(words)}]"
    names = []
    for word in words:
        name, separator, address = word.partition("://")
        if not separator or not address.rpartition(":")[2].isdecimal():
            return f"Error creating broker listeners from '{shown}': Unable to parse {word} to a broker endpoint"
        names.append(name.upper())
    pairs = _words(then(PROTOCOL_MAP))
    for pair in pairs:
        if ":" not in pair:
            return f"Error parsing configuration property '{PROTOCOL_MAP}': begin 0, end -1, length {len(pair)}"
    known = {pair.rpartition(":")[0].strip().upper() for pair in pairs}
    unmapped = next((name for name in names if name not in known), None)
    if unmapped is not None:
        return f"Error creating broker listeners from '{shown}': No security protocol defined for listener {unmapped}"
    inter_broker = (then(INTER_BROKER) or "PLAINTEXT").upper()
    if inter_broker not in names:
        options = f"The valid options based on currently configured listeners are {','.join(names)}"
        return REQUIRED.format(f"{INTER_BROKER} must be a listener name defined in advertised.listeners. {options}")
    return None


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
    for pair in _words(text):
        _, colon, count = pair.rpartition(":")
        if not colon:
            return f"Error parsing configuration property '{OVERRIDES}': begin 0, end -1, length {len(pair)}"
        if not count.strip().removeprefix("-").isdecimal():
            return f'For input string: "{count}"'
    return None


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _number(text: str) -> int:
    value = parse_value(ConfigType.LONG, text)
    assert isinstance(value, int), "the definition takes whole numbers only"
    return value

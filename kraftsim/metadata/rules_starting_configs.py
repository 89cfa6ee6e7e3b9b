"""Combinations of broker settings with which Apache Kafka does not start, although each value is
valid by its definition.

The messages are Kafka's, without the prefix of Scala's `require`.
Source: kafka.server.KafkaConfig.validateValues,
org.apache.kafka.storage.internals.log.CleanerConfig.
"""

from collections.abc import Callable
from typing import Final

from kraftsim.metadata.rules_config_definitions import ADVERTISED, NO_ADVERTISED, parse_value
from protocol.config_resources import ConfigType

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
        and "classic" not in _elements(value(PROTOCOLS))
    ):
        return "Disabling the 'classic' protocol is not supported."
    if is_given(ADVERTISED) and not _elements(value(ADVERTISED)):
        return NO_ADVERTISED
    listeners = [element.partition("://")[0].upper() for element in _elements(value("listeners"))]
    for name in _elements(value(EARLY)) if is_given(EARLY) else ():
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


def _elements(text: str | None) -> list[str]:
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

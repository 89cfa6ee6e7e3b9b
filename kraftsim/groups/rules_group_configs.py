"""Configurations of groups (resource type 32): their definitions, their validation, and the value
that applies to a group.

A group has a configuration of its own before it has members: a name is enough. The controller
validates it against the bounds of its own `group.*` settings; a broker falls back on its own
settings where a group has no value.

    value of the group         ConfigRecord, in the metadata image
    setting of the broker      `group.` and the name, for most of them
    default of the definition

Source: KIP-848, KIP-932, KIP-1043, KIP-1071, KIP-1240, KIP-1263,
org.apache.kafka.coordinator.group.{GroupConfig, GroupConfigManager}.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kraftsim.metadata.rules_config_definitions import ConfigDefinition, Value, parse_value

# --------------------------------------------------------------------------------------------------
# Names

CONSUMER_SESSION: Final = "consumer.session.timeout.ms"
CONSUMER_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
CONSUMER_ASSIGNMENT: Final = "consumer.assignment.interval.ms"
SHARE_SESSION: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT: Final = "share.heartbeat.interval.ms"
SHARE_ASSIGNMENT: Final = "share.assignment.interval.ms"
SHARE_LOCK: Final = "share.record.lock.duration.ms"
SHARE_DELIVERIES: Final = "share.delivery.count.limit"
SHARE_LOCKS: Final = "share.partition.max.record.locks"
SHARE_RESET: Final = "share.auto.offset.reset"
SHARE_ISOLATION: Final = "share.isolation.level"
SHARE_RENEW: Final = "share.renew.acknowledge.enable"
STREAMS_SESSION: Final = "streams.session.timeout.ms"
STREAMS_HEARTBEAT: Final = "streams.heartbeat.interval.ms"
STREAMS_ASSIGNMENT: Final = "streams.assignment.interval.ms"
STREAMS_STANDBYS: Final = "streams.num.standby.replicas"
STREAMS_DELAY: Final = "streams.initial.rebalance.delay.ms"
STREAMS_OFFSETS: Final = "streams.task.offset.interval.ms"
STREAMS_WARMUPS: Final = "streams.num.warmup.replicas"
STREAMS_LAG: Final = "streams.acceptable.recovery.lag"
STREAMS_TAGS: Final = "streams.rack.aware.assignment.tags"
STREAMS_ASSIGNOR: Final = "streams.assignor.name"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPIES: Final = "errors.deadletterqueue.copy.record.enable"

Setting: TypeAlias = Callable[[str], str | None]
"""The name of a broker setting -> its text, or its default; None: there is no such setting."""


# --------------------------------------------------------------------------------------------------
# Definitions


@dataclass(frozen=True, slots=True)
class GroupConfig(ConfigDefinition):
    """The definition of one configuration of groups."""

    broker_key: str | None = None
    """The broker setting with the value of groups that have none of their own."""
    is_internal: bool = False
    """Whether clients do not see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDefinitions:
    """The configurations of groups of one release, in the order of validation; none before 4.0."""

    configs: Mapping[str, GroupConfig] = field(default_factory=dict)
    shows_brokers: bool = True
    """Whether broker settings are synonyms when a group is described (since 4.3)."""
    defined_prefixes: tuple[str, ...] = ()
    """Prefixes of names for which a group with values of its own gets the default of the
    definition, not the setting of the broker (none since 4.3).
    """
    validates_given: bool = True
    """Whether only values that are given are compared with bounds, and the message has the bounds
    (since 4.4).
    """
    clamps: bool = True
    """Whether a value outside of the broker's bounds counts as the nearest bound (since 4.3)."""


NO_GROUP_CONFIGS: Final = GroupDefinitions()


@dataclass(frozen=True, slots=True)
class Bounds:
    """The broker settings with the lowest and the highest value; None: no such bound."""

    lowest: str | None
    highest: str | None

    def limits(self, setting: Setting) -> tuple[int | None, int | None]:
        """Return both values; None: no limit."""
        return _number_of(self.lowest, setting), _number_of(self.highest, setting)


def _between(name: str) -> Bounds:
    kind, _, rest = name.partition(".")
    return Bounds(f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}")


BOUNDS: Final[Mapping[str, Bounds]] = {
    **{
        name: _between(name)
        for name in (
            CONSUMER_HEARTBEAT,
            CONSUMER_SESSION,
            CONSUMER_ASSIGNMENT,
            SHARE_HEARTBEAT,
            SHARE_SESSION,
            SHARE_LOCK,
            SHARE_DELIVERIES,
            SHARE_LOCKS,
            SHARE_ASSIGNMENT,
            STREAMS_HEARTBEAT,
            STREAMS_SESSION,
        )
    },
    STREAMS_STANDBYS: Bounds(None, "group.streams.max.standby.replicas"),
    STREAMS_ASSIGNMENT: _between(STREAMS_ASSIGNMENT),
    STREAMS_OFFSETS: Bounds("group.streams.min.task.offset.interval.ms", None),
    STREAMS_WARMUPS: Bounds(None, "group.streams.max.warmup.replicas"),
}
"""In the order of validation."""
ASSIGNMENTS: Final = (CONSUMER_ASSIGNMENT, SHARE_ASSIGNMENT, STREAMS_ASSIGNMENT)
SESSIONS: Final = (
    (CONSUMER_SESSION, CONSUMER_HEARTBEAT),
    (SHARE_SESSION, SHARE_HEARTBEAT),
    (STREAMS_SESSION, STREAMS_HEARTBEAT),
)


# --------------------------------------------------------------------------------------------------
# Validation


def complaint_about_group(
    definitions: GroupDefinitions, values: Mapping[str, str], setting: Setting
) -> str | None:
    """Return Kafka's message about the first error in the values of a group, or None.

    `setting` are those of the validating controller. The error is INVALID_CONFIG.
    """
    configs = definitions.configs
    unknown = next((name for name in sorted(values) if name not in configs), None)
    if unknown is not None:
        return f"Unknown group config name: {unknown}"
    if _has_duplicates(values.get(STREAMS_TAGS)):
        return f"{STREAMS_TAGS} must not contain duplicate tag keys."
    for name, definition in configs.items():
        complaint = definition.complaint(name, values[name]) if name in values else None
        if complaint is not None:
            return complaint
    if definitions.validates_given:
        return _complaint_about_given(definitions, values, setting)
    return _complaint_about_all(definitions, values, setting)


def _has_duplicates(text: str | None) -> bool:
    parts = [] if text is None or not text.strip() else [each.strip() for each in text.split(",")]
    return len(frozenset(parts)) < len(parts)


def _complaint_about_given(
    definitions: GroupDefinitions, values: Mapping[str, str], setting: Setting
) -> str | None:
    """Only given values are compared, and the message has the bounds (4.4)."""
    for name, bounds in BOUNDS.items():
        if name not in values:
            continue
        number = _integer(definitions.configs[name], values[name])
        low, high = bounds.limits(setting)
        if (low is None or number >= low) and (high is None or number <= high):
            continue
        if low is None:
            return f"{name} must be less than or equal to {high}"
        if high is None:
            return f"{name} must be greater than or equal to {low}"
        return f"{name} must be in the range {low} to {high} inclusive."
    assignors = _parts(setting("group.streams.assignors"))
    assignor = values.get(STREAMS_ASSIGNOR, "").strip()
    if STREAMS_ASSIGNOR in values and assignor not in assignors:
        return (
            f"{STREAMS_ASSIGNOR} '{assignor}' is not a registered task assignor. Registered "
            f"assignors are: [{', '.join(assignors)}]."
        )
    for session, heartbeat in SESSIONS:
        if session not in values and heartbeat not in values:
            continue
        times = [
            _integer(definitions.configs[name], values[name])
            if name in values
            else _number_of(definitions.configs[name].broker_key, setting) or 0
            for name in (session, heartbeat)
        ]
        if times[0] <= times[1]:
            return f"{session} must be greater than {heartbeat}"
    if values.get(DEAD_LETTER_TOPIC, "").strip().startswith("__"):
        return f"{DEAD_LETTER_TOPIC}: DLQ topic name must not start with '__'"
    return None


def _complaint_about_all(
    definitions: GroupDefinitions, values: Mapping[str, str], setting: Setting
) -> str | None:
    """All values of the group are compared, whether its own or not (up to 4.3)."""
    configs = definitions.configs

    def number(name: str) -> int:
        definition = configs[name]
        falls_back = name.startswith("consumer.") or not definitions.defined_prefixes
        behind = _number_of(definition.broker_key, setting) if falls_back else None
        if name in values or behind is None:
            return _integer(definition, values.get(name, definition.default or "0"))
        return behind

    for name, bounds in BOUNDS.items():
        if name not in configs or (name in ASSIGNMENTS and name not in values):
            continue
        low, high = bounds.limits(setting)
        if low is not None and number(name) < low:
            return f"{name} must be greater than or equal to {bounds.lowest}"
        if high is not None and number(name) > high:
            return f"{name} must be less than or equal to {bounds.highest}"
    for session, heartbeat in SESSIONS:
        if session in configs and number(session) <= number(heartbeat):
            return f"{session} must be greater than {heartbeat}"
    return None


def _number_of(name: str | None, setting: Setting) -> int | None:
    text = None if name is None else setting(name)
    return None if text is None else int(text)


def _integer(definition: ConfigDefinition, text: str) -> int:
    value = parse_value(definition.kind, text)
    assert isinstance(value, int), "the definition allows integers only"
    return value


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


# --------------------------------------------------------------------------------------------------
# The value that applies


def text_behind(
    definitions: GroupDefinitions, name: str, setting: Setting, *, has_own: bool
) -> str | None:
    """Return the text of a configuration that a group does not set; None: there is none.

    `has_own`: whether the group sets others.
    """
    definition = definitions.configs[name]
    is_definition = has_own and name.startswith(definitions.defined_prefixes)
    if definition.broker_key is None or is_definition:
        return definition.default
    text = setting(definition.broker_key)
    if name == STREAMS_ASSIGNOR:
        return next(iter(_parts(text)), None)
    return definition.default if text is None else text


class GroupConfigs:
    """The configurations of all groups on one broker.

    `own` returns the values set on a group, `setting` a broker setting. Both are asked at each
    call, so that a change takes effect at once.
    """

    def __init__(
        self,
        definitions: GroupDefinitions,
        own: Callable[[str], Mapping[str, str]],
        setting: Setting,
    ) -> None:
        self.definitions = definitions
        self._own = own
        self._setting = setting
        self._behind: dict[str, tuple[str, Value]] = {}
        """Cache: the last text of a setting of the broker, and its value."""

    def value(self, group_id: str, name: str) -> Value | None:
        """Return the value of a configuration for a group.

        None: the release has no such configuration, or it has no value (`streams.assignor.name`).
        """
        definition = self.definitions.configs.get(name)
        if definition is None:
            return None
        own = self._own(group_id)
        if name in own:
            return self._clamped(name, parse_value(definition.kind, own[name]))
        text = text_behind(self.definitions, name, self._setting, has_own=bool(own))
        if text is None:
            return None
        kept = self._behind.get(name)
        if kept is None or kept[0] != text:
            kept = self._behind[name] = (text, parse_value(definition.kind, text))
        return kept[1]

    def integer(self, group_id: str, name: str, without: int = 0) -> int:
        """Return an integer; `without` where the release has no such configuration of groups, but
        maybe a broker setting, which wins.
        """
        value = self.value(group_id, name)
        if value is None:
            behind = _number_of(f"group.{name}", self._setting)
            return without if behind is None else behind
        assert isinstance(value, int), f"{name} is an integer"
        return value

    def setting_number(self, name: str, without: int) -> int:
        """Return an integer that is a broker setting only; `without` where the release has no such
        setting.
        """
        number = _number_of(name, self._setting)
        return without if number is None else number

    def flag(self, group_id: str, name: str, *, without: bool) -> bool:
        """Return a boolean; `without` where the release has no such configuration."""
        value = self.value(group_id, name)
        return without if value is None else bool(value)

    def text(self, group_id: str, name: str) -> str:
        """Return a string; an empty one where there is none."""
        value = self.value(group_id, name)
        return "" if value is None else str(value)

    def elements(self, group_id: str, name: str) -> tuple[str, ...]:
        """Return the elements of a list; none where there is none."""
        value = self.value(group_id, name)
        return value if isinstance(value, tuple) else ()

    def _clamped(self, name: str, value: Value) -> Value:
        bounds = BOUNDS.get(name)
        if bounds is None or not self.definitions.clamps or not isinstance(value, int):
            return value
        low, high = bounds.limits(self._setting)
        if low is not None and value < low:
            return low
        return high if high is not None and value > high else value


NO_CONFIGS_OF_GROUPS: Final = GroupConfigs(NO_GROUP_CONFIGS, lambda _: {}, lambda _: None)


# --------------------------------------------------------------------------------------------------
# The strategy for the first offset of a share-partition

BY_DURATION: Final = "by_duration"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
MS_PER_DAY: Final = 86_400_000
MS_PER_HOUR: Final = 3_600_000
MS_PER_MINUTE: Final = 60_000
_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?[0-9]+)D)?"
    r"(T(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?(?:([-+]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
LONGEST_S: Final = 2**63 - 1


def duration_ms(strategy: str) -> int:
    """Return the milliseconds of a `by_duration` strategy, rounded up.

    Raises ValueError for a text that java.time.Duration.parse refuses, and for a negative one.
    """
    name, _, text = strategy.partition(":")
    found = _DURATION.fullmatch(text)
    if name != BY_DURATION or found is None or found[0].upper().endswith(("P", "T")):
        raise ValueError(f"not a duration: {strategy}")
    sign, days, _, hours, minutes, seconds, fraction = found.groups()
    whole = _duration_ns(days, hours, minutes, seconds, fraction) * (-1 if sign == "-" else 1)
    if whole < 0 or whole // 10**9 > LONGEST_S:
        raise ValueError(f"out of range: {strategy}")
    return -(-whole // 10**6)


def _duration_ns(
    days: str | None,
    hours: str | None,
    minutes: str | None,
    seconds: str | None,
    fraction: str | None,
) -> int:
    whole = sum(
        int(number or 0) * unit_ms
        for number, unit_ms in ((days, MS_PER_DAY), (hours, MS_PER_HOUR), (minutes, MS_PER_MINUTE))
    )
    tail = int((fraction or "").ljust(9, "0")) * (-1 if (seconds or "").startswith("-") else 1)
    return whole * 10**6 + int(seconds or 0) * 10**9 + tail


def reset_strategy(value: Value, form: str = "PnDTnHnMn.nS") -> str | None:
    """Return the message about an invalid strategy, or None. `form` is that of a duration."""
    text = str(value)
    if text in (EARLIEST, LATEST):
        return None
    try:
        duration_ms(text)
    except ValueError:
        shown = text.replace("{", "{{").replace("}", "}}")
        return (
            f"Invalid value `{shown}` for configuration {{name}}. The value must be either "
            f"'earliest', 'latest' or of the format 'by_duration:<{form}>'."
        )
    return None


def reset_strategy_4_0(value: Value) -> str | None:
    """Like `reset_strategy`, with the message of 4.0."""
    return reset_strategy(value, "PnDTnHnMn.nS.")

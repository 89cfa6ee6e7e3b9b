"""Validation of client metrics subscriptions (KIP-714).

Source: org.apache.kafka.server.metrics.ClientMetricsConfigs (3.9, 4.0).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.core.java_expressions import is_java_expression
from kraftsim.core.metadata.config_definitions import (
    ConfigDefinition,
    java_split,
    no_empty_elements,
    parse_value,
)
from protocol.config_resources import ConfigType
from protocol.disk.java_integers import parse_int32
from protocol.errors import ErrorCode

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

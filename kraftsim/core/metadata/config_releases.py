"""The configurations of each release line: the generated rows of config_facts, up to that line.

The tables of a line are created on first use.
Source: kafka.server.KafkaConfig.configDef, DynamicBrokerConfig, LogConfig of each release; written
by tests/apache_kafka/config_facts.py.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from math import inf
from typing import Final, TypeAlias

from kraftsim.core.metadata.broker_config_table import BrokerConfig, UpdateMode
from kraftsim.core.metadata.client_metrics import DEFINITIONS, WITHOUT_EMPTY_ELEMENTS
from kraftsim.core.metadata.config_definitions import (
    Check,
    ConfigDefinition,
    any_case_of,
    between,
    gzip_level,
    non_empty,
    non_empty_some_of,
    one_of,
    some_of,
    throttled_replicas,
)
from kraftsim.core.metadata.config_facts import brokers_2, brokers_3, brokers_4, topics
from kraftsim.core.metadata.config_tables import ConfigTables
from kraftsim.core.metadata.metadata_versions import known_version_names
from kraftsim.core.metadata.topic_configs import TopicConfig
from protocol.config_resources import ConfigType

Rows: TypeAlias = dict[str, tuple[str | None, ...]]
BROKER_ROWS: Final = brokers_2.CHANGED | brokers_3.CHANGED | brokers_4.CHANGED
BROKER_GONE: Final = brokers_2.GONE | brokers_3.GONE | brokers_4.GONE
LINES: Final = tuple(BROKER_ROWS)
"""The release lines, oldest first."""
DEFAULT_LINE: Final = "3.9"
FIRST_WITHOUT_EMPTY_ELEMENTS: Final = "4.2"
"""Since then list elements must not be empty (KIP-1161)."""
FIRST_WITH_TYPED_CLIENT_METRICS: Final = "4.0"
FIRST_WITH_DESCRIBED_CLIENT_METRICS: Final = "4.1"
"""Both measured with Apache Kafka 3.9.1, 4.0.2, 4.1.2 and 4.4.0."""
INTERNAL: Final = "internal"
_NUMBER: Final = r"(-?\d+(?:\.\d+)?)"
_NUMBERS = re.compile(rf"\[{_NUMBER},\.\.\.(?:,{_NUMBER})?\]")
_ANY_CASE = "(case insensitive) "


@cache
def config_tables(line: str) -> ConfigTables:
    """Return the configurations of a release line; those of 3.9 for an unknown line."""
    if line not in LINES:
        return config_tables(DEFAULT_LINE)
    brokers, of_topics = (
        rows_until(BROKER_ROWS, BROKER_GONE, line),
        rows_until(topics.CHANGED, topics.GONE, line),
    )
    order = next(
        (
            topics.ORDERS[each]
            for each in reversed(LINES[: LINES.index(line) + 1])
            if each in topics.ORDERS
        ),
        (),
    )
    names = [
        *(name for name in order if name in of_topics),
        *(name for name in of_topics if name not in order),
    ]
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
        LINES.index(line) >= LINES.index(FIRST_WITH_DESCRIBED_CLIENT_METRICS),
    )


def _client_metrics(line: str) -> Mapping[str, ConfigDefinition]:
    if LINES.index(line) < LINES.index(FIRST_WITH_TYPED_CLIENT_METRICS):
        return {}
    return (
        DEFINITIONS
        if LINES.index(line) < LINES.index(FIRST_WITHOUT_EMPTY_ELEMENTS)
        else WITHOUT_EMPTY_ELEMENTS
    )


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
        found.update({str(row[0]): row for row in changed[each]})
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
    if valid.startswith(_ANY_CASE):
        return any_case_of(*_elements(valid.removeprefix(_ANY_CASE)))
    if not valid.startswith("["):
        return None
    assert "..." not in valid, f"unknown format of a range: {valid}"
    if kind is not ConfigType.LIST:
        return one_of(*_elements(valid))
    some = (
        some_of
        if LINES.index(line) < LINES.index(FIRST_WITHOUT_EMPTY_ELEMENTS)
        else non_empty_some_of
    )
    return some(*_elements(valid))


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _elements(valid: str) -> tuple[str, ...]:
    return tuple(valid.strip("[]").split(", "))


def _format_version(value: object) -> str | None:
    return None if value in known_version_names() else f"Version {value} is not a valid version"


KAFKA_3_9: Final = config_tables(DEFAULT_LINE)

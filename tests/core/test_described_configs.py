"""DescribeConfigs of a topic and a broker: rows as returned by Apache Kafka 3.9.1
(kafka.server.ConfigHelper, KIP-226).
"""

import pytest

from kraftsim.metadata.rules_config_releases import KAFKA_3_9
from kraftsim.metadata.rules_described_configs import (
    BrokerSettings,
    DescribedConfig,
    describe_all_brokers,
    describe_broker,
    describe_topic,
    static_settings,
)

STATIC = static_settings(
    {"node.id": "1", "listeners": "PLAINTEXT://h:9", "kraftsim.seed": "7", "no.such.key": "x"}
)


def row(
    config: DescribedConfig,
) -> tuple[str | None, int, bool, bool, list[tuple[str, str | None, int]]]:
    """(value, source, read only, sensitive, synonyms)."""
    synonyms = [(synonym.name, synonym.value, int(synonym.source)) for synonym in config.synonyms]
    return config.value, int(config.source), config.is_read_only, config.is_sensitive, synonyms


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("log.retention.hours", ("168", 5, True, False, [("log.retention.hours", "168", 5)])),
        ("log.retention.ms", (None, 5, False, False, [])),
        ("log.flush.interval.ms", (None, 5, False, False, [])),
        (
            "listeners",
            (
                "PLAINTEXT://h:9",
                4,
                False,
                False,
                [("listeners", "PLAINTEXT://h:9", 4), ("listeners", "PLAINTEXT://:9092", 5)],
            ),
        ),
        ("broker.id", ("1", 4, True, False, [("broker.id", "1", 4), ("broker.id", "-1", 5)])),
        ("ssl.keystore.password", (None, 5, False, True, [])),
        ("no.such.key", (None, 4, True, True, [("no.such.key", None, 4)])),
    ],
)
def test_describe_a_broker_setting(key: str, expected: object) -> None:
    """An unset setting has no synonyms before its own name; an unknown setting is treated as
    sensitive.
    """
    assert [row(config) for config in describe_broker(BrokerSettings(STATIC), [key])] == [expected]


def test_kraftsim_settings_are_not_described() -> None:
    """Kafka's clients know none of them."""
    assert not any(
        config.name.startswith("kraftsim.") for config in describe_broker(BrokerSettings(STATIC))
    )


def test_dynamic_configs_override_properties() -> None:
    """The broker's, then the cluster default, then the properties file."""
    settings = BrokerSettings(
        {"log.retention.hours": "2"}, {"log.retention.ms": "5"}, {"log.retention.ms": "6"}
    )
    behind = [
        ("log.retention.ms", "5", 2),
        ("log.retention.ms", "6", 3),
        ("log.retention.hours", "2", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert [row(config) for config in describe_broker(settings, ["log.retention.ms"])] == [
        ("5", 2, False, False, behind)
    ]
    assert [row(config) for config in describe_all_brokers(settings)] == [
        ("6", 3, False, False, [("log.retention.ms", "6", 3)])
    ]
    assert [row(config) for config in describe_topic({}, settings, ["retention.ms"])] == [
        ("5", 2, False, False, behind)
    ]


@pytest.mark.parametrize(
    ("overrides", "key", "expected"),
    [
        ({"retention.ms": "1234"}, "retention.ms",
         ("1234", 1, False, False, [("retention.ms", "1234", 1)])),
        ({}, "retention.ms", ("604800000", 5, False, False, [])),
        ({}, "cleanup.policy", ("delete", 5, False, False, [("log.cleanup.policy", "delete", 5)])),
        ({"cleanup.policy": "compact, delete"}, "cleanup.policy",
         ("compact,delete", 1, False, False,
          [("cleanup.policy", "compact,delete", 1), ("log.cleanup.policy", "delete", 5)])),
        ({"preallocate": "TRUE"}, "preallocate",
         ("true", 1, False, False, [("preallocate", "true", 1), ("log.preallocate", "false", 5)])),
    ],
)  # fmt: skip
def test_describe_a_topic_config(overrides: dict[str, str], key: str, expected: object) -> None:
    """Values are shown in parsed form."""
    assert [row(config) for config in describe_topic(overrides, BrokerSettings(), [key])] == [
        expected
    ]


def test_invalid_dynamic_values_are_omitted() -> None:
    """A controller accepts any value for a broker; the broker ignores those that are invalid."""
    values = {
        "log.retention.ms": "abc",
        "num.partitions": "5",
        "ssl.key.password": "x",
        "listeners": "A://h:1",
        "log.segment.bytes": "99",
    }
    assert KAFKA_3_9.applicable(values, is_for_all=True) == {"log.segment.bytes": "99"}
    assert KAFKA_3_9.applicable(values, is_for_all=False) == {
        "listeners": "A://h:1",
        "log.segment.bytes": "99",
    }

"""Which config values are valid, with Kafka's own messages, and the effective values of a broker
and its topics.
"""

import pytest

from kraftsim.metadata.rules_config_definitions import shown_value
from kraftsim.metadata.rules_config_releases import KAFKA_3_9, LINES, config_tables
from kraftsim.metadata.rules_described_configs import BrokerSettings


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("retention.ms", "-1", None),
        ("retention.ms", " 7 ", None),
        ("retention.ms", "+5", None),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("retention.ms", "soon", "Not a number of type LONG"),
        ("retention.ms", "1_000", "Not a number of type LONG"),
        ("max.message.bytes", str(2**31), "Not a number of type INT"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("cleanup.policy", "compact, delete", None),
        ("cleanup.policy", "compress", "String must be one of: compact, delete"),
        ("message.timestamp.type", "Wall", "String must be one of: CreateTime, LogAppendTime"),
        ("message.format.version", "3.9", None),
        ("message.format.version", "9.9", "Version 9.9 is not a valid version"),
        ("preallocate", "TRUE", None),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("min.cleanable.dirty.ratio", "0.2", None),
        ("min.cleanable.dirty.ratio", "1.2", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "half", "Not a number of type DOUBLE"),
        ("leader.replication.throttled.replicas", "*", None),
        ("leader.replication.throttled.replicas", "0:1,1:2", None),
    ],
)
def test_topic_config_is_validated_by_its_type(
    name: str, value: str, complaint: str | None
) -> None:
    """The messages of ConfigDef. tests/apache_kafka/test_config_definitions.py compares all keys
    and 43 values with Kafka's own classes.
    """
    expected = (
        None
        if complaint is None
        else f"Invalid value {value} for configuration {name}: {complaint}"
    )
    assert KAFKA_3_9.complaint_about_topic({name: value}, {}) == expected


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        (
            "cleanup.policy",
            "delete,x",
            (
                "Invalid value x for configuration cleanup.policy: String must be one of: compact, "
                "delete"
            ),
        ),
        (
            "segment.bytes",
            " +9 ",
            "Invalid value 9 for configuration segment.bytes: Value must be at least 14",
        ),
        (
            "min.cleanable.dirty.ratio",
            "1e20",
            (
                "Invalid value 1.0E20 for configuration min.cleanable.dirty.ratio: Value must be "
                "no more than 1"
            ),
        ),
    ],
)
def test_error_message_shows_the_parsed_value(name: str, value: str, complaint: str) -> None:
    """ConfigDef.parse checks the parsed value."""
    assert KAFKA_3_9.complaint_about_topic({name: value}, {}) == complaint


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (
            {"retention.ms": "x", "segment.ms": "y", "no.such": "z"},
            "Unknown topic config name: no.such",
        ),
        (
            {"cleanup.policy": "x", "segment.ms": "y"},
            "Invalid value y for configuration segment.ms: Not a number of type LONG",
        ),
        (
            {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"},
            "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (8)",
        ),
        (
            {"remote.storage.enable": "true"},
            (
                "Tiered Storage functionality is disabled in the broker. Topic cannot be "
                "configured with remote log storage."
            ),
        ),
    ],
)
def test_order_of_config_validation_errors(values: dict[str, str], complaint: str) -> None:
    """Names, then values in the order of LogConfig's definition, then conflicting settings."""
    assert KAFKA_3_9.complaint_about_topic(values, {}) == complaint


def test_topic_compaction_lag_is_validated_against_the_broker_default() -> None:
    """LogConfig.validate checks the resulting values."""
    assert (
        KAFKA_3_9.complaint_about_topic(
            {"min.compaction.lag.ms": "9"}, {"log.cleaner.max.compaction.lag.ms": "5"}
        )
        is not None
    )


@pytest.mark.parametrize("kind", ["topic", "broker", "internal"])
@pytest.mark.parametrize("line", LINES)
def test_every_default_value_is_valid(line: str, kind: str) -> None:
    """Otherwise the table itself would be wrong."""
    table = getattr(config_tables(line), kind)
    assert [
        name
        for name, config in table.items()
        if config.default is not None and config.complaint(name, config.default) is not None
    ] == []


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.5, "0.5"),
        (7.0, "7.0"),
        (1e7, "1.0E7"),
        (9999999.5, "9999999.5"),
        (0.001, "0.001"),
        (0.0005, "5.0E-4"),
        (-123456789.0, "-1.23456789E8"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (True, "true"),
        (("a", "b"), "[a, b]"),
        (12, "12"),
    ],
)
def test_values_are_formatted_as_in_java(
    value: float | bool | tuple[str, str] | int, shown: str
) -> None:
    """Double.toString and AbstractCollection.toString."""
    assert shown_value(value) == shown


@pytest.mark.parametrize(
    ("values", "is_for_all", "complaint"),
    [
        ({"log.retention.ms": "5"}, True, None),
        ({"no.such.key": "5"}, True, None),
        ({"num.partitions": "5"}, False,
         "Cannot update these configs dynamically: Set(num.partitions)"),
        ({"listeners": "A://h:1"}, True,
         "Cannot update these configs at default cluster level, broker id must be specified: "
         "Set(listeners)"),
        ({"listeners": "A://h:1"}, False, None),
        ({"listener.name.a.max.connections": "5"}, True, None),
        ({"listener.name.a.max.connections": "x"}, True,
         "Invalid value x for configuration max.connections: Not a number of type INT"),
        ({"listener.name.a.ssl.keystore.type": "JKS"}, True,
         "Cannot update these configs at default cluster level, broker id must be specified: "
         "Set(listener.name.a.ssl.keystore.type)"),
        ({"ssl.keystore.type": "JKS"}, False,
         "These security configs can be dynamically updated only per-listener using the listener "
         "prefix: Set(ssl.keystore.type)"),
        ({"min.insync.replicas": "0"}, True,
         "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1"),
    ],
)  # fmt: skip
def test_settings_that_are_dynamically_updatable(
    values: dict[str, str], is_for_all: bool, complaint: str | None
) -> None:
    """DynamicBrokerConfig.validateConfigs."""
    assert KAFKA_3_9.complaint_about_dynamic(values, is_for_all=is_for_all) == complaint


@pytest.mark.parametrize(
    ("static", "own", "cluster", "expected"),
    [
        ({}, {}, {}, "604800000"),
        ({"log.retention.hours": "2"}, {}, {}, "7200000"),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, {}, {}, "180000"),
        ({"log.retention.hours": "-1"}, {}, {}, "-1"),
        ({"log.retention.minutes": "3"}, {}, {"log.retention.ms": "7"}, "7"),
        ({"log.retention.minutes": "3"}, {"log.retention.ms": "6"}, {"log.retention.ms": "7"}, "6"),
    ],
)
def test_broker_retention_comes_from_the_highest_priority_name_and_source(
    static: dict[str, str], own: dict[str, str], cluster: dict[str, str], expected: str
) -> None:
    """KafkaConfig.logRetentionTimeMillis, KIP-226: per-broker, cluster-wide default, properties
    file, default.
    """
    assert (
        KAFKA_3_9.effective_topic_configs({}, BrokerSettings(static, own, cluster).for_topics())[
            "retention.ms"
        ]
        == expected
    )

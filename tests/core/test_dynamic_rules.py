"""Dynamic changes that Apache Kafka 4.4.0 rejects though the config definition allows the value:
verified with validate_only.
"""

import pytest

from kraftsim.metadata.rules_config_releases import KAFKA_3_9, config_tables
from kraftsim.metadata.rules_described_configs import refuse_altered_broker
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k44_incremental_alter_configs import (
    SET,
    AlterableConfig,
    AlterConfigsResource,
)

PRESENT = {
    "log.dirs": "/d1, /d2",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,X:PLAINTEXT",
    "log.retention.hours": "168",
    "log.retention.bytes": "-1",
    "num.io.threads": "8",
    "num.replica.fetchers": "1",
    "num.network.threads": "3",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": "134217728",
    "group.share.max.assignment.interval.ms": "15000",
    "group.share.min.assignment.interval.ms": "500",
}
RECONFIGURED = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid "
    "dynamic configuration"
)
THREADS = (
    "Dynamic thread count update validation failed for {}={}, value should {} the current value {}"
)


def why(name: str, value: str) -> str | None:
    operation = AlterableConfig(name=name, config_operation=SET, value=value)
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name="1", configs=[operation]
    )
    refusal = refuse_altered_broker(config_tables("4.4"), 1, resource, {}, PRESENT.get)
    assert refusal is None or refusal.error is ErrorCode.INVALID_REQUEST
    return None if refusal is None else refusal.why


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max.connections", "0", RECONFIGURED.format("Invalid max.connections 0")),
        (
            "listener.name.plaintext.max.connections",
            "0",
            RECONFIGURED.format("Invalid max.connections 0"),
        ),
        (
            "max.connection.creation.rate",
            "0",
            RECONFIGURED.format("Invalid max.connection.creation.rate 0"),
        ),
        ("max.connections", "1", None),
        (
            "max.connections.per.ip",
            "0",
            (
                "requirement failed: max.connections.per.ip can be set to zero only if "
                "max.connections.per.ip.overrides property is set."
            ),
        ),
        (
            "max.connections.per.ip.overrides",
            "garbage",
            (
                "Error parsing configuration property 'max.connections.per.ip.overrides': begin 0, "
                "end "
                "-1, length 7"
            ),
        ),
        ("max.connections.per.ip.overrides", "X:PLAINTEXT", 'For input string: "PLAINTEXT"'),
        ("max.connections.per.ip.overrides", "127.0.0.1:5", None),
        (
            "log.retention.ms",
            "0",
            (
                "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or "
                "equal to 1"
            ),
        ),
        ("log.roll.ms", "0", "requirement failed: log.roll.ms must be greater than or equal to 1"),
        (
            "log.roll.jitter.ms",
            "-1",
            "requirement failed: log.roll.jitter.ms must be greater than or equal to 0",
        ),
        ("log.cleaner.threads", "0", "/ by zero"),
        (
            "group.share.assignment.interval.ms",
            "499",
            (
                "group.share.assignment.interval.ms must be greater than or equal to "
                "group.share.min.assignment.interval.ms"
            ),
        ),
        ("group.share.assignment.interval.ms", "500", None),
        (
            "log.cleaner.dedupe.buffer.size",
            "12",
            (
                "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per "
                "cleaner thread."
            ),
        ),
        (
            "log.cleaner.dedupe.buffer.size",
            "1048576",
            (
                "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per "
                "cleaner thread."
            ),
        ),
        ("log.cleaner.dedupe.buffer.size", "1048577", None),
        (
            "log.cleaner.threads",
            "2147483647",
            (
                "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per "
                "cleaner thread."
            ),
        ),
        (
            "num.replica.fetchers",
            "0",
            "Invalid value 0 for configuration num.replica.fetchers: Value must be at least 1",
        ),
        (
            "num.io.threads",
            "1",
            RECONFIGURED.format(THREADS.format("num.io.threads", 1, "be at least half", 8)),
        ),
        (
            "num.network.threads",
            "12",
            RECONFIGURED.format(
                THREADS.format("num.network.threads", 12, "not be greater than double", 3)
            ),
        ),
        (
            "listener.name.plaintext.num.network.threads",
            "12",
            RECONFIGURED.format(
                THREADS.format("num.network.threads", 12, "not be greater than double", 3)
            ),
        ),
        ("num.io.threads", "12", None),
        (
            "group.share.assignment.interval.ms",
            "2147483647",
            (
                "group.share.assignment.interval.ms must be less than or equal to "
                "group.share.max.assignment.interval.ms"
            ),
        ),
        (
            "listeners",
            "",
            (
                "Configuration 'listeners' must not be empty. Valid values include: any non-empty "
                "value"
            ),
        ),
        (
            "listeners",
            "a,b",
            (
                "Error creating broker listeners from '[a, b]': Unable to parse a to a broker "
                "endpoint"
            ),
        ),
        (
            "listeners",
            "127.0.0.1:5",
            (
                "Error creating broker listeners from '[127.0.0.1:5]': Unable to parse 127.0.0.1:5 "
                "to a broker endpoint"
            ),
        ),
        (
            "listeners",
            "X://127.0.0.1:1",
            "requirement failed: inter.broker.listener.name must be a listener name defined in "
            "advertised.listeners. The valid options based on currently configured listeners are X",
        ),
        (
            "listener.security.protocol.map",
            "garbage",
            (
                "Error parsing configuration property 'listener.security.protocol.map': begin 0, "
                "end "
                "-1, length 7"
            ),
        ),
        (
            "listener.security.protocol.map",
            "X:PLAINTEXT",
            (
                "Error creating broker listeners from '[PLAINTEXT://127.0.0.1:9092]': No security "
                "protocol defined for listener PLAINTEXT"
            ),
        ),
        (
            "listener.security.protocol.map",
            "PLAINTEXT:SSL",
            RECONFIGURED.format(
                "Security protocol cannot be updated for existing listener ListenerName(PLAINTEXT)"
            ),
        ),
        (
            "listener.security.protocol.map",
            "PLAINTEXT:x",
            "Invalid security protocol `x` defined in listener.security.protocol.map",
        ),
        (
            "listeners",
            "PLAINTEXT://h:1,PLAINTEXT://h:2",
            "Error creating broker listeners from '[PLAINTEXT://h:1, PLAINTEXT://h:2]': Each "
            "listener must have a different name, listeners: [PLAINTEXT://h:1, PLAINTEXT://h:2]",
        ),
        ("listeners", "PLAINTEXT://[::1]:1,X://1.1.1.1:1", None),
        (
            "listeners",
            "PLAINTEXT://[::1]:1,X://[::2]:1",
            "Error creating broker listeners from '[PLAINTEXT://[::1]:1, X://[::2]:1]': If you "
            "have "
            "two listeners on the same port then one needs to be IPv4 and the other IPv6, "
            "listeners: [PLAINTEXT://[::1]:1, X://[::2]:1], port: 1",
        ),
        ("cordoned.log.dirs", "*", None),
        ("cordoned.log.dirs", " /d2 , /d1", None),
        (
            "cordoned.log.dirs",
            "*,/d1",
            "requirement failed: When cordoned.log.dirs is set to *, it must not contain other "
            "values",
        ),
        (
            "cordoned.log.dirs",
            "/d1,/d1/",
            "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or "
            "log.dir. Missing entries : /d1/",
        ),
        ("log.local.retention.ms", "604800000", None),
        (
            "log.local.retention.ms",
            "604800001",
            RECONFIGURED.format(
                "Invalid value 604800001 for configuration log.local.retention.ms: "
                "Value must not be more than log.retention.ms property value: 604800000"
            ),
        ),
        (
            "log.local.retention.ms",
            "-1",
            RECONFIGURED.format(
                "Invalid value -1 for configuration log.local.retention.ms: "
                "Value must not be -1 as log.retention.ms value is set as 604800000."
            ),
        ),
        ("log.local.retention.bytes", "5", None),
        ("ssl.protocol", "TLSv1.3", None),
        (
            "num.replica.fetchers",
            "12",
            RECONFIGURED.format(
                THREADS.format("num.replica.fetchers", 12, "not be greater than double", 1)
            ),
        ),
    ],
)
def test_unsupported_dynamic_change_is_rejected(name: str, value: str, words: str | None) -> None:
    """ConnectionQuotas, KafkaConfig.validateValues, DynamicThreadPool, DynamicListenerConfig."""
    assert why(name, value) == words


def test_invalid_value_accepted_by_the_controller_is_ignored() -> None:
    """A controller accepts any broker value; applying it could make the node unreachable."""
    values = {"max.connections": "0", "log.retention.ms": "5"}
    assert KAFKA_3_9.applicable(values, is_for_all=True) == {"log.retention.ms": "5"}


@pytest.mark.parametrize("line", ["2.3", "3.9", "4.4"])
def test_no_setting_value_does_more_than_fail_validation(line: str) -> None:
    """Also with a listener prefix, where a setting that cannot be changed is an unknown name whose
    value is not validated.
    """
    tables = config_tables(line)
    holds = {**tables.broker_defaults, **PRESENT}
    for base in (*tables.broker, "nonsense"):
        for name in (base, f"listener.name.x.{base}", f"listener.name.x.y.{base}"):
            for value in ("", "garbage", "0", "-1", "1.5", "9" * 20, ",", "A://:1,B://:1"):
                operation = AlterableConfig(name=name, config_operation=SET, value=value)
                resource = AlterConfigsResource(
                    resource_type=ConfigResourceType.BROKER, resource_name="1", configs=[operation]
                )
                refusal = refuse_altered_broker(tables, 1, resource, {}, holds.get)
                assert refusal is None or refusal.error in (
                    ErrorCode.INVALID_REQUEST,
                    ErrorCode.INVALID_CONFIG,
                )

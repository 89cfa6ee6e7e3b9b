"""IncrementalAlterConfigs (44) and AlterConfigs (33) on brokers, which forward them to the
controller.

Source: KIP-133, KIP-339, org.apache.kafka.controller.ConfigurationControlManager,
kafka.server.ConfigAdminManager.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error, settled
from kraftsim.conformance.k32_describe_configs import describe, described_config
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, own_broker_id
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType, ConfigSource
from protocol.errors import ErrorCode
from protocol.messages.k33_alter_configs import AlterableConfig as ReplacedConfig
from protocol.messages.k33_alter_configs import AlterConfigsRequest, AlterConfigsResponse
from protocol.messages.k33_alter_configs import AlterConfigsResource as ReplacedResource
from protocol.messages.k44_incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

REQUIREMENTS = Requirements("configs", 2, "Changing configurations")
CONTROL = "ConfigurationControlManager"
ADMIN = "kafka.server.ConfigAdminManager.preprocess"
TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
Operation = tuple[str, int, str | None]


def resource_of(kind: int, name: str, *operations: Operation) -> AlterConfigsResource:
    """Return a row of the request: a name, an operation and a value each."""
    rows = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in operations
    ]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)


def alter(
    target: Target,
    *resources: AlterConfigsResource,
    validate_only: bool = False,
    version: int | None = None,
) -> list[AlterConfigsResourceResponse]:
    """Change configurations, and return the results."""
    chosen = target.newest(ApiKey.INCREMENTAL_ALTER_CONFIGS) if version is None else version
    with target.peer() as peer:
        asked = IncrementalAlterConfigsRequest(
            resources=list(resources), validate_only=validate_only
        )
        return peer.ask(asked, chosen, IncrementalAlterConfigsResponse).responses


def _altered(target: Target, kind: int, name: str, *operations: Operation) -> None:
    row = alter(target, resource_of(kind, name, *operations))[0]
    expect_error(row.error_code, ErrorCode.NONE, f"{operations} on {name!r}: {row.error_message}")
    expect_equal(row.error_message, None, f"the error of {operations} on {name!r}")


def _refused(
    target: Target, kind: int, name: str, operation: Operation, error: ErrorCode, why: str
) -> None:
    row = alter(target, resource_of(kind, name, operation))[0]
    expect_error(row.error_code, error, f"{operation} on {name!r}")
    expect_equal(row.error_message, why, f"the error of {operation} on {name!r}")


def _value(target: Target, name: str, key: str, expected: str) -> None:
    settled(
        lambda: described_config(target, TOPIC, name, key).value,
        lambda value: value == expected,
        f"{key}={expected}",
    )


@REQUIREMENTS.that(
    1,
    "a value that is set applies, and one that is deleted is replaced by the default",
    source="KIP-339",
)
def set_and_delete(target: Target) -> None:
    for version in target.versions(ApiKey.INCREMENTAL_ALTER_CONFIGS):
        name = target.topic().name
        row = alter(
            target, resource_of(TOPIC, name, ("flush.messages", SET, "9")), version=version
        )[0]
        expect_equal(
            (row.error_code, row.resource_type, row.resource_name),
            (0, int(TOPIC), name),
            f"version {version}: the answer",
        )
        _value(target, name, "flush.messages", "9")
        _altered(target, TOPIC, name, ("flush.messages", DELETE, None))
        _value(target, name, "flush.messages", str(2**63 - 1))


@REQUIREMENTS.that(
    2,
    "APPEND and SUBTRACT change lists, starting from the default if nothing is set",
    source="KIP-339",
)
def lists(target: Target) -> None:
    name = target.topic().name
    for operation, value in (
        ((APPEND, "compact"), "delete,compact"),
        ((APPEND, "compact"), "delete,compact"),
        ((SUBTRACT, "delete"), "compact"),
    ):
        _altered(target, TOPIC, name, ("cleanup.policy", *operation))
        _value(target, name, "cleanup.policy", value)


@REQUIREMENTS.that(
    3,
    "an invalid topic configuration is rejected with INVALID_CONFIG and Kafka's error message",
    source="LogConfig.validate, ConfigDef",
)
def bad_values(target: Target) -> None:
    name = target.topic().name
    number, least, words = (
        "Not a number of type LONG",
        "Value must be at least -1",
        "String must be one of: compact, delete",
    )
    bad: list[tuple[Operation, str]] = [
        (("retention.ms", SET, "x"), f"Invalid value x for configuration retention.ms: {number}"),
        (("retention.ms", SET, "-2"), f"Invalid value -2 for configuration retention.ms: {least}"),
        (
            ("segment.bytes", SET, str(2**31)),
            f"Invalid value {2**31} for configuration segment.bytes: Not a number of type INT",
        ),
        (
            ("cleanup.policy", APPEND, "x"),
            f"Invalid value x for configuration cleanup.policy: {words}",
        ),
        (
            ("preallocate", SET, "yes"),
            (
                "Invalid value yes for configuration preallocate: Expected value to be either true "
                "or false"
            ),
        ),
        (("no.such", SET, "1"), "Unknown topic config name: no.such"),
        (
            ("retention.ms", APPEND, "1"),
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            ("retention.ms", SUBTRACT, "1"),
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
    ]
    for operation, why in bad:
        _refused(target, TOPIC, name, operation, ErrorCode.INVALID_CONFIG, why)


@REQUIREMENTS.that(
    4,
    "an invalid topic resource is rejected with UNKNOWN_TOPIC_OR_PARTITION, "
    "INVALID_TOPIC_EXCEPTION, or without a name with INVALID_REQUEST",
    source=CONTROL,
)
def no_topic(target: Target) -> None:
    operation = ("retention.ms", SET, "1000")
    name = target.fresh_name()
    _refused(
        target,
        TOPIC,
        name,
        operation,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"The topic '{name}' does not exist.",
    )
    why = (
        "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
        "alphanumerics, '.', '_' and '-'"
    )
    _refused(target, TOPIC, "a b", operation, ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    _refused(
        target,
        TOPIC,
        "",
        operation,
        ErrorCode.INVALID_REQUEST,
        "Default topic resources are not allowed.",
    )
    _refused(target, 77, "x", operation, ErrorCode.INVALID_REQUEST, "Unknown resource type 77")


@REQUIREMENTS.that(
    5,
    "a duplicate resource, a duplicate configuration name, and a null value are rejected with "
    "INVALID_REQUEST",
    source=ADMIN,
)
def twice(target: Target) -> None:
    name = target.topic().name
    once = resource_of(TOPIC, name, ("flush.ms", SET, "1"))
    rows = alter(target, once, resource_of(TOPIC, name, ("flush.messages", SET, "1")))
    expected = [(int(ErrorCode.INVALID_REQUEST), "Each resource must appear at most once.")] * 2
    expect_equal(
        [(row.error_code, row.error_message) for row in rows], expected, "a resource twice"
    )
    row = alter(
        target, resource_of(TOPIC, name, ("flush.ms", SET, "1"), ("flush.ms", DELETE, None))
    )[0]
    expect_equal(
        (row.error_code, row.error_message),
        (int(ErrorCode.INVALID_REQUEST), "Error due to duplicate config keys"),
        "a name twice",
    )
    _refused(
        target,
        TOPIC,
        name,
        ("flush.ms", SET, None),
        ErrorCode.INVALID_REQUEST,
        "Null value not supported for : flush.ms",
    )


@REQUIREMENTS.that(
    6,
    "each resource is changed or rejected independently, in the order of the request",
    source=CONTROL,
)
def each_by_itself(target: Target) -> None:
    good, missing = target.topic().name, target.fresh_name()
    operation = ("flush.messages", SET, "7")
    rows = alter(
        target,
        resource_of(TOPIC, missing, operation),
        resource_of(TOPIC, good, operation),
        resource_of(BROKER, "x", operation),
    )
    expected = [
        (missing, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        (good, 0),
        ("x", int(ErrorCode.INVALID_REQUEST)),
    ]
    expect_equal(
        [(row.resource_name, row.error_code) for row in rows], expected, "names and errors"
    )
    _value(target, good, "flush.messages", "7")


@REQUIREMENTS.that(
    7, "validate_only performs the checks of a change without changing anything", source="KIP-339"
)
def validate_only(target: Target) -> None:
    name = target.topic().name
    expect_error(
        alter(target, resource_of(TOPIC, name, ("flush.messages", SET, "7")), validate_only=True)[
            0
        ].error_code,
        ErrorCode.NONE,
        "a value",
    )
    row = alter(target, resource_of(TOPIC, name, ("flush.messages", SET, "x")), validate_only=True)[
        0
    ]
    expect_error(row.error_code, ErrorCode.INVALID_CONFIG, "a bad value")
    _altered(target, TOPIC, name, ("flush.ms", SET, "3"))
    _value(target, name, "flush.ms", "3")
    expect_equal(
        described_config(target, TOPIC, name, "flush.messages").value,
        str(2**63 - 1),
        "the value that was only checked",
    )


@REQUIREMENTS.that(
    8,
    "broker configurations that fail validation are rejected with INVALID_REQUEST",
    source="DynamicBrokerConfig.validateConfigs",
)
def bad_settings(target: Target) -> None:
    own = own_broker_id(target)
    why = "Invalid value abc for configuration log.retention.ms: Not a number of type LONG"
    _refused(target, BROKER, "", ("log.retention.ms", SET, "abc"), ErrorCode.INVALID_REQUEST, why)
    why = f"Unexpected broker id, expected {own}, but received 999"
    _refused(target, BROKER, "999", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST, why)
    fixed = alter(target, resource_of(BROKER, str(own), ("num.partitions", SET, "5")))[0]
    expect_error(fixed.error_code, ErrorCode.INVALID_REQUEST, "num.partitions")
    expect(
        (fixed.error_message or "").startswith("Cannot update these configs dynamically: "),
        f"the error of num.partitions: {fixed.error_message}",
    )


@REQUIREMENTS.that(
    9,
    "a cluster-wide default applies to topics without their own value, until it is deleted",
    source="KIP-226",
)
def for_all_brokers(target: Target) -> None:
    name, key = target.topic().name, "log.cleaner.delete.retention.ms"
    _altered(target, BROKER, "", (key, SET, "86400123"))
    try:
        _value(target, name, "delete.retention.ms", "86400123")
        row = described_config(target, TOPIC, name, "delete.retention.ms")
        expect_equal(
            row.config_source,
            int(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            "where the topic's value comes from",
        )
        found = {row.name: row.value for row in describe(target, BROKER, "").configs}
        expect_equal(found.get(key), "86400123", "the value of the cluster-wide default")
    finally:
        _altered(target, BROKER, "", (key, DELETE, None))
    _value(target, name, "delete.retention.ms", "86400000")


@REQUIREMENTS.that(
    10,
    "AlterConfigs removes all configurations of a topic that are not in the request",
    source="KIP-133",
)
def replaced(target: Target) -> None:
    for version in target.versions(ApiKey.ALTER_CONFIGS):
        name = target.topic(configs={"flush.ms": "5"}).name
        values = [ReplacedConfig(name="flush.messages", value="6")]
        asked = AlterConfigsRequest(
            resources=[ReplacedResource(resource_type=TOPIC, resource_name=name, configs=values)]
        )
        with target.peer() as peer:
            row = peer.ask(asked, version, AlterConfigsResponse).responses[0]
        expect_error(row.error_code, ErrorCode.NONE, f"version {version}")
        _value(target, name, "flush.messages", "6")
        _value(target, name, "flush.ms", str(2**63 - 1))


@REQUIREMENTS.that(
    11,
    "a change that would block connections to a running broker is rejected with INVALID_REQUEST",
    source="ConnectionQuotas",
)
def shutting_out(target: Target) -> None:
    own = str(own_broker_id(target))
    changes = [
        (name, key)
        for name in (own, "")
        for key in ("max.connections", "max.connection.creation.rate")
    ]
    for name, key in changes:
        row = alter(target, resource_of(BROKER, name, (key, SET, "0")), validate_only=True)[0]
        expect_error(row.error_code, ErrorCode.INVALID_REQUEST, f"{key}=0 on {name!r}")
        expect(
            f"Invalid {key} 0" in (row.error_message or ""),
            f"the error of {key}=0: {row.error_message}",
        )
    for value in ("", "nowhere", "OTHER://127.0.0.1:1"):
        row = alter(
            target, resource_of(BROKER, own, ("listeners", SET, value)), validate_only=True
        )[0]
        expect_error(row.error_code, ErrorCode.INVALID_REQUEST, f"listeners={value!r}")
    row = alter(
        target, resource_of(BROKER, own, ("max.connections", SET, "1000")), validate_only=True
    )[0]
    expect_error(row.error_code, ErrorCode.NONE, "max.connections=1000")

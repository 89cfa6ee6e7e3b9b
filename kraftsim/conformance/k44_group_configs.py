"""Configurations of groups (resource type 32): described, changed, listed, and applied.

Source: KIP-848, KIP-1142; org.apache.kafka.coordinator.group.{GroupConfig, GroupConfigManager},
kafka.server.{ConfigHelper, ControllerConfigurationValidator}; verified against Apache Kafka 4.0.2
to 4.4.0.
"""

from kraftsim.conformance.consumer_group_client import ConsumerGroupClient
from kraftsim.conformance.expect import expect, expect_equal, expect_error, settled
from kraftsim.conformance.k32_describe_configs import describe
from kraftsim.conformance.k44_alter_configs import alter, resource_of
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType, ConfigSource
from protocol.errors import ErrorCode
from protocol.messages.k33_alter_configs import AlterableConfig as ReplacedConfig
from protocol.messages.k33_alter_configs import AlterConfigsRequest, AlterConfigsResponse
from protocol.messages.k33_alter_configs import AlterConfigsResource as ReplacedResource
from protocol.messages.k44_incremental_alter_configs import APPEND, DELETE, SET
from protocol.messages.k74_list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

REQUIREMENTS = Requirements("configs", 3, "Configurations of groups")
SINCE = "4.0"
VALIDATOR = "kafka.server.ControllerConfigurationValidator"
GROUP = ConfigResourceType.GROUP
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SHARE_SESSION = "share.session.timeout.ms"
Described = dict[str, tuple[str | None, int]]


def _described(target: Target, group_id: str) -> Described:
    """Return the value and the source of each configuration."""
    result = describe(target, GROUP, group_id)
    expect_error(result.error_code, ErrorCode.NONE, f"describing {group_id}")
    return {row.name: (row.value, row.config_source) for row in result.configs}


def _await(target: Target, group_id: str, name: str, value: tuple[str, int]) -> Described:
    return settled(
        lambda: _described(target, group_id), lambda rows: rows[name] == value, f"{name}={value}"
    )


def _change(target: Target, group_id: str, *operations: tuple[str, int, str | None]) -> None:
    row = alter(target, resource_of(GROUP, group_id, *operations))[0]
    expect_error(row.error_code, ErrorCode.NONE, f"{operations}: {row.error_message}")


def _refused(
    target: Target, group_id: str, operation: tuple[str, int, str], error: ErrorCode, why: str
) -> None:
    row = alter(target, resource_of(GROUP, group_id, operation), validate_only=True)[0]
    expect_error(row.error_code, error, f"{operation} on {group_id!r}")
    expect_equal(row.error_message, why, f"the error of {operation} on {group_id!r}")


@REQUIREMENTS.that(
    1,
    "a group is described whether it exists or not, with the values that it has without its own",
    source="kafka.server.ConfigHelper",
    since=SINCE,
)
def without_own_values(target: Target) -> None:
    with ConsumerGroupClient(target) as group:
        rows = _described(target, group.group_id)
    expect(
        rows[SESSION][1] in (ConfigSource.DEFAULT_CONFIG, ConfigSource.STATIC_BROKER_CONFIG),
        f"the source of {SESSION}: {rows[SESSION]}",
    )
    expect_equal(rows["share.auto.offset.reset"], ("latest", 5), "a configuration of groups only")
    result = describe(target, GROUP, "")
    expect_error(result.error_code, ErrorCode.INVALID_REQUEST, "a group without a name")
    expect_equal(result.error_message, "Group name must not be empty", "its message")


@REQUIREMENTS.that(
    2,
    "a value of a group is described with its source, until it is deleted",
    source="KIP-848",
    since=SINCE,
)
def set_and_delete(target: Target) -> None:
    with ConsumerGroupClient(target) as group:
        before = _described(target, group.group_id)
        _change(target, group.group_id, (SESSION, SET, "50000"))
        rows = _await(target, group.group_id, SESSION, ("50000", ConfigSource.GROUP_CONFIG))
        expect_equal(rows | {SESSION: before[SESSION]}, before, "the other values")
        _change(target, group.group_id, (SESSION, DELETE, None))
        settled(
            lambda: _described(target, group.group_id), lambda found: found == before, "the default"
        )


@REQUIREMENTS.that(
    3,
    "AlterConfigs replaces all values of a group",
    source="KIP-133",
    since=SINCE,
)
def replaced(target: Target) -> None:
    with ConsumerGroupClient(target) as group:
        _change(target, group.group_id, (SESSION, SET, "50000"))
        _await(target, group.group_id, SESSION, ("50000", ConfigSource.GROUP_CONFIG))
        values = [ReplacedConfig(name=SHARE_SESSION, value="51000")]
        resource = ReplacedResource(
            resource_type=GROUP, resource_name=group.group_id, configs=values
        )
        row = group.peer.ask(
            AlterConfigsRequest(resources=[resource]),
            target.newest(ApiKey.ALTER_CONFIGS),
            AlterConfigsResponse,
        ).responses[0]
        expect_error(row.error_code, ErrorCode.NONE, f"AlterConfigs: {row.error_message}")
        rows = _await(target, group.group_id, SHARE_SESSION, ("51000", ConfigSource.GROUP_CONFIG))
        expect(rows[SESSION][1] != ConfigSource.GROUP_CONFIG, f"{SESSION} is {rows[SESSION]}")


@REQUIREMENTS.that(
    4,
    "an unknown name, an invalid value and an operation on lists are INVALID_CONFIG, and a group "
    "without a name INVALID_REQUEST",
    source=VALIDATOR,
    since=SINCE,
)
def invalid(target: Target) -> None:
    name = target.fresh_name("group")
    for operation, why in (
        (("nothing.known", SET, "1"), "Unknown group config name: nothing.known"),
        (
            (SESSION, SET, "x"),
            f"Invalid value x for configuration {SESSION}: Not a number of type INT",
        ),
        (
            (SESSION, SET, "0"),
            f"Invalid value 0 for configuration {SESSION}: Value must be at least 1",
        ),
        (
            (SESSION, APPEND, "1"),
            f"Can't APPEND to key {SESSION} because its type is not LIST.",
        ),
    ):
        _refused(target, name, operation, ErrorCode.INVALID_CONFIG, why)
    _refused(
        target,
        "",
        (SESSION, SET, "50000"),
        ErrorCode.INVALID_REQUEST,
        "Default group resources are not allowed.",
    )


def _out_of_bounds(target: Target, name: str, value: str, why: str) -> None:
    _refused(target, target.fresh_name("group"), (name, SET, value), ErrorCode.INVALID_CONFIG, why)


@REQUIREMENTS.that(
    5,
    "a value outside of the controller's bounds is INVALID_CONFIG, and the message names the bound",
    source="GroupConfig.validateValues",
    since=SINCE,
    until="4.3",
)
def named_bounds(target: Target) -> None:
    _out_of_bounds(
        target,
        SESSION,
        "1",
        f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms",
    )
    _out_of_bounds(
        target,
        HEARTBEAT,
        "100000",
        f"{HEARTBEAT} must be less than or equal to group.consumer.max.heartbeat.interval.ms",
    )


@REQUIREMENTS.that(
    6,
    "a value outside of the controller's bounds is INVALID_CONFIG, and the message has the bounds",
    source="GroupConfig.validateIntRange",
    since="4.4",
)
def shown_bounds(target: Target) -> None:
    _out_of_bounds(
        target, SESSION, "1", f"{SESSION} must be in the range 45000 to 60000 inclusive."
    )
    _out_of_bounds(
        target,
        "streams.num.standby.replicas",
        "3",
        "streams.num.standby.replicas must be less than or equal to 2",
    )


@REQUIREMENTS.that(
    7,
    "the heartbeat interval of a group is in the responses to its members at once, and not in "
    "those of another group",
    source="GroupCoordinatorService",
    since=SINCE,
)
def applied(target: Target) -> None:
    topic = target.topic()
    with ConsumerGroupClient(target) as group, ConsumerGroupClient(target) as other:
        members = group.member("a", topic), other.member("b", topic)
        interval_ms = members[0].join().heartbeat_interval_ms
        members[1].join()
        wanted = 15_000 if interval_ms != 15_000 else 14_000
        _change(target, group.group_id, (HEARTBEAT, SET, str(wanted)))
        settled(
            lambda: members[0].beat().heartbeat_interval_ms,
            lambda found: found == wanted,
            "the interval of the group",
        )
        expect_equal(members[1].beat().heartbeat_interval_ms, interval_ms, "that of the other")
        _change(target, group.group_id, (HEARTBEAT, DELETE, None))
        settled(
            lambda: members[0].beat().heartbeat_interval_ms,
            lambda found: found == interval_ms,
            "the interval of the broker",
        )


@REQUIREMENTS.that(
    8,
    "ListConfigResources returns groups with values of their own, whether they exist or not",
    source="KIP-1142",
    since="4.1",
)
def listed(target: Target) -> None:
    name = target.fresh_name("group")

    def names() -> list[str]:
        with target.peer() as peer:
            answer = peer.ask(
                ListConfigResourcesRequest(resource_types=[int(GROUP)]),
                1,
                ListConfigResourcesResponse,
            )
        expect_equal({row.resource_type for row in answer.config_resources} - {32}, set(), "types")
        return [row.resource_name for row in answer.config_resources]

    expect(name not in names(), f"{name} has no value yet")
    _change(target, name, (SESSION, SET, "50000"))
    settled(names, lambda found: name in found, f"{name} in the list")
    _change(target, name, (SESSION, DELETE, None))

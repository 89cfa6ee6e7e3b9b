"""How configurations are altered, on the controller and in a broker's checks before it: results of
Apache Kafka 3.9.1 and 4.4.0.
"""

import pytest

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.events import ConfigChanged
from kraftsim.metadata.rules_config_releases import KAFKA_3_9
from kraftsim.metadata.rules_configs import decide_alter_configs, decide_replace_configs
from kraftsim.metadata.rules_described_configs import (
    count_resources,
    refuse_altered_broker,
    refuse_common,
    refuse_replaced_broker,
    refuse_type,
)
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages import k33_alter_configs as k33
from protocol.messages import k44_incremental_alter_configs as k44
from protocol.messages.k44_incremental_alter_configs import APPEND, DELETE, SET, SUBTRACT
from tests.core.registries import Cluster

TOPIC, BROKER, LOGGER, METRICS = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
)
NONE = ErrorCode.NONE
INVALID_CONFIG, INVALID_REQUEST = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST
Operations = tuple[tuple[str, int, str | None], ...]


def altered(kind: int, name: str, operations: Operations) -> k44.AlterConfigsResource:
    """One resource of IncrementalAlterConfigs."""
    rows = [
        k44.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in operations
    ]
    return k44.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)


def replaced(kind: int, name: str, **values: str | None) -> k33.AlterConfigsResource:
    """One resource of AlterConfigs; underscores stand for dots."""
    rows = [
        k33.AlterableConfig(name=key.replace("_", "."), value=value)
        for key, value in values.items()
    ]
    return k33.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)


def alter(
    cluster: Cluster, *resources: k44.AlterConfigsResource, validate_only: bool = False
) -> list[tuple[ErrorCode, str]]:
    """Execute a request and return (error, message) of each result."""
    request = k44.IncrementalAlterConfigsRequest(
        resources=list(resources), validate_only=validate_only
    )
    results = cluster.carry_out(decide_alter_configs(cluster.state.config_view(), request))
    return [
        (NONE, "") if refusal is None else (refusal.error, refusal.why) for _, refusal in results
    ]


@pytest.mark.parametrize(
    ("kind", "name", "operations", "error", "why"),
    [
        (TOPIC, "t", (("retention.ms", SET, "1000"),), NONE, ""),
        (TOPIC, "t", (("segment.ms", DELETE, None),), NONE, ""),
        (TOPIC, "t", (("no.such", DELETE, None),), NONE, ""),
        (TOPIC, "t", (), NONE, ""),
        (TOPIC, "t", (("retention.ms", SET, None),), NONE, ""),
        (TOPIC, "nope", (("retention.ms", SET, "1"),), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
         "The topic 'nope' does not exist."),
        (TOPIC, "nope", (("retention.ms", SET, "x"),), INVALID_CONFIG,
         "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        (TOPIC, "", (("retention.ms", SET, "1"),), INVALID_REQUEST,
         "Default topic resources are not allowed."),
        (TOPIC, ".", (), ErrorCode.INVALID_TOPIC_EXCEPTION,
         "Topic name is invalid: '.' is not allowed"),
        (TOPIC, "t", (("no.such", SET, "1"),), INVALID_CONFIG,
         "Unknown topic config name: no.such"),
        (TOPIC, "t", (("retention.ms", APPEND, "2"),), INVALID_CONFIG,
         "Can't APPEND to key retention.ms because its type is not LIST."),
        (TOPIC, "t", (("retention.ms", SUBTRACT, "2"),), INVALID_CONFIG,
         "Can't SUBTRACT to key retention.ms because its type is not LIST."),
        (TOPIC, "t", (("cleanup.policy", APPEND, "x"),), INVALID_CONFIG,
         "Invalid value x for configuration cleanup.policy: String must be one of: "
         "compact, delete"),
        (BROKER, "", (("no.such.key", SET, "1"),), NONE, ""),
        (BROKER, "1", (("num.partitions", SET, "x"),), NONE, ""),
        (BROKER, "101", (("log.retention.ms", SET, "1"),), NONE, ""),
        (BROKER, "7", (("log.retention.ms", SET, "1"),), ErrorCode.BROKER_ID_NOT_REGISTERED,
         "No node with id 7 found."),
        (BROKER, "x", (), INVALID_REQUEST, "Unable to parse broker name as a base 10 number."),
        (BROKER, "-1", (), INVALID_REQUEST, "Invalid negative broker ID."),
        (METRICS, "m", (("interval.ms", SET, "100"), ("match", SET, "client_id=a.*")), NONE, ""),
        (METRICS, "", (("interval.ms", SET, "100"),), INVALID_REQUEST,
         "Subscription name can't be empty"),
        (METRICS, "m", (("no.such", SET, "1"),), INVALID_REQUEST,
         "Unknown client metrics configuration: no.such"),
        (METRICS, "m", (("interval.ms", SET, "99"),), INVALID_REQUEST,
         "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        (METRICS, "m", (("interval.ms", SET, "x"),), ErrorCode.UNKNOWN_SERVER_ERROR, ""),
        (METRICS, "m", (("match", SET, "foo=bar"),), INVALID_CONFIG,
         "Illegal client matching pattern: foo=bar"),
        (METRICS, "m", (("match", SET, "client_id=["),), INVALID_CONFIG,
         "Illegal client matching pattern: client_id=["),
        (32, "g", (), ErrorCode.UNSUPPORTED_VERSION, "Unknown resource type 32."),
        (0, "x", (), ErrorCode.UNSUPPORTED_VERSION, "Unknown resource type 0."),
    ],
)  # fmt: skip
def test_controller_validation_of_a_config_change(
    kind: int, name: str, operations: Operations, error: ErrorCode, why: str
) -> None:
    """ConfigurationControlManager, ControllerConfigurationValidator, ClientMetricsConfigs."""
    assert alter(Cluster().with_broker(1).with_topic("t"), altered(kind, name, operations)) == [
        (error, why)
    ]


@pytest.mark.parametrize(
    ("steps", "value"),
    [
        ((("cleanup.policy", APPEND, "compact"),), "delete,compact"),
        ((("cleanup.policy", APPEND, "delete,"),), None),
        (
            (("cleanup.policy", SET, "compact"), ("cleanup.policy", APPEND, "delete,compact")),
            "compact,delete",
        ),
        (
            (("cleanup.policy", SET, "compact,delete"), ("cleanup.policy", SUBTRACT, "compact,x")),
            "delete",
        ),
        ((("cleanup.policy", SUBTRACT, "delete"),), ""),
        ((("cleanup.policy", SET, "compact"), ("cleanup.policy", DELETE, "ignored")), None),
    ],
)
def test_append_and_subtract_use_the_configured_list_or_the_default(
    steps: Operations, value: str | None
) -> None:
    """KIP-339. An unchanged value is not written: the default remains in effect."""
    cluster = Cluster().with_topic("t")
    for step in steps:
        assert alter(cluster, altered(TOPIC, "t", (step,))) == [(NONE, "")]
    expected = "delete" if value is None and steps[-1][1] == APPEND else value
    assert cluster.state.configs.configs_of(TOPIC, "t").get("cleanup.policy") == expected


def test_each_resource_is_altered_independently_and_only_changes_are_written() -> None:
    """A resource that is named twice is rejected once; a broker's record is written even if nothing
    changes (KAFKA-14136).
    """
    cluster = Cluster().with_broker(1).with_topic("t")
    retention = altered(TOPIC, "t", (("retention.ms", SET, "5"),))
    segment, nope = (
        altered(BROKER, "1", (("log.segment.bytes", SET, "99"),)),
        altered(TOPIC, "nope", ()),
    )
    assert alter(cluster, retention, nope, segment, nope) == [
        (INVALID_REQUEST, "Duplicate resource."),
        (NONE, ""),
        (NONE, ""),
    ]
    written = len(cluster.log)
    assert alter(cluster, retention, segment) == [(NONE, ""), (NONE, "")]
    assert [record.resource_name for record in cluster.log[written:]] == ["1"]


@pytest.mark.parametrize(
    "operation", [(("cleanup.policy", APPEND, None),), (("cleanup.policy", 9, "x"),)]
)
def test_a_request_that_crashes_kafkas_controller_is_rejected_as_a_whole(
    operation: Operations,
) -> None:
    """In Apache Kafka a NullPointerException also makes the controller resign; here the controller
    continues.
    """
    cluster = Cluster().with_topic("t")
    request = k44.IncrementalAlterConfigsRequest(resources=[altered(TOPIC, "t", operation)])
    assert decide_alter_configs(cluster.state.config_view(), request) == Refusal(
        ErrorCode.UNKNOWN_SERVER_ERROR
    )


def test_more_than_ten_thousand_records_are_rejected_as_a_whole() -> None:
    """MAX_RECORDS_PER_USER_OP."""
    many = altered(BROKER, "", tuple((f"key.{number}", SET, "x") for number in range(10_001)))
    request = k44.IncrementalAlterConfigsRequest(resources=[many])
    assert decide_alter_configs(Cluster().state.config_view(), request) == Refusal(
        ErrorCode.POLICY_VIOLATION
    )


def test_alter_configs_removes_unnamed_settings() -> None:
    """AlterConfigs, KIP-133."""
    cluster = Cluster().with_topic("t")
    alter(cluster, altered(TOPIC, "t", (("retention.ms", SET, "5"), ("segment.ms", SET, "6"))))
    request = k33.AlterConfigsRequest(
        resources=[
            replaced(TOPIC, "t", retention_ms="7", cleanup_policy="compact"),
            replaced(LOGGER, "1"),
        ]
    )
    results = cluster.carry_out(decide_replace_configs(cluster.state.config_view(), request))
    assert dict(cluster.state.configs.configs_of(TOPIC, "t")) == {
        "retention.ms": "7",
        "cleanup.policy": "compact",
    }
    assert [(name, None if refusal is None else refusal.why) for (_, name), refusal in results] == [
        ("1", "Unexpected resource type BROKER_LOGGER."),
        ("t", None),
    ]


def test_alter_configs_validates_the_resulting_config() -> None:
    """A conflict with a setting that the request removes is not a conflict."""
    cluster = Cluster().with_topic("t")
    alter(cluster, altered(TOPIC, "t", (("max.compaction.lag.ms", SET, "5"),)))
    request = k33.AlterConfigsRequest(resources=[replaced(TOPIC, "t", min_compaction_lag_ms="9")])
    assert cluster.carry_out(decide_replace_configs(cluster.state.config_view(), request)) == [
        ((TOPIC, "t"), None)
    ]
    assert (
        alter(cluster, altered(TOPIC, "t", (("max.compaction.lag.ms", SET, "5"),)))[0][0]
        == INVALID_CONFIG
    )


def test_validate_only_changes_nothing() -> None:
    """validate_only."""
    cluster = Cluster().with_topic("t")
    assert alter(
        cluster, altered(TOPIC, "t", (("retention.ms", SET, "5"),)), validate_only=True
    ) == [(NONE, "")]
    assert len(cluster.log) == 2


@pytest.mark.parametrize(
    ("kind", "name", "key", "shown"),
    [
        (TOPIC, "t", "retention.ms", "5"),
        (BROKER, "", "log.retention.ms", "5"),
        (BROKER, "", "ssl.key.password", None),
    ],
)
def test_event_log_redacts_secrets(kind: int, name: str, key: str, shown: str | None) -> None:
    """Values of type PASSWORD and values of unknown settings are never logged."""
    cluster = Cluster().with_topic("t")
    request = k44.IncrementalAlterConfigsRequest(
        resources=[altered(kind, name, ((key, SET, "5"),))]
    )
    decided = decide_alter_configs(cluster.state.config_view(), request)
    assert isinstance(decided, Decision)
    assert decided.facts == (
        ConfigChanged(
            resource_type=kind, resource_name=name, name=key, value=shown, is_removed=False
        ),
    )


def test_topic_config_precedence_is_topic_node_cluster_properties_default() -> None:
    """ConfigurationControlManager.getTopicConfig."""
    cluster = Cluster(static_configs={"unclean.leader.election.enable": "true"}).with_topic("t")
    seen = [cluster.state.configs.effective_topic_config("t", "unclean.leader.election.enable")]
    for kind, name, value in (
        (BROKER, "", "false"),
        (BROKER, "101", "true"),
        (TOPIC, "t", "FALSE"),
    ):
        alter(cluster, altered(kind, name, (("unclean.leader.election.enable", SET, value),)))
        seen.append(
            cluster.state.configs.effective_topic_config("t", "unclean.leader.election.enable")
        )
    assert seen == ["true", "false", "true", "FALSE"]


# Brokers
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "operations", "error", "why"),
    [
        ("", (("log.retention.ms", SET, "5"),), NONE, ""),
        ("1", (("log.retention.ms", SET, "5"),), NONE, ""),
        ("", (("no.such.key", SET, "5"),), NONE, ""),
        ("", (("log.cleanup.policy", APPEND, "compact"),), NONE, ""),
        ("7", (), INVALID_REQUEST, "Unexpected broker id, expected 1, but received 7"),
        ("x", (), INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        ("1", (("num.partitions", SET, "5"),), INVALID_REQUEST,
         "Cannot update these configs dynamically: Set(num.partitions)"),
        ("", (("log.retention.ms", SET, "abc"),), INVALID_REQUEST,
         "Invalid value abc for configuration log.retention.ms: Not a number of type LONG"),
        ("", (("listeners", SET, "A://h:1"),), INVALID_REQUEST,
         "Cannot update these configs at default cluster level, broker id must be specified: "
         "Set(listeners)"),
        ("", (("log.retention.ms", APPEND, "5"),), INVALID_CONFIG,
         "Config value append is not allowed for config key: log.retention.ms"),
        ("", (("log.retention.ms", SUBTRACT, "5"),), INVALID_CONFIG,
         "Config value subtract is not allowed for config key: log.retention.ms"),
        ("", (("no.such", APPEND, "5"),), ErrorCode.UNKNOWN_SERVER_ERROR, ""),
        ("", (("log.retention.ms", 9, "5"),), INVALID_REQUEST, "Unknown operations type 9"),
        ("", (("log.retention.ms", DELETE, None),), NONE, ""),
    ],
)  # fmt: skip
def test_broker_validation_of_broker_configs(
    name: str, operations: Operations, error: ErrorCode, why: str
) -> None:
    """ConfigAdminManager.validateBrokerConfigChange."""
    refusal = refuse_altered_broker(
        KAFKA_3_9, 1, altered(BROKER, name, operations), {"min.insync.replicas": "1"}
    )
    assert ((NONE, "") if refusal is None else (refusal.error, refusal.why)) == (error, why)
    if refusal is None and not any(operation != SET for _, operation, _ in operations):
        values = {key.replace(".", "_"): value for key, _, value in operations}
        assert refuse_replaced_broker(KAFKA_3_9, 1, replaced(BROKER, name, **values)) is None


def test_broker_preprocess_rejects_duplicates_and_null_values() -> None:
    """ConfigAdminManager.preprocess."""
    once, again = altered(TOPIC, "t", (("a", SET, "1"),)), altered(TOPIC, "t", (("b", SET, "2"),))
    same_key, null = (
        altered(TOPIC, "u", (("a", SET, "1"), ("a", DELETE, None))),
        altered(TOPIC, "v", (("a", SET, None), ("b", APPEND, None))),
    )
    resources = [once, again, same_key, null, altered(TOPIC, "w", (("a", DELETE, None),))]
    found = [
        refusal and refusal.why
        for refusal in (
            refuse_common(count_resources(resources), resource) for resource in resources
        )
    ]
    twice = "Each resource must appear at most once."
    assert found == [
        twice,
        twice,
        "Error due to duplicate config keys",
        "Null value not supported for : a, b",
        None,
    ]
    assert refuse_type(altered(77, "x", ()), frozenset((TOPIC,))) == Refusal(INVALID_REQUEST)

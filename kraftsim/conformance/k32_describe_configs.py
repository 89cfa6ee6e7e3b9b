"""DescribeConfigs (32): effective configurations of topics and brokers, and their sources.

Source: KIP-133, KIP-226, kafka.server.ConfigHelper.
"""

from collections.abc import Sequence

from kraftsim.conformance.expect import Unmet, expect, expect_equal, expect_error, settled
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, own_broker_id
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType, ConfigSource, ConfigType
from protocol.errors import ErrorCode
from protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from protocol.messages.k44_incremental_alter_configs import (
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

REQUIREMENTS = Requirements("configs", 1, "DescribeConfigs")
HELPER = "kafka.server.ConfigHelper"
TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
SYNONYMS_SINCE, TYPES_SINCE = 1, 3


def describe(
    target: Target,
    kind: int,
    name: str,
    keys: Sequence[str] | None = None,
    *,
    version: int | None = None,
    synonyms: bool = False,
    address: str | None = None,
) -> DescribeConfigsResult:
    """Describe one resource, on the broker at an address or on the checked one."""
    chosen = target.newest(ApiKey.DESCRIBE_CONFIGS) if version is None else version
    resource = DescribeConfigsResource(
        resource_type=kind,
        resource_name=name,
        configuration_keys=None if keys is None else list(keys),
    )
    with target.peer(address) as peer:
        answer = peer.ask(
            DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms),
            chosen,
            DescribeConfigsResponse,
        )
    if len(answer.results) != 1:
        raise Unmet(f"{len(answer.results)} results for one resource")
    return answer.results[0]


def described_config(
    target: Target, kind: int, name: str, key: str, *, synonyms: bool = False
) -> DescribeConfigsResourceResult:
    """Return one configuration. Raises Unmet if it is missing."""
    result = describe(target, kind, name, [key], synonyms=synonyms)
    expect_error(result.error_code, ErrorCode.NONE, name)
    expect_equal([row.name for row in result.configs], [key], "the returned configurations")
    return result.configs[0]


def _refused(target: Target, kind: int, name: str, error: ErrorCode, why: str | None) -> None:
    result = describe(target, kind, name)
    expect_error(result.error_code, error, f"resource {name!r} of type {kind}")
    expect_equal(result.configs, [], f"configurations of resource {name!r} of type {kind}")
    if why is not None:
        expect_equal(result.error_message, why, f"the error of resource {name!r} of type {kind}")


@REQUIREMENTS.that(
    1,
    "every configuration of a topic is returned: its own values, and the defaults of all others",
    source="KIP-133, KIP-226",
)
def topic_values(target: Target) -> None:
    name = target.topic(configs={"retention.ms": "4321"}).name
    for version in target.versions(ApiKey.DESCRIBE_CONFIGS):
        result = describe(target, TOPIC, name, version=version)
        expect_error(result.error_code, ErrorCode.NONE, f"version {version}")
        values = {row.name: row.value for row in result.configs}
        expect_equal(
            (values.get("retention.ms"), values.get("compression.type")),
            ("4321", "producer"),
            f"version {version}: two of the values",
        )
        expect(
            len(values) == len(result.configs) > 20,
            f"version {version}: {len(result.configs)} rows, {len(values)} names",
        )
        if version >= SYNONYMS_SINCE:
            sources = {row.name: row.config_source for row in result.configs}
            expected = (ConfigSource.TOPIC_CONFIG, ConfigSource.DEFAULT_CONFIG)
            expect_equal(
                (sources["retention.ms"], sources["compression.type"]),
                expected,
                f"version {version}: where they come from",
            )


@REQUIREMENTS.that(2, "of named configurations the existing ones are returned", source=HELPER)
def named(target: Target) -> None:
    name = target.topic().name
    for keys, expected in (
        (["segment.ms", "no.such", "flush.ms"], ["flush.ms", "segment.ms"]),
        (["no.such"], []),
    ):
        found = sorted(row.name for row in describe(target, TOPIC, name, keys).configs)
        expect_equal(found, expected, f"the configurations of {', '.join(keys)}")


@REQUIREMENTS.that(3, "types are returned since version 3", source="KIP-569")
def types(target: Target) -> None:
    name = target.topic().name
    kinds = {
        "retention.ms": ConfigType.LONG,
        "cleanup.policy": ConfigType.LIST,
        "preallocate": ConfigType.BOOLEAN,
    }
    for version in target.versions(ApiKey.DESCRIBE_CONFIGS, since=TYPES_SINCE):
        found = {
            row.name: row.config_type
            for row in describe(target, TOPIC, name, list(kinds), version=version).configs
        }
        expect_equal(
            found, {key: int(kind) for key, kind in kinds.items()}, f"version {version}: types"
        )


@REQUIREMENTS.that(
    4,
    "with include_synonyms the values that would apply without the topic's own value are returned",
    source="KIP-226",
)
def synonyms(target: Target) -> None:
    name = target.topic(configs={"compression.type": "lz4"}).name
    row = described_config(target, TOPIC, name, "compression.type", synonyms=True)
    found = [(synonym.name, synonym.value, synonym.source) for synonym in row.synonyms]
    expected = [
        ("compression.type", "lz4", int(ConfigSource.TOPIC_CONFIG)),
        ("compression.type", "producer", int(ConfigSource.DEFAULT_CONFIG)),
    ]
    expect_equal(found, expected, "synonyms")
    expect_equal(
        described_config(target, TOPIC, name, "compression.type").synonyms,
        [],
        "synonyms that were not requested",
    )


@REQUIREMENTS.that(
    5,
    "an unknown topic returns UNKNOWN_TOPIC_OR_PARTITION, an invalid name INVALID_TOPIC_EXCEPTION",
    source=HELPER,
)
def no_topic(target: Target) -> None:
    _refused(target, TOPIC, target.fresh_name(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    why = (
        "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
        "alphanumerics, '.', '_' and '-'"
    )
    _refused(target, TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION, why)


@REQUIREMENTS.that(
    6,
    "a broker returns its own configurations with their dynamic update mode, and no passwords",
    source="KIP-226, DynamicBrokerConfig",
)
def own_settings(target: Target) -> None:
    name = str(own_broker_id(target))
    rows = {row.name: row for row in describe(target, BROKER, name).configs}
    expect(len(rows) > 200, f"only {len(rows)} configurations are returned")
    expect_equal(
        (rows["num.partitions"].read_only, rows["log.segment.bytes"].read_only),
        (True, False),
        "num.partitions, log.segment.bytes: read only",
    )
    secret = rows["ssl.keystore.password"]
    expect_equal(
        (secret.is_sensitive, secret.value, secret.config_type),
        (True, None, int(ConfigType.PASSWORD)),
        "a password: sensitive, value, type",
    )
    expect_equal(
        rows["listeners"].config_source,
        int(ConfigSource.STATIC_BROKER_CONFIG),
        "where listeners come from",
    )


@REQUIREMENTS.that(
    7,
    "a broker returns INVALID_REQUEST for another broker's id and for an invalid one",
    source=HELPER,
)
def other_broker(target: Target) -> None:
    own = own_broker_id(target)
    why = f"Unexpected broker id, expected {own} or empty string, but received 999"
    _refused(target, BROKER, "999", ErrorCode.INVALID_REQUEST, why)
    _refused(
        target, BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"
    )
    _refused(
        target,
        ConfigResourceType.BROKER_LOGGER,
        "",
        ErrorCode.INVALID_REQUEST,
        "Broker id must not be empty",
    )


@REQUIREMENTS.that(
    8,
    "an unknown resource type returns INVALID_REQUEST for every resource of the request",
    source=HELPER,
)
def no_type(target: Target) -> None:
    name = target.topic().name
    rows = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind in (TOPIC, 77)
    ]
    with target.peer() as peer:
        answer = peer.ask(
            DescribeConfigsRequest(resources=rows),
            target.newest(ApiKey.DESCRIBE_CONFIGS),
            DescribeConfigsResponse,
        )
    expect_equal(
        [row.error_code for row in answer.results], [int(ErrorCode.INVALID_REQUEST)] * 2, "errors"
    )


@REQUIREMENTS.that(
    9,
    "a client metrics subscription is returned with all its configurations, set or not, and with "
    "types",
    source="KIP-714; " + HELPER,
    since="4.1",
)
def client_metrics(target: Target) -> None:
    name = target.fresh_name("subscription")
    kinds = {
        "interval.ms": ("300000", ConfigType.INT),
        "match": ("", ConfigType.LIST),
        "metrics": ("", ConfigType.LIST),
    }
    untold: dict[str, tuple[str | None, int, int, list[str | None]]] = {
        key: (value, int(ConfigSource.DEFAULT_CONFIG), int(kind), [])
        for key, (value, kind) in kinds.items()
    }

    def found() -> dict[str, tuple[str | None, int, int, list[str | None]]]:
        rows = describe(target, ConfigResourceType.CLIENT_METRICS, name, synonyms=True).configs
        return {
            row.name: (
                row.value,
                row.config_source,
                row.config_type,
                [each.value for each in row.synonyms],
            )
            for row in rows
        }

    expect_equal(found(), untold, "value, source, type and synonyms of each, while nothing is set")
    change = AlterableConfig(name="interval.ms", config_operation=SET, value="5000")
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.CLIENT_METRICS, resource_name=name, configs=[change]
    )
    with target.peer() as peer:
        answer = peer.ask(
            IncrementalAlterConfigsRequest(resources=[resource]), 1, IncrementalAlterConfigsResponse
        )
    expect_equal([row.error_code for row in answer.responses], [0], "IncrementalAlterConfigs")
    returned_now = {
        **untold,
        "interval.ms": (
            "5000",
            int(ConfigSource.CLIENT_METRICS_CONFIG),
            int(ConfigType.INT),
            ["5000"],
        ),
    }
    settled(
        found,
        lambda rows: rows["interval.ms"] != untold["interval.ms"],
        "interval.ms as it was set",
    )
    expect_equal(found(), returned_now, "the same, with interval.ms set")
    named = describe(target, ConfigResourceType.CLIENT_METRICS, name, ["match", "no.such"]).configs
    expect_equal(
        [row.name for row in named], ["match"], "the returned configurations of match, no.such"
    )

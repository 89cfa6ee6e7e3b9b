"""The responses to requests about configs that brokers and controllers share: DescribeConfigs,
AlterConfigs and IncrementalAlterConfigs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_described_configs import (
    BrokerSettings,
    DescribedConfig,
    describe_all_brokers,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from kraftsim.metadata.rules_topic_names import why_name_is_invalid
from kraftsim.server.call import Call
from kraftsim.server.serving_broker import ConfiguredBroker, ImageBroker
from kraftsim.server.slices import Slices
from protocol.config_resources import NO_CONFIG_SOURCE, ConfigResourceType
from protocol.errors import UNEXPECTED, ErrorCode
from protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from protocol.messages.k44_incremental_alter_configs import AlterConfigsResource
from protocol.storage.text_files import parse_int32

# --------------------------------------------------------------------------------------------------
# The DescribeConfigs response of brokers and controllers: cluster configs from metadata, and the
# node's own settings
#
# Documentation is one sentence of kraftsim about each setting with effect, null for all others.
# Source: KIP-133, kafka.server.ConfigHelper (3.9).

SETTINGS_OF_A_BROKER_WEIGH: Final = 250
"""A broker resource has some 300 settings, which take 3.5 ms with synonyms and documentation."""
CONFIGS_OF_A_TOPIC_WEIGH: Final = 25
"""A topic resource has 36, which take 0.3 ms."""
SYNONYMS_SINCE: Final = 1
TYPES_SINCE: Final = 3
MALFORMED: Final = (
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details."
)
"""Kafka's error message for an invalid request that it does not inspect further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownConfigs:
    """The configs known to a node; `settings` are its own."""

    node_id: int
    resource_types: frozenset[ConfigResourceType]
    settings: BrokerSettings
    has_topic: Callable[[str], bool]
    configs_of: Callable[[int, str], Mapping[str, str]]


def describe_configs(
    known: KnownConfigs, call: Call, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Answer per resource; an unknown resource type fails the whole request.

    `request` is the authorized part.
    """
    if not call.over_whole(_resource_types) <= known.resource_types:
        return refuse_describe_configs(request, ErrorCode.INVALID_REQUEST, MALFORMED)
    return DescribeConfigsResponse(
        results=[
            _result(known, resource, request, call.api_version) for resource in request.resources
        ]
    )


def _weight(_: object, resource: DescribeConfigsResource) -> int:
    return (
        SETTINGS_OF_A_BROKER_WEIGH
        if resource.resource_type == ConfigResourceType.BROKER
        else CONFIGS_OF_A_TOPIC_WEIGH
    )


SLICES: Final = Slices(entries="resources", rows="results", weight=_weight)


def _resource_types(request: DescribeConfigsRequest, _: int) -> set[int]:
    return {resource.resource_type for resource in request.resources}


def refuse_describe_configs(
    request: DescribeConfigsRequest, error: ErrorCode, why: str | None = None
) -> DescribeConfigsResponse:
    """Return the same error for all resources."""
    text = why or (UNEXPECTED if error is ErrorCode.UNKNOWN_SERVER_ERROR else "")
    return DescribeConfigsResponse(
        results=[_refused(resource, Refusal(error, text)) for resource in request.resources]
    )


def _result(
    known: KnownConfigs,
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    version: int,
) -> DescribeConfigsResult:
    found = _described(known, resource)
    if isinstance(found, Refusal):
        return _refused(resource, found)
    rows = [_row(config, version, with_synonyms=request.include_synonyms) for config in found]
    if request.include_documentation and version >= TYPES_SINCE:
        _document(rows)
    return DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, configs=rows
    )


def _document(rows: list[DescribeConfigsResourceResult]) -> None:
    from kraftsim.server.config_meanings import (
        meaning_of,
    )  # imported lazily: startup does not load the table

    for row in rows:
        row.documentation = meaning_of(row.name)


def _refused(resource: DescribeConfigsResource, refusal: Refusal) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=refusal.error,
        error_message=refusal.why,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _described(
    known: KnownConfigs, resource: DescribeConfigsResource
) -> list[DescribedConfig] | Refusal:
    name, keys = resource.resource_name, resource.configuration_keys
    match resource.resource_type:
        case ConfigResourceType.TOPIC:
            why = why_name_is_invalid(name)
            if why is not None:
                return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
            if not known.has_topic(name):
                return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(
                known.configs_of(ConfigResourceType.TOPIC, name), known.settings, keys
            )
        case ConfigResourceType.BROKER:
            if not name:
                return describe_all_brokers(known.settings, keys)
            wrong = _refuse_id(known.node_id, name, " or empty string,")
            return describe_broker(known.settings, keys) if wrong is None else wrong
        case ConfigResourceType.BROKER_LOGGER:
            return _refuse_id(known.node_id, name, "") or []
        case ConfigResourceType.GROUP:
            if not name:
                return Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return describe_group(
                known.configs_of(resource.resource_type, name), known.settings, keys
            )
        case _:
            if not name:
                return Refusal(
                    ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
                )
            is_complete = known.settings.tables.describes_client_metrics
            return describe_client_metrics(
                known.configs_of(resource.resource_type, name), keys, is_complete=is_complete
            )


def _refuse_id(node_id: int, name: str, alternative: str) -> Refusal | None:
    if not name:
        return Refusal(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    try:
        is_own = parse_int32(name) == node_id
    except ValueError:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        )
    return (
        None
        if is_own
        else Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node_id}{alternative} but received {name}",
        )
    )


def _row(
    config: DescribedConfig, version: int, *, with_synonyms: bool
) -> DescribeConfigsResourceResult:
    synonyms = [
        DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
        for synonym in (config.synonyms if with_synonyms and version >= SYNONYMS_SINCE else ())
    ]
    row = DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.is_read_only,
        config_source=config.source if version >= SYNONYMS_SINCE else NO_CONFIG_SOURCE,
        is_sensitive=config.is_sensitive,
        synonyms=synonyms,
    )
    if config.kind is not None and version >= TYPES_SINCE:
        row.config_type, row.documentation = config.kind, None
    return row


class ConfigParts(Protocol):
    """What the release decides for configs."""

    @property
    def resource_types(self) -> frozenset[ConfigResourceType]:
        """The types of resources that have configs."""
        ...


class ConfigsBroker(ImageBroker, ConfiguredBroker, Protocol):
    """A broker that describes or alters configs."""

    @property
    def parts(self) -> ConfigParts:
        """The replaceable classes of the node."""
        ...


# --------------------------------------------------------------------------------------------------
# Response rows of AlterConfigs (33) and IncrementalAlterConfigs (44), which have the same
# structure, on brokers and controllers
#
# Source: KIP-133, KIP-339, kafka.server.ConfigAdminManager.reassembleIncrementalResponse.


class OfResource(Protocol):
    """A row of a request or of a response."""

    resource_type: int
    resource_name: str


Row = TypeVar("Row", bound=OfResource)


def row_of(
    make: Callable[..., Row], resource_type: int, resource_name: str, refusal: Refusal | None
) -> Row:
    """Return the result for one resource as a row of type `make`."""
    return make(
        error_code=ErrorCode.NONE if refusal is None else refusal.error,
        error_message=None if refusal is None else refusal.message,
        resource_type=resource_type,
        resource_name=resource_name,
    )


def refused_rows(
    make: Callable[..., Row], asked: Sequence[OfResource], error: ErrorCode
) -> list[Row]:
    """Return the same error for every resource."""
    return [row_of(make, each.resource_type, each.resource_name, Refusal(error)) for each in asked]


def joined_rows(
    make: Callable[..., Row],
    asked: Sequence[OfResource],
    done: Sequence[Row | None],
    reported: Sequence[Row],
) -> list[Row]:
    """Merge local results and those of the controller, in request order; a resource without a
    result gets an unknown error.
    """
    by_resource = {(row.resource_type, row.resource_name): row for row in reported}
    rows = []
    for each, own in zip(asked, done, strict=True):
        forgotten = row_of(
            make, each.resource_type, each.resource_name, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
        )
        rows.append(own or by_resource.get((each.resource_type, each.resource_name), forgotten))
    return rows


# --------------------------------------------------------------------------------------------------
# Loggers in Kafka's config API: kraftsim has no configurable loggers, and answers as Kafka does
# for unknown ones
#
# Source: KIP-412, kafka.server.logger.RuntimeLoggerManager.


def refuse_loggers(node_id: int, resource: AlterConfigsResource) -> Refusal | None:
    """Return why log levels cannot be changed, or None for an empty request."""
    try:
        asked_id = parse_int32(resource.resource_name)
    except ValueError:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Node id must be an integer, but it is: {resource.resource_name}",
        )
    if asked_id != node_id:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected node id. Expected {node_id}, but received {node_id}",
        )  # Kafka's own slip (3.9)
    if not resource.configs:
        return None
    return Refusal(ErrorCode.INVALID_CONFIG, f"Logger {resource.configs[0].name} does not exist!")

"""Requests about configs on a broker.

It describes them from its image. Changes it validates as far as they concern itself, and forwards
the rest to the controller: configs of a broker must fit that broker.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from kraftsim.metadata.config_responses import (
    SLICES,
    ConfigsBroker,
    KnownConfigs,
    describe_configs,
    joined_rows,
    refuse_describe_configs,
    refuse_loggers,
    refused_rows,
    row_of,
)
from kraftsim.metadata.metadata_source import SourceBroker
from kraftsim.metadata.rules_config_releases import ConfigTables
from kraftsim.metadata.rules_configs import ALL_BROKERS
from kraftsim.metadata.rules_described_configs import (
    BrokerSettings,
    count_resources,
    refuse_altered_broker,
    refuse_common,
    refuse_replaced_broker,
    refuse_type,
)
from kraftsim.metadata.topic_settings import broker_settings
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.forwarding import RestForwardingBroker, forward_rest
from kraftsim.server.large_requests import process_entries
from kraftsim.server.serving_broker import ImageBroker
from kraftsim.tiered_storage.tiered_storage import TieredBroker
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k32_describe_configs import DescribeConfigsRequest
from protocol.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from protocol.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from protocol.schema import Message


class DescribingBroker(ConfigsBroker, SourceBroker, Protocol):
    """A broker that describes configs."""

    def settings(self) -> BrokerSettings:
        """Return the effective broker configuration."""
        ...


def handle_describe_configs(broker: DescribingBroker, call: Call) -> Answer | Deferred:
    """DescribeConfigs (32) on a broker: effective configs of topics and of itself, by its metadata.

    Respond once the broker knows the topics' configs: at once, or after a read from ZooKeeper.

    Source: KIP-133, kafka.server.ConfigHelper.
    """
    request = call.body
    assert isinstance(request, DescribeConfigsRequest), "dispatch decodes by API key"
    named = [
        row.resource_name
        for row in request.resources
        if row.resource_type == ConfigResourceType.TOPIC
    ]
    topics = [name for name in dict.fromkeys(named) if broker.image.topic(name) is not None]
    return broker.source.with_configs(topics, lambda: _describe(broker, call, request))


def _describe(broker: DescribingBroker, call: Call, request: DescribeConfigsRequest) -> Answer:
    known = KnownConfigs(
        node_id=broker.config.node_id,
        resource_types=broker.parts.resource_types,
        settings=broker.settings(),
        has_topic=lambda name: broker.image.topic(name) is not None,
        configs_of=broker.image.configs_of,
    )
    return describe_configs(known, call, request)


def _refuse_describe_configs(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, DescribeConfigsRequest), "dispatch decodes by API key"
    return refuse_describe_configs(call.body, error)


DESCRIBE_CONFIGS = Handler(
    key=ApiKey.DESCRIBE_CONFIGS,
    handle=handle_describe_configs,
    refuse=_refuse_describe_configs,
    slices=SLICES,
)


NOT_REPLACED = frozenset((ConfigResourceType.BROKER_LOGGER,))
"""The configs of loggers cannot be replaced as a whole."""


class ReplacingBroker(ConfigsBroker, RestForwardingBroker, Protocol):
    """A broker that replaces its own configs, and forwards the rest."""

    @property
    def config_tables(self) -> ConfigTables:
        """The configuration definitions of the emulated release."""
        ...


def handle_alter_configs(broker: ReplacingBroker, call: Call) -> Answer | Deferred:
    """AlterConfigs (33) on a broker: invalid resources are rejected here, the rest is forwarded,
    and the responses are merged.

    Return a result for each resource, in the order of the request.

    Source: KIP-133, KIP-590, kafka.server.KafkaApis.handleAlterConfigsRequest.
    """
    request = call.body
    assert isinstance(request, AlterConfigsRequest), "dispatch decodes by API key"
    times = count_resources(request.resources)

    def process_locally(resource: AlterConfigsResource) -> AlterConfigsResourceResponse | None:
        return _local_result_alter_configs(broker, times, resource)

    def forward(done: Sequence[AlterConfigsResourceResponse | None]) -> Answer | Deferred:
        left = [
            resource for resource, row in zip(request.resources, done, strict=True) if row is None
        ]

        def join(answer: Message | None) -> Answer:
            assert answer is None or isinstance(answer, AlterConfigsResponse), (
                "the controller's response to AlterConfigs"
            )
            rows = [] if answer is None else answer.responses
            return AlterConfigsResponse(
                responses=joined_rows(AlterConfigsResourceResponse, request.resources, done, rows)
            )

        rest = (
            AlterConfigsRequest(resources=left, validate_only=request.validate_only)
            if left
            else None
        )
        return forward_rest(broker, call, rest, join, _refuse_alter_configs)

    return process_entries(broker.shell, call, request.resources, process_locally, forward)


def _local_result_alter_configs(
    broker: ReplacingBroker, times: Mapping[tuple[int, str], int], resource: AlterConfigsResource
) -> AlterConfigsResourceResponse | None:
    """Return the result of a resource that is not forwarded to the controller, or None."""
    refusal = refuse_common(times, resource) or refuse_type(
        resource, broker.parts.resource_types - NOT_REPLACED
    )
    if refusal is None and resource.resource_type == ConfigResourceType.BROKER:
        refusal = refuse_replaced_broker(
            broker.config_tables,
            broker.config.node_id,
            resource,
            broker_settings(broker.config, broker.image).value,
        )
    return (
        None
        if refusal is None
        else row_of(
            AlterConfigsResourceResponse, resource.resource_type, resource.resource_name, refusal
        )
    )


def _refuse_alter_configs(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, AlterConfigsRequest), "dispatch decodes by API key"
    return AlterConfigsResponse(
        responses=refused_rows(AlterConfigsResourceResponse, call.body.resources, error)
    )


ALTER_CONFIGS = Handler(
    key=ApiKey.ALTER_CONFIGS, handle=handle_alter_configs, refuse=_refuse_alter_configs
)


REMOTE_STORAGE_ENABLE = "remote.storage.enable"


class AlteringBroker(ConfigsBroker, RestForwardingBroker, TieredBroker, Protocol):
    """A broker that alters its own configs, and forwards the rest."""

    @property
    def config_tables(self) -> ConfigTables:
        """The configuration definitions of the emulated release."""
        ...


def handle_incremental_alter_configs(broker: AlteringBroker, call: Call) -> Answer | Deferred:
    """IncrementalAlterConfigs (44) on a broker: invalid resources are rejected here, the rest is
    forwarded, and the responses are merged.

    Return a result for each resource, in the order of the request.

    Source: KIP-339, KIP-590, kafka.server.KafkaApis.handleIncrementalAlterConfigsRequest.
    """
    request = call.body
    assert isinstance(request, IncrementalAlterConfigsRequest), "dispatch decodes by API key"
    times = count_resources(request.resources)

    def process_locally(resource: IncrementalResource) -> IncrementalResourceResponse | None:
        return _local_result_incremental_alter_configs(broker, times, resource)

    def forward(done: Sequence[IncrementalResourceResponse | None]) -> Answer | Deferred:
        left = [
            resource for resource, row in zip(request.resources, done, strict=True) if row is None
        ]

        def join(answer: Message | None) -> Answer:
            assert answer is None or isinstance(answer, IncrementalAlterConfigsResponse), (
                "the controller's response to IncrementalAlterConfigs"
            )
            rows = [] if answer is None else answer.responses
            return IncrementalAlterConfigsResponse(
                responses=joined_rows(IncrementalResourceResponse, request.resources, done, rows)
            )

        rest = (
            IncrementalAlterConfigsRequest(resources=left, validate_only=request.validate_only)
            if left
            else None
        )
        return forward_rest(broker, call, rest, join, _refuse_incremental_alter_configs)

    return process_entries(broker.shell, call, request.resources, process_locally, forward)


def _local_result_incremental_alter_configs(
    broker: AlteringBroker, times: Mapping[tuple[int, str], int], resource: IncrementalResource
) -> IncrementalResourceResponse | None:
    """Return the result of a resource that is not forwarded to the controller, or None."""
    kind, name = resource.resource_type, resource.resource_name
    refusal = refuse_common(times, resource) or refuse_type(resource, broker.parts.resource_types)
    if refusal is None and kind == ConfigResourceType.BROKER_LOGGER:
        return row_of(
            IncrementalResourceResponse,
            kind,
            name,
            refuse_loggers(broker.config.node_id, resource),
        )
    if refusal is None and kind == ConfigResourceType.BROKER:
        present = broker.config_tables.applicable(
            broker.image.configs_of(kind, name), is_for_all=not name
        )
        refusal = refuse_altered_broker(
            broker.config_tables,
            broker.config.node_id,
            resource,
            present,
            broker_settings(broker.config, broker.image).value,
        )
    begins_tiering = any(
        each.name == REMOTE_STORAGE_ENABLE and (each.value or "").lower() == "true"
        for each in resource.configs
    )
    if (
        refusal is None
        and kind == ConfigResourceType.TOPIC
        and begins_tiering
        and broker.tiered is not None
    ):
        refusal = broker.tiered.refuse_topic(name)
    return None if refusal is None else row_of(IncrementalResourceResponse, kind, name, refusal)


def _refuse_incremental_alter_configs(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, IncrementalAlterConfigsRequest), "dispatch decodes by API key"
    return IncrementalAlterConfigsResponse(
        responses=refused_rows(IncrementalResourceResponse, call.body.resources, error)
    )


INCREMENTAL_ALTER_CONFIGS = Handler(
    key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
    handle=handle_incremental_alter_configs,
    refuse=_refuse_incremental_alter_configs,
)


LISTED = (
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.BROKER,
    ConfigResourceType.TOPIC,
)
"""In the order in which they are returned."""


def handle_list_config_resources(broker: ImageBroker, call: Call) -> Answer:
    """ListConfigResources (74): the resources that have configs; up to 3.9 only client metrics
    subscriptions, which exist by their config.

    Respond at once.

    Source: KIP-1000, KIP-1142, kafka.server.KafkaApis.handleListClientMetricsResources.
    """
    assert isinstance(call.body, ListConfigResourcesRequest), "dispatch decodes by API key"
    asked = (
        (ConfigResourceType.CLIENT_METRICS,)
        if call.api_version == 0
        else tuple(call.body.resource_types) or LISTED
    )
    if any(kind not in LISTED for kind in asked):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = [
        ConfigResource(resource_name=name, resource_type=kind)
        for kind in LISTED
        if kind in asked
        for name in _names(broker, kind)
    ]
    return ListConfigResourcesResponse(config_resources=found)


def _names(broker: ImageBroker, kind: ConfigResourceType) -> list[str]:
    match kind:
        case ConfigResourceType.TOPIC:
            return [topic.name for topic in broker.image.topics()]
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            return [str(registered.broker_id) for registered in broker.image.brokers()]
        case _:
            return [
                name
                for (resource_type, name), _ in broker.image.configs()
                if resource_type == kind and name != ALL_BROKERS
            ]


def _refuse_list_config_resources(call: Call, error: ErrorCode) -> Answer:
    return ListConfigResourcesResponse(error_code=error)


LIST_CONFIG_RESOURCES = Handler(
    key=ApiKey.LIST_CONFIG_RESOURCES,
    handle=handle_list_config_resources,
    refuse=_refuse_list_config_resources,
)


HANDLERS = (
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
)

"""AlterConfigs (33) on a broker: invalid resources are rejected here, the rest is forwarded, and
the responses are merged.

Source: KIP-133, KIP-590, kafka.server.KafkaApis.handleAlterConfigsRequest.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from kraftsim.metadata.altered_configs import joined_rows, refused_rows, row_of
from kraftsim.metadata.describe_configs import ConfigsBroker
from kraftsim.metadata.rules_config_releases import ConfigTables
from kraftsim.metadata.rules_described_configs import (
    count_resources,
    refuse_common,
    refuse_replaced_broker,
    refuse_type,
)
from kraftsim.metadata.topic_settings import broker_settings
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.large_requests import process_entries
from kraftsim.server.partly_forwarded import RestForwardingBroker, forward_rest
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from protocol.schema import Message

NOT_REPLACED = frozenset((ConfigResourceType.BROKER_LOGGER,))
"""The configs of loggers cannot be replaced as a whole."""


class ReplacingBroker(ConfigsBroker, RestForwardingBroker, Protocol):
    """A broker that replaces its own configs, and forwards the rest."""

    @property
    def config_tables(self) -> ConfigTables:
        """The configuration definitions of the emulated release."""
        ...


def handle(broker: ReplacingBroker, call: Call) -> Answer | Deferred:
    """Return a result for each resource, in the order of the request."""
    request = call.body
    assert isinstance(request, AlterConfigsRequest), "dispatch decodes by API key"
    times = count_resources(request.resources)

    def process_locally(resource: AlterConfigsResource) -> AlterConfigsResourceResponse | None:
        return _local_result(broker, times, resource)

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
        return forward_rest(broker, call, rest, join, _refuse)

    return process_entries(broker.shell, call, request.resources, process_locally, forward)


def _local_result(
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


def _refuse(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, AlterConfigsRequest), "dispatch decodes by API key"
    return AlterConfigsResponse(
        responses=refused_rows(AlterConfigsResourceResponse, call.body.resources, error)
    )


HANDLER = Handler(key=ApiKey.ALTER_CONFIGS, handle=handle, refuse=_refuse)

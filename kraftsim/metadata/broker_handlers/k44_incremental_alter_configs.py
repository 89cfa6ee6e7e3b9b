"""IncrementalAlterConfigs (44) on a broker: invalid resources are rejected here, the rest is
forwarded, and the responses are merged.

Source: KIP-339, KIP-590, kafka.server.KafkaApis.handleIncrementalAlterConfigsRequest.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from kraftsim.metadata.altered_configs import joined_rows, refuse_loggers, refused_rows, row_of
from kraftsim.metadata.describe_configs import ConfigsBroker
from kraftsim.metadata.rules_config_releases import ConfigTables
from kraftsim.metadata.rules_described_configs import (
    count_resources,
    refuse_altered_broker,
    refuse_common,
    refuse_type,
)
from kraftsim.metadata.topic_settings import broker_settings
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.large_requests import process_entries
from kraftsim.server.partly_forwarded import RestForwardingBroker, forward_rest
from kraftsim.tiered_storage.tiered_storage import TieredBroker
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.schema import Message

REMOTE_STORAGE_ENABLE = "remote.storage.enable"


class AlteringBroker(ConfigsBroker, RestForwardingBroker, TieredBroker, Protocol):
    """A broker that alters its own configs, and forwards the rest."""

    @property
    def config_tables(self) -> ConfigTables:
        """The configuration definitions of the emulated release."""
        ...


def handle(broker: AlteringBroker, call: Call) -> Answer | Deferred:
    """Return a result for each resource, in the order of the request."""
    request = call.body
    assert isinstance(request, IncrementalAlterConfigsRequest), "dispatch decodes by API key"
    times = count_resources(request.resources)

    def process_locally(resource: AlterConfigsResource) -> AlterConfigsResourceResponse | None:
        return _local_result(broker, times, resource)

    def forward(done: Sequence[AlterConfigsResourceResponse | None]) -> Answer | Deferred:
        left = [
            resource for resource, row in zip(request.resources, done, strict=True) if row is None
        ]

        def join(answer: Message | None) -> Answer:
            assert answer is None or isinstance(answer, IncrementalAlterConfigsResponse), (
                "the controller's response to IncrementalAlterConfigs"
            )
            rows = [] if answer is None else answer.responses
            return IncrementalAlterConfigsResponse(
                responses=joined_rows(AlterConfigsResourceResponse, request.resources, done, rows)
            )

        rest = (
            IncrementalAlterConfigsRequest(resources=left, validate_only=request.validate_only)
            if left
            else None
        )
        return forward_rest(broker, call, rest, join, _refuse)

    return process_entries(broker.shell, call, request.resources, process_locally, forward)


def _local_result(
    broker: AlteringBroker, times: Mapping[tuple[int, str], int], resource: AlterConfigsResource
) -> AlterConfigsResourceResponse | None:
    """Return the result of a resource that is not forwarded to the controller, or None."""
    kind, name = resource.resource_type, resource.resource_name
    refusal = refuse_common(times, resource) or refuse_type(resource, broker.parts.resource_types)
    if refusal is None and kind == ConfigResourceType.BROKER_LOGGER:
        return row_of(
            AlterConfigsResourceResponse,
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
    return None if refusal is None else row_of(AlterConfigsResourceResponse, kind, name, refusal)


def _refuse(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, IncrementalAlterConfigsRequest), "dispatch decodes by API key"
    return IncrementalAlterConfigsResponse(
        responses=refused_rows(AlterConfigsResourceResponse, call.body.resources, error)
    )


HANDLER = Handler(key=ApiKey.INCREMENTAL_ALTER_CONFIGS, handle=handle, refuse=_refuse)

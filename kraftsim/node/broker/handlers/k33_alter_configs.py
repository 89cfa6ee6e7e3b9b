"""AlterConfigs (33) on a broker: what it knows to be wrong is refused here, the rest is handed on; one answer for both.

Source: KIP-133, KIP-590, kafka.server.KafkaApis.handleAlterConfigsRequest.
"""

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.preprocess_configs import refuse_common, refuse_replaced_broker, refuse_type
from kraftsim.node.broker.broker import Broker
from kraftsim.node.broker.partly_forwarded import forward_rest
from kraftsim.node.call import Answer, Call, Deferred, Handler
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
"""Loggers cannot be set as a whole."""


def handle(broker: Broker, call: Call) -> Answer | Deferred:
    """Answer per resource, in the order in which they were asked for."""
    request = call.body
    assert isinstance(request, AlterConfigsRequest), "dispatch decodes by API key"
    done: list[AlterConfigsResourceResponse | None] = []
    for resource in request.resources:
        refusal = refuse_common(request.resources, resource) or refuse_type(resource, broker.parts.resource_types - NOT_REPLACED)
        if refusal is None and resource.resource_type == ConfigResourceType.BROKER:
            refusal = refuse_replaced_broker(broker.config.node_id, resource)
        done.append(None if refusal is None else _result(resource, refusal))
    left = [resource for resource, answer in zip(request.resources, done, strict=True) if answer is None]
    rest = AlterConfigsRequest(resources=left, validate_only=request.validate_only)
    return forward_rest(broker, call, rest if left else None, lambda answer: _joined(request, done, answer), _refuse)


def _joined(request: AlterConfigsRequest, done: list[AlterConfigsResourceResponse | None], answer: Message | None) -> Answer:
    """Return both parts in the order of the request; what the controller forgot is an unknown error."""
    assert answer is None or isinstance(answer, AlterConfigsResponse), "the controller answers what it is asked"
    told = {(row.resource_type, row.resource_name): row for row in ([] if answer is None else answer.responses)}
    rows = []
    for resource, own in zip(request.resources, done, strict=True):
        forgotten = _result(resource, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR))
        rows.append(own or told.get((resource.resource_type, resource.resource_name), forgotten))
    return AlterConfigsResponse(responses=rows)


def _result(resource: AlterConfigsResource, refusal: Refusal | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if refusal is None else refusal.error,
        error_message=None if refusal is None else refusal.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    request = call.body
    assert isinstance(request, AlterConfigsRequest), "dispatch decodes by API key"
    return AlterConfigsResponse(responses=[_result(resource, Refusal(error)) for resource in request.resources])


HANDLER = Handler(key=ApiKey.ALTER_CONFIGS, handle=handle, refuse=_refuse)

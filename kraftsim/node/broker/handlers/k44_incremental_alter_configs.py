"""IncrementalAlterConfigs (44) on a broker: what it knows to be wrong is refused here, the rest is handed on; one answer for both.

Source: KIP-339, KIP-590, kafka.server.KafkaApis.handleIncrementalAlterConfigsRequest.
"""

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.broker_configs import applicable
from kraftsim.core.metadata.preprocess_configs import refuse_altered_broker, refuse_common, refuse_type
from kraftsim.node.broker.broker import Broker
from kraftsim.node.broker.partly_forwarded import forward_rest
from kraftsim.node.call import Answer, Call, Deferred, Handler
from kraftsim.node.loggers import refuse_loggers
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


def handle(broker: Broker, call: Call) -> Answer | Deferred:
    """Answer per resource, in the order in which they were asked for."""
    request = call.body
    assert isinstance(request, IncrementalAlterConfigsRequest), "dispatch decodes by API key"
    done: list[AlterConfigsResourceResponse | None] = []
    for resource in request.resources:
        refusal = refuse_common(request.resources, resource) or refuse_type(resource, broker.parts.resource_types)
        if refusal is None and resource.resource_type == ConfigResourceType.BROKER_LOGGER:
            done.append(_result(resource, refuse_loggers(broker.config.node_id, resource)))
            continue
        if refusal is None and resource.resource_type == ConfigResourceType.BROKER:
            present = broker.image.configs_of(resource.resource_type, resource.resource_name)
            refusal = refuse_altered_broker(broker.config.node_id, resource, applicable(present, is_for_all=not resource.resource_name))
        done.append(None if refusal is None else _result(resource, refusal))
    left = [resource for resource, answer in zip(request.resources, done, strict=True) if answer is None]
    rest = IncrementalAlterConfigsRequest(resources=left, validate_only=request.validate_only)
    return forward_rest(broker, call, rest if left else None, lambda answer: _joined(request, done, answer), _refuse)


def _joined(request: IncrementalAlterConfigsRequest, done: list[AlterConfigsResourceResponse | None], answer: Message | None) -> Answer:
    """Return both parts in the order of the request; what the controller forgot is an unknown error."""
    assert answer is None or isinstance(answer, IncrementalAlterConfigsResponse), "the controller answers what it is asked"
    told = {(row.resource_type, row.resource_name): row for row in ([] if answer is None else answer.responses)}
    rows = []
    for resource, own in zip(request.resources, done, strict=True):
        forgotten = _result(resource, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR))
        rows.append(own or told.get((resource.resource_type, resource.resource_name), forgotten))
    return IncrementalAlterConfigsResponse(responses=rows)


def _result(resource: AlterConfigsResource, refusal: Refusal | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if refusal is None else refusal.error,
        error_message=None if refusal is None else refusal.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    request = call.body
    assert isinstance(request, IncrementalAlterConfigsRequest), "dispatch decodes by API key"
    return IncrementalAlterConfigsResponse(responses=[_result(resource, Refusal(error)) for resource in request.resources])


HANDLER = Handler(key=ApiKey.INCREMENTAL_ALTER_CONFIGS, handle=handle, refuse=_refuse)

"""IncrementalAlterConfigs (44): changes individual configs of topics, brokers and client metrics;
answered once that is committed.

A controller has no configurable loggers.   Source: KIP-339,
kafka.server.ControllerApis.handleIncrementalAlterConfigs.
"""

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.altered_configs import refuse_loggers, refused_rows, row_of
from kraftsim.metadata.controller_deciding import decide
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.metadata.rules_configs import Results, alter_configs_steps
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Answer per resource, once the valid changes are committed."""
    request = call.body
    assert isinstance(request, IncrementalAlterConfigsRequest), "dispatch decodes by API key"
    loggers = [
        each for each in request.resources if each.resource_type == ConfigResourceType.BROKER_LOGGER
    ]
    others = [
        each for each in request.resources if each.resource_type != ConfigResourceType.BROKER_LOGGER
    ]
    asked = IncrementalAlterConfigsRequest(resources=others, validate_only=request.validate_only)
    refused = [
        row_of(
            AlterConfigsResourceResponse,
            each.resource_type,
            each.resource_name,
            refuse_loggers(controller.config.node_id, each),
        )
        for each in loggers
    ]

    def carry_out(decision: Decision[Results] | Refusal) -> Answer | Deferred:
        if isinstance(decision, Refusal):
            return _refuse(call, decision.error)
        responses = [
            *(
                row_of(AlterConfigsResourceResponse, *resource, refusal)
                for resource, refusal in decision.result
            ),
            *refused,
        ]
        return controller.metadata_writer.commit(
            decision, lambda offsets: IncrementalAlterConfigsResponse(responses=responses)
        )

    return decide(
        controller,
        call,
        lambda: alter_configs_steps(controller.metadata_writer.state.config_view(), asked),
        carry_out,
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, IncrementalAlterConfigsRequest), "dispatch decodes by API key"
    return IncrementalAlterConfigsResponse(
        responses=refused_rows(AlterConfigsResourceResponse, call.body.resources, error)
    )


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.INCREMENTAL_ALTER_CONFIGS, handle=handle, refuse=_refuse
)

"""AlterConfigs (33): replaces the configs of resources by those named; answered once that is
committed.

Source: KIP-133, kafka.server.ControllerApis.handleLegacyAlterConfigs.
"""

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.altered_configs import refused_rows, row_of
from kraftsim.metadata.controller_deciding import decide
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.metadata.rules_configs import Results, replace_configs_steps
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Answer per resource, once the valid changes are committed."""
    request = call.body
    assert isinstance(request, AlterConfigsRequest), "dispatch decodes by API key"

    def carry_out(decision: Decision[Results] | Refusal) -> Answer | Deferred:
        if isinstance(decision, Refusal):
            return _refuse(call, decision.error)
        responses = [
            row_of(AlterConfigsResourceResponse, *resource, refusal)
            for resource, refusal in decision.result
        ]
        return controller.metadata_writer.commit(
            decision, lambda offsets: AlterConfigsResponse(responses=responses)
        )

    return decide(
        controller,
        call,
        lambda: replace_configs_steps(controller.metadata_writer.state.config_view(), request),
        carry_out,
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, AlterConfigsRequest), "dispatch decodes by API key"
    return AlterConfigsResponse(
        responses=refused_rows(AlterConfigsResourceResponse, call.body.resources, error)
    )


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.ALTER_CONFIGS, handle=handle, refuse=_refuse
)

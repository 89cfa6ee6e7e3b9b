"""Requests about configs on the controller: it describes them from its state, and alters them with
records.
"""

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.config_responses import (
    SLICES,
    KnownConfigs,
    describe_configs,
    refuse_describe_configs,
    refuse_loggers,
    refused_rows,
    row_of,
)
from kraftsim.metadata.deciding_controller import DecidingController, decide
from kraftsim.metadata.rules_configs import Results, alter_configs_steps, replace_configs_steps
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k32_describe_configs import DescribeConfigsRequest
from protocol.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from protocol.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle_describe_configs(controller: DecidingController, call: Call) -> Answer:
    """DescribeConfigs (32) on a controller: effective configs of topics and of itself. Source:
    kafka.server.ControllerApis.handleDescribeConfigsRequest.

    Answer immediately.
    """
    assert isinstance(call.body, DescribeConfigsRequest), "dispatch decodes by API key"
    state = controller.metadata_writer.state
    known = KnownConfigs(
        node_id=controller.config.node_id,
        resource_types=state.node.resource_types,
        settings=state.configs.broker_settings(),
        has_topic=lambda name: state.replication.topic_id(name) is not None,
        configs_of=state.configs.configs_of,
    )
    return describe_configs(known, call, call.body)


def _refuse_describe_configs(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, DescribeConfigsRequest), "dispatch decodes by API key"
    return refuse_describe_configs(call.body, error)


DESCRIBE_CONFIGS: Handler[DecidingController] = Handler(
    key=ApiKey.DESCRIBE_CONFIGS,
    handle=handle_describe_configs,
    refuse=_refuse_describe_configs,
    slices=SLICES,
)


def handle_alter_configs(controller: DecidingController, call: Call) -> Answer | Deferred:
    """AlterConfigs (33): replaces the configs of resources by those named; answered once that is
    committed.

    Answer per resource, once the valid changes are committed.

    Source: KIP-133, kafka.server.ControllerApis.handleLegacyAlterConfigs.
    """
    request = call.body
    assert isinstance(request, AlterConfigsRequest), "dispatch decodes by API key"

    def carry_out(decision: Decision[Results] | Refusal) -> Answer | Deferred:
        if isinstance(decision, Refusal):
            return _refuse_alter_configs(call, decision.error)
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


def _refuse_alter_configs(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, AlterConfigsRequest), "dispatch decodes by API key"
    return AlterConfigsResponse(
        responses=refused_rows(AlterConfigsResourceResponse, call.body.resources, error)
    )


ALTER_CONFIGS: Handler[DecidingController] = Handler(
    key=ApiKey.ALTER_CONFIGS, handle=handle_alter_configs, refuse=_refuse_alter_configs
)


def handle_incremental_alter_configs(
    controller: DecidingController, call: Call
) -> Answer | Deferred:
    """IncrementalAlterConfigs (44): changes individual configs of topics, brokers, client metrics
    and groups; answered once that is committed.

    A controller has no configurable loggers. Source: KIP-339,
    kafka.server.ControllerApis.handleIncrementalAlterConfigs.

    Answer per resource, once the valid changes are committed.
    """
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
            IncrementalResourceResponse,
            each.resource_type,
            each.resource_name,
            refuse_loggers(controller.config.node_id, each),
        )
        for each in loggers
    ]

    def carry_out(decision: Decision[Results] | Refusal) -> Answer | Deferred:
        if isinstance(decision, Refusal):
            return _refuse_incremental_alter_configs(call, decision.error)
        responses = [
            *(
                row_of(IncrementalResourceResponse, *resource, refusal)
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


def _refuse_incremental_alter_configs(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, IncrementalAlterConfigsRequest), "dispatch decodes by API key"
    return IncrementalAlterConfigsResponse(
        responses=refused_rows(IncrementalResourceResponse, call.body.resources, error)
    )


INCREMENTAL_ALTER_CONFIGS: Handler[DecidingController] = Handler(
    key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
    handle=handle_incremental_alter_configs,
    refuse=_refuse_incremental_alter_configs,
)


HANDLERS = (
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)

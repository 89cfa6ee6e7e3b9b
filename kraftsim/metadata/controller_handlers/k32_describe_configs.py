"""DescribeConfigs (32) on a controller: effective configs of topics and of itself.   Source:
kafka.server.ControllerApis.handleDescribeConfigsRequest."""

from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.metadata.describe_configs import (
    SLICES,
    KnownConfigs,
    describe_configs,
    refuse_describe_configs,
)
from kraftsim.server.call import Answer, Call, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k32_describe_configs import DescribeConfigsRequest


def handle(controller: DecidingController, call: Call) -> Answer:
    """Answer immediately."""
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


def _refuse(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, DescribeConfigsRequest), "dispatch decodes by API key"
    return refuse_describe_configs(call.body, error)


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.DESCRIBE_CONFIGS, handle=handle, refuse=_refuse, slices=SLICES
)

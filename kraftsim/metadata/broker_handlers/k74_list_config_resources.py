"""ListConfigResources (74): the resources that have configs; up to 3.9 only client metrics
subscriptions, which exist by their config.

Source: KIP-1000, KIP-1142, kafka.server.KafkaApis.handleListClientMetricsResources.
"""

from kraftsim.metadata.rules_configs import ALL_BROKERS
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.serving_broker import ImageBroker
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

LISTED = (
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.BROKER,
    ConfigResourceType.TOPIC,
)
"""In the order in which they are returned."""


def handle(broker: ImageBroker, call: Call) -> Answer:
    """Respond at once."""
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


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return ListConfigResourcesResponse(error_code=error)


HANDLER = Handler(key=ApiKey.LIST_CONFIG_RESOURCES, handle=handle, refuse=_refuse)

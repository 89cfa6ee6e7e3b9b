"""DescribeConfigs (32) on a broker: effective configs of topics and of itself, by its metadata.

Source: KIP-133, kafka.server.ConfigHelper.
"""

from typing import Protocol

from kraftsim.metadata.describe_configs import (
    SLICES,
    ConfigsBroker,
    KnownConfigs,
    describe_configs,
    refuse_describe_configs,
)
from kraftsim.metadata.metadata_source import SourceBroker
from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k32_describe_configs import DescribeConfigsRequest


class DescribingBroker(ConfigsBroker, SourceBroker, Protocol):
    """A broker that describes configs."""

    def settings(self) -> BrokerSettings:
        """Return the effective broker configuration."""
        ...


def handle(broker: DescribingBroker, call: Call) -> Answer | Deferred:
    """Respond once the broker knows the topics' configs: at once, or after a read from
    ZooKeeper.
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


def _refuse(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, DescribeConfigsRequest), "dispatch decodes by API key"
    return refuse_describe_configs(call.body, error)


HANDLER = Handler(key=ApiKey.DESCRIBE_CONFIGS, handle=handle, refuse=_refuse, slices=SLICES)

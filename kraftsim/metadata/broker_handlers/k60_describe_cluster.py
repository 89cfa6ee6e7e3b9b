"""DescribeCluster (60) on a broker: the alive brokers; the reported controller is a random one of
them, which forwards requests.

Source: KIP-700, kafka.server.KafkaApis.handleDescribeCluster.
"""

from typing import Protocol

from kraftsim.metadata.describe_cluster import describe_cluster, refuse_endpoint
from kraftsim.metadata.metadata_source import SourceBroker
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.serving_broker import ConfiguredBroker, ImageBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k60_describe_cluster import (
    BROKERS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

FENCED_SINCE = 2
"""The first version that can include fenced brokers."""


class ClusterBroker(ImageBroker, ConfiguredBroker, SourceBroker, Protocol):
    """A broker that describes the cluster."""


def handle(broker: ClusterBroker, call: Call) -> Answer:
    """Respond at once, from the broker's metadata."""
    assert isinstance(call.body, DescribeClusterRequest), "dispatch decodes by API key"
    refused = refuse_endpoint(call, BROKERS)
    if refused is not None:
        return refused
    alive = [
        registered.broker_id
        for registered in broker.image.alive_brokers()
        if registered.listener(call.listener) is not None
    ]
    nodes = []
    for registered in broker.image.brokers():
        listener = registered.listener(call.listener)
        if listener is not None and (not registered.fenced or call.body.include_fenced_brokers):
            is_fenced = registered.fenced and call.api_version >= FENCED_SINCE
            nodes.append(
                DescribeClusterBroker(
                    broker_id=registered.broker_id,
                    host=listener.host,
                    port=listener.port,
                    rack=registered.rack,
                    is_fenced=is_fenced,
                )
            )
    controller_id = broker.source.reported_controller(alive)
    return describe_cluster(
        call, BROKERS, cluster_id=broker.config.cluster_id, nodes=nodes, controller_id=controller_id
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return DescribeClusterResponse(error_code=error)


HANDLER = Handler(key=ApiKey.DESCRIBE_CLUSTER, handle=handle, refuse=_refuse)

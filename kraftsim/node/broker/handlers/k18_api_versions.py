"""ApiVersions: what this broker offers, which features it knows, and which levels the cluster has finalized.

Source: KIP-35, KIP-584; a broker's features epoch is the last metadata offset it has applied.
"""

from kraftsim.node.broker.broker import Broker
from kraftsim.node.call import Answer, Call, Handler
from protocol.api_keys import ApiKey


def handle(broker: Broker, call: Call) -> Answer:
    """Answer 0, INVALID_REQUEST for a software name that is none, or REBOOTSTRAP_REQUIRED to a client that means another node (since 4.4)."""
    return broker.offer.answer(call, broker.features.finalized(), (broker.config.cluster_id, broker.config.node_id))


HANDLER = Handler(key=ApiKey.API_VERSIONS, handle=handle)

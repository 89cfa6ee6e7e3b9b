"""ApiVersions: the supported APIs, the supported features, and the finalized feature levels of the
cluster.

Source: KIP-35, KIP-584; a broker's features epoch is the last metadata offset it has applied.
"""

from kraftsim.server.broker import Broker
from kraftsim.server.call import Answer, Call, Handler
from protocol.api_keys import ApiKey


def handle(broker: Broker, call: Call) -> Answer:
    """Return NONE, INVALID_REQUEST for an invalid client software name, or REBOOTSTRAP_REQUIRED for
    a client of another node (since 4.4).
    """
    return broker.offer.answer(
        call, broker.features.finalized(), (broker.config.cluster_id, broker.config.node_id)
    )


HANDLER = Handler(key=ApiKey.API_VERSIONS, handle=handle)

"""ApiVersions: what this broker offers, which features it knows, and which levels the cluster has finalized.

Source: KIP-35, KIP-584; a broker's features epoch is the last metadata offset it has applied.
"""

from kraftsim.node.broker.broker import Broker
from kraftsim.node.call import Answer, Call, Handler
from protocol.api_keys import ApiKey


def handle(broker: Broker, call: Call) -> Answer:
    """Answer 0, or INVALID_REQUEST for a software name that is none."""
    return broker.offer.answer(call, broker.features.finalized())


HANDLER = Handler(key=ApiKey.API_VERSIONS, handle=handle)

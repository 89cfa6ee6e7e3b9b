"""DescribeDelegationToken (41): clients are not authenticated, so none has a token.   Source: KIP-48, allowTokenRequests."""

from kraftsim.node.broker.broker import Broker
from kraftsim.node.call import Answer, Call, Handler
from kraftsim.node.without_security import describe_delegation_token
from protocol.api_keys import ApiKey


def handle(broker: Broker, call: Call) -> Answer:
    """Say so."""
    return describe_delegation_token(call)


HANDLER = Handler(key=ApiKey.DESCRIBE_DELEGATION_TOKEN, handle=handle, refuse=describe_delegation_token)

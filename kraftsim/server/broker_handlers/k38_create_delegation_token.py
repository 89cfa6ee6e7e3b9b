"""CreateDelegationToken (38): rejected, because delegation tokens are not supported.

Source: KIP-48, allowTokenRequests.
"""

from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.without_security import create_delegation_token
from protocol.api_keys import ApiKey


def handle(broker: object, call: Call) -> Answer:
    """Return the error."""
    return create_delegation_token(call)


HANDLER = Handler(key=ApiKey.CREATE_DELEGATION_TOKEN, handle=handle, refuse=create_delegation_token)

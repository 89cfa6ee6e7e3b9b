"""ExpireDelegationToken (40): rejected, because delegation tokens are not supported.

Source: KIP-48, allowTokenRequests.
"""

from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.without_security import expire_delegation_token
from protocol.api_keys import ApiKey


def handle(broker: object, call: Call) -> Answer:
    """Return the error."""
    return expire_delegation_token(call)


HANDLER = Handler(key=ApiKey.EXPIRE_DELEGATION_TOKEN, handle=handle, refuse=expire_delegation_token)

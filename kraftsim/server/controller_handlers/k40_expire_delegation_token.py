"""ExpireDelegationToken (40): refused, because clients are not authenticated.

Source: KIP-48, allowTokenRequests.
"""

from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.without_security import expire_delegation_token
from protocol.api_keys import ApiKey


def handle(controller: object, call: Call) -> Answer:
    """Refuse the request."""
    return expire_delegation_token(call)


HANDLER: Handler[object] = Handler(
    key=ApiKey.EXPIRE_DELEGATION_TOKEN, handle=handle, refuse=expire_delegation_token
)

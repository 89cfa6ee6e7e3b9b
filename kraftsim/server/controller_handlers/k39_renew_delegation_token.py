"""RenewDelegationToken (39): refused, because clients are not authenticated.

Source: KIP-48, allowTokenRequests.
"""

from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.without_security import renew_delegation_token
from protocol.api_keys import ApiKey


def handle(controller: object, call: Call) -> Answer:
    """Refuse the request."""
    return renew_delegation_token(call)


HANDLER: Handler[object] = Handler(
    key=ApiKey.RENEW_DELEGATION_TOKEN, handle=handle, refuse=renew_delegation_token
)

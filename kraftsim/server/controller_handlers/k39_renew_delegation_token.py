"""RenewDelegationToken (39): refused, because clients are not authenticated.

Source: KIP-48, allowTokenRequests.
"""

from typing import TYPE_CHECKING

from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.without_security import renew_delegation_token
from protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kraftsim.server.controller import Controller


def handle(controller: "Controller", call: Call) -> Answer:
    """Refuse the request."""
    return renew_delegation_token(call)


HANDLER: "Handler[Controller]" = Handler(
    key=ApiKey.RENEW_DELEGATION_TOKEN, handle=handle, refuse=renew_delegation_token
)

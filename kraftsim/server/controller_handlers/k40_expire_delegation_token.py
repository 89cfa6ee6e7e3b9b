"""ExpireDelegationToken (40): refused, because clients are not authenticated.

Source: KIP-48, allowTokenRequests.
"""

from typing import TYPE_CHECKING

from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.without_security import expire_delegation_token
from protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kraftsim.server.controller import Controller


def handle(controller: "Controller", call: Call) -> Answer:
    """Refuse the request."""
    return expire_delegation_token(call)


HANDLER: "Handler[Controller]" = Handler(
    key=ApiKey.EXPIRE_DELEGATION_TOKEN, handle=handle, refuse=expire_delegation_token
)

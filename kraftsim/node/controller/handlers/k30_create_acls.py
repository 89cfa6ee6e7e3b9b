"""CreateAcls (30): there is no authorizer that could take rules.   Source: KIP-140, kafka.server.AclApis."""

from typing import TYPE_CHECKING

from kraftsim.node.call import Answer, Call, Handler
from kraftsim.node.without_security import create_acls
from protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kraftsim.node.controller.controller import Controller


def handle(controller: "Controller", call: Call) -> Answer:
    """Say so."""
    return create_acls(call)


HANDLER: "Handler[Controller]" = Handler(key=ApiKey.CREATE_ACLS, handle=handle, refuse=create_acls)

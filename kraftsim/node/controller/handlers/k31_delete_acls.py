"""DeleteAcls (31): there is no authorizer that could have rules.   Source: KIP-140, kafka.server.AclApis."""

from typing import TYPE_CHECKING

from kraftsim.node.call import Answer, Call, Handler
from kraftsim.node.without_security import delete_acls
from protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kraftsim.node.controller.controller import Controller


def handle(controller: "Controller", call: Call) -> Answer:
    """Say so."""
    return delete_acls(call)


HANDLER: "Handler[Controller]" = Handler(key=ApiKey.DELETE_ACLS, handle=handle, refuse=delete_acls)

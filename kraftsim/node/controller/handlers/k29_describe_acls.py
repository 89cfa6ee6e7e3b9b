"""DescribeAcls (29): there is no authorizer that could have rules.   Source: KIP-140, kafka.server.AclApis."""

from typing import TYPE_CHECKING

from kraftsim.node.call import Answer, Call, Handler
from kraftsim.node.without_security import describe_acls
from protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kraftsim.node.controller.controller import Controller


def handle(controller: "Controller", call: Call) -> Answer:
    """Say so."""
    return describe_acls(call)


HANDLER: "Handler[Controller]" = Handler(key=ApiKey.DESCRIBE_ACLS, handle=handle, refuse=describe_acls)

"""CreateAcls (30): creates ACLs, if an authorizer is configured.

Source: KIP-140, kafka.server.AclApis.
"""

from kraftsim.metadata.active_only import behind_gate
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.with_rules import RulesController, create_rules
from kraftsim.server.without_security import create_acls
from protocol.api_keys import ApiKey


def handle(controller: RulesController, call: Call) -> Answer | Deferred:
    """Without an authorizer every controller refuses; with one the active controller decides."""
    if controller.shell.security.authorizer is None:
        return create_acls(call)
    return behind_gate(create_rules, create_acls)(controller, call)


HANDLER: Handler[RulesController] = Handler(
    key=ApiKey.CREATE_ACLS, handle=handle, refuse=create_acls
)

"""DeleteAcls (31): deletes ACLs, if an authorizer is configured.

Source: KIP-140, kafka.server.AclApis.
"""

from kraftsim.metadata.active_only import behind_gate
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.with_rules import RulesController, delete_rules
from kraftsim.server.without_security import delete_acls
from protocol.api_keys import ApiKey


def handle(controller: RulesController, call: Call) -> Answer | Deferred:
    """Without an authorizer every controller refuses; with one the active controller decides."""
    if controller.shell.security.authorizer is None:
        return delete_acls(call)
    return behind_gate(delete_rules, delete_acls)(controller, call)


HANDLER: Handler[RulesController] = Handler(
    key=ApiKey.DELETE_ACLS, handle=handle, refuse=delete_acls
)

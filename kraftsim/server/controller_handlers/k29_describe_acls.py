"""DescribeAcls (29): returns ACLs, if an authorizer is configured.

Source: KIP-140, kafka.server.AclApis.
"""

from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.with_rules import describe_rules
from kraftsim.server.without_security import describe_acls
from protocol.api_keys import ApiKey


def handle(controller: DecidingController, call: Call) -> Answer:
    """Answer immediately."""
    return (
        describe_acls(call)
        if controller.shell.security.authorizer is None
        else describe_rules(controller.metadata_writer.state.registries, call)
    )


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.DESCRIBE_ACLS, handle=handle, refuse=describe_acls
)

"""DescribeAcls (29): list ACLs, if an authorizer is configured.

Source: KIP-140, kafka.server.AclApis.
"""

from typing import Protocol

from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.serving_broker import ImageBroker, RunningBroker
from kraftsim.server.with_rules import describe_rules
from kraftsim.server.without_security import describe_acls
from protocol.api_keys import ApiKey


class RulesBroker(ImageBroker, RunningBroker, Protocol):
    """A broker that describes ACLs."""


def handle(broker: RulesBroker, call: Call) -> Answer:
    """Respond at once."""
    return (
        describe_acls(call)
        if broker.shell.security.authorizer is None
        else describe_rules(broker.image.registries, call)
    )


HANDLER = Handler(key=ApiKey.DESCRIBE_ACLS, handle=handle, refuse=describe_acls)

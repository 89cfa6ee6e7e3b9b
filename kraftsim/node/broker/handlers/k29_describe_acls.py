"""DescribeAcls (29): there is no authorizer that could have rules.   Source: KIP-140, kafka.server.AclApis."""

from kraftsim.node.broker.broker import Broker
from kraftsim.node.call import Answer, Call, Handler
from kraftsim.node.without_security import describe_acls
from protocol.api_keys import ApiKey


def handle(broker: Broker, call: Call) -> Answer:
    """Say so."""
    return describe_acls(call)


HANDLER = Handler(key=ApiKey.DESCRIBE_ACLS, handle=handle, refuse=describe_acls)

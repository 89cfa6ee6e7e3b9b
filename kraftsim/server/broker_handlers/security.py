"""Security requests of clients on a broker: SASL, ACLs and delegation tokens.

A connection authenticates before it is dispatched (`kraftsim.server.security.sasl_gate`): here
arrive only requests at the wrong time, and those that authenticate again. ACLs are described from
the broker's image; CreateAcls and DeleteAcls are forwarded to the controller. Delegation tokens are
not supported.
"""

from typing import Protocol

from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.security.sasl_gate import (
    refuse_authentication,
    refuse_handshake,
    serve_authentication,
    serve_handshake,
)
from kraftsim.server.serving_broker import ImageBroker, RunningBroker
from kraftsim.server.with_rules import describe_rules
from kraftsim.server.without_security import (
    create_delegation_token,
    describe_acls,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
    token_handler,
)
from protocol.api_keys import ApiKey

SASL_HANDSHAKE: Handler[object] = Handler(
    key=ApiKey.SASL_HANDSHAKE, handle=serve_handshake, refuse=refuse_handshake
)
"""SaslHandshake (17): ILLEGAL_SASL_STATE, unless a client re-authenticates.

Source: KIP-152, KIP-368, kafka.server.KafkaApis.
"""


SASL_AUTHENTICATE: Handler[object] = Handler(
    key=ApiKey.SASL_AUTHENTICATE, handle=serve_authentication, refuse=refuse_authentication
)
"""SaslAuthenticate (36): ILLEGAL_SASL_STATE, unless a client re-authenticates.

Source: KIP-152, KIP-368, KafkaApis.
"""


class RulesBroker(ImageBroker, RunningBroker, Protocol):
    """A broker that describes ACLs."""


def handle_describe_acls(broker: RulesBroker, call: Call) -> Answer:
    """DescribeAcls (29): list ACLs, if an authorizer is configured.

    Respond at once.

    Source: KIP-140, kafka.server.AclApis.
    """
    return (
        describe_acls(call)
        if broker.shell.security.authorizer is None
        else describe_rules(broker.image.registries, call)
    )


DESCRIBE_ACLS = Handler(key=ApiKey.DESCRIBE_ACLS, handle=handle_describe_acls, refuse=describe_acls)


# Delegation tokens (38 to 41) are not supported. Source: KIP-48, KafkaApis.allowTokenRequests.

CREATE_DELEGATION_TOKEN = token_handler(ApiKey.CREATE_DELEGATION_TOKEN, create_delegation_token)
RENEW_DELEGATION_TOKEN = token_handler(ApiKey.RENEW_DELEGATION_TOKEN, renew_delegation_token)
EXPIRE_DELEGATION_TOKEN = token_handler(ApiKey.EXPIRE_DELEGATION_TOKEN, expire_delegation_token)
DESCRIBE_DELEGATION_TOKEN = token_handler(
    ApiKey.DESCRIBE_DELEGATION_TOKEN, describe_delegation_token
)

HANDLERS = (
    SASL_HANDSHAKE,
    SASL_AUTHENTICATE,
    DESCRIBE_ACLS,
    CREATE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
)

"""Security requests on a controller: SASL, ACLs and delegation tokens.

ACLs are records of the metadata log: the active controller decides about them, if an authorizer is
configured. Delegation tokens are not supported.
"""

from kraftsim.metadata.deciding_controller import DecidingController, behind_gate
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.security.sasl_gate import (
    refuse_authentication,
    refuse_handshake,
    serve_authentication,
    serve_handshake,
)
from kraftsim.server.with_rules import RulesController, create_rules, delete_rules, describe_rules
from kraftsim.server.without_security import (
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    expire_delegation_token,
    renew_delegation_token,
    token_handler,
)
from protocol.api_keys import ApiKey

SASL_HANDSHAKE: Handler[object] = Handler(
    key=ApiKey.SASL_HANDSHAKE, handle=serve_handshake, refuse=refuse_handshake
)
"""SaslHandshake (17): illegal here, except for a re-authentication.

Source: KIP-152, KIP-368, kafka.server.KafkaApis.
"""


SASL_AUTHENTICATE: Handler[object] = Handler(
    key=ApiKey.SASL_AUTHENTICATE, handle=serve_authentication, refuse=refuse_authentication
)
"""SaslAuthenticate (36): illegal here, except for a re-authentication.

Source: KIP-152, KIP-368, KafkaApis.
"""


def handle_describe_acls(controller: DecidingController, call: Call) -> Answer:
    """DescribeAcls (29): returns ACLs, if an authorizer is configured.

    Answer immediately.

    Source: KIP-140, kafka.server.AclApis.
    """
    return (
        describe_acls(call)
        if controller.shell.security.authorizer is None
        else describe_rules(controller.metadata_writer.state.registries, call)
    )


DESCRIBE_ACLS: Handler[DecidingController] = Handler(
    key=ApiKey.DESCRIBE_ACLS, handle=handle_describe_acls, refuse=describe_acls
)


def handle_create_acls(controller: RulesController, call: Call) -> Answer | Deferred:
    """CreateAcls (30): creates ACLs, if an authorizer is configured.

    Without an authorizer every controller refuses; with one the active controller decides.

    Source: KIP-140, kafka.server.AclApis.
    """
    if controller.shell.security.authorizer is None:
        return create_acls(call)
    return behind_gate(create_rules, create_acls)(controller, call)


CREATE_ACLS: Handler[RulesController] = Handler(
    key=ApiKey.CREATE_ACLS, handle=handle_create_acls, refuse=create_acls
)


def handle_delete_acls(controller: RulesController, call: Call) -> Answer | Deferred:
    """DeleteAcls (31): deletes ACLs, if an authorizer is configured.

    Without an authorizer every controller refuses; with one the active controller decides.

    Source: KIP-140, kafka.server.AclApis.
    """
    if controller.shell.security.authorizer is None:
        return delete_acls(call)
    return behind_gate(delete_rules, delete_acls)(controller, call)


DELETE_ACLS: Handler[RulesController] = Handler(
    key=ApiKey.DELETE_ACLS, handle=handle_delete_acls, refuse=delete_acls
)


# Delegation tokens (38 to 41) are not supported. Source: KIP-48, KafkaApis.allowTokenRequests.

CREATE_DELEGATION_TOKEN = token_handler(ApiKey.CREATE_DELEGATION_TOKEN, create_delegation_token)
RENEW_DELEGATION_TOKEN = token_handler(ApiKey.RENEW_DELEGATION_TOKEN, renew_delegation_token)
EXPIRE_DELEGATION_TOKEN = token_handler(ApiKey.EXPIRE_DELEGATION_TOKEN, expire_delegation_token)

HANDLERS = (
    SASL_HANDSHAKE,
    SASL_AUTHENTICATE,
    DESCRIBE_ACLS,
    CREATE_ACLS,
    DELETE_ACLS,
    CREATE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
)

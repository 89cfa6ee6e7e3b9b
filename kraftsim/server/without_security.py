"""ACL and delegation token requests on a cluster without an authorizer and without authenticated
clients.

Records of both are replicated in the metadata log and its snapshots, but clients cannot read or
change them here.
Source: kafka.server.AclApis, kafka.server.KafkaApis.allowTokenRequests, KIP-48; checked against
Apache Kafka 3.9.1 and 4.4.0.
"""

from typing import Final, Protocol

from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.rules_authentication import ANONYMOUS as ANONYMOUS_PRINCIPAL
from kraftsim.server.rules_authentication import Principal
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k29_describe_acls import DescribeAclsResponse
from protocol.messages.k30_create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from protocol.messages.k31_delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from protocol.messages.k39_renew_delegation_token import RenewDelegationTokenResponse
from protocol.messages.k40_expire_delegation_token import ExpireDelegationTokenResponse
from protocol.messages.k41_describe_delegation_token import DescribeDelegationTokenResponse

NO_AUTHORIZER: Final = "No Authorizer is configured."
NO_AUTHORIZER_HERE: Final = "No Authorizer is configured on the broker"
NO_TIME: Final = -1
REQUESTER_SINCE: Final = 3
"""The first version that can name another owner, and returns the requester."""
DISABLED: Final = ErrorCode.SECURITY_DISABLED
NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def describe_acls(call: Call, error: ErrorCode = DISABLED) -> Answer:
    """Refuse: there are no ACLs."""
    return DescribeAclsResponse(
        error_code=error, error_message=NO_AUTHORIZER_HERE if error is DISABLED else None
    )


def create_acls(call: Call, error: ErrorCode = DISABLED) -> Answer:
    """Refuse: no ACL can be created."""
    assert isinstance(call.body, CreateAclsRequest), "dispatch decodes by API key"
    why = NO_AUTHORIZER if error is DISABLED else None
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=error, error_message=why) for _ in call.body.creations
        ]
    )


def delete_acls(call: Call, error: ErrorCode = DISABLED) -> Answer:
    """Refuse: no ACL can be deleted."""
    assert isinstance(call.body, DeleteAclsRequest), "dispatch decodes by API key"
    why = NO_AUTHORIZER if error is DISABLED else None
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=error, error_message=why) for _ in call.body.filters
        ]
    )


def refuse_token(call: Call) -> ErrorCode:
    """Return why tokens are refused: the client is not authenticated, or, if it is, no secret key
    for tokens is configured.
    """
    return (
        NOT_ALLOWED
        if call.principal == ANONYMOUS_PRINCIPAL
        else ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    )


class TokenAnswer(Protocol):
    """The answer to a request about delegation tokens: the error that it gets, or one that is
    given.
    """

    def __call__(self, call: Call, error: ErrorCode | None = None) -> Answer:
        """Return the response."""


def token_handler(key: ApiKey, answer: TokenAnswer) -> Handler[object]:
    """Return the handler of a request about delegation tokens, which every node refuses."""

    def handle(node: object, call: Call) -> Answer:
        return answer(call)

    return Handler(key=key, handle=handle, refuse=answer)


def create_delegation_token(call: Call, error: ErrorCode | None = None) -> Answer:
    """Refuse a token; one for another owner needs CREATE_TOKENS, which is checked first."""
    request = call.body
    assert isinstance(request, CreateDelegationTokenRequest), "dispatch decodes by API key"
    error = refuse_token(call) if error is None else error
    names_owner = call.api_version >= REQUESTER_SINCE and bool(request.owner_principal_name)
    owner = (
        Principal(request.owner_principal_type or "", request.owner_principal_name or "")
        if names_owner
        else call.principal
    )
    if owner != call.principal and error is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
        error = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    at = 0 if error is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED else NO_TIME
    response = CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner.kind,
        principal_name=owner.name,
        issue_timestamp_ms=at,
        expiry_timestamp_ms=at,
        max_timestamp_ms=at,
    )
    if call.api_version >= REQUESTER_SINCE:
        response.token_requester_principal_type, response.token_requester_principal_name = (
            call.principal
        )
    return response


def renew_delegation_token(call: Call, error: ErrorCode | None = None) -> Answer:
    """Refuse: there are no tokens."""
    error = refuse_token(call) if error is None else error
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=_expiry(error))


def expire_delegation_token(call: Call, error: ErrorCode | None = None) -> Answer:
    """Refuse: there are no tokens."""
    error = refuse_token(call) if error is None else error
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=_expiry(error))


def describe_delegation_token(call: Call, error: ErrorCode | None = None) -> Answer:
    """Refuse: there are no tokens."""
    return DescribeDelegationTokenResponse(
        error_code=refuse_token(call) if error is None else error
    )


def _expiry(error: ErrorCode) -> int:
    return 0 if error is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED else NO_TIME

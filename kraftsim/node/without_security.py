"""Answers about access rules and delegation tokens of a cluster that has neither an authorizer nor authenticated clients.

Records of both are carried through the metadata log and its snapshots; nobody can ask for them or change them here.
Source: kafka.server.AclApis, kafka.server.KafkaApis.allowTokenRequests, KIP-48; asked of Apache Kafka 3.9.1 and 4.4.0.
"""

from typing import Final

from kraftsim.node.call import Answer, Call
from protocol.errors import ErrorCode
from protocol.messages.k29_describe_acls import DescribeAclsResponse
from protocol.messages.k30_create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from protocol.messages.k31_delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from protocol.messages.k38_create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from protocol.messages.k39_renew_delegation_token import RenewDelegationTokenResponse
from protocol.messages.k40_expire_delegation_token import ExpireDelegationTokenResponse
from protocol.messages.k41_describe_delegation_token import DescribeDelegationTokenResponse

NO_AUTHORIZER: Final = "No Authorizer is configured."
NO_AUTHORIZER_HERE: Final = "No Authorizer is configured on the broker"
USER, ANONYMOUS = "User", "ANONYMOUS"
NO_TIME: Final = -1
REQUESTER_SINCE: Final = 3
"""The first version that can name another owner, and so tells who asked."""
DISABLED: Final = ErrorCode.SECURITY_DISABLED
NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def describe_acls(call: Call, error: ErrorCode = DISABLED) -> Answer:
    """There are no rules to tell of."""
    return DescribeAclsResponse(error_code=error, error_message=NO_AUTHORIZER_HERE if error is DISABLED else None)


def create_acls(call: Call, error: ErrorCode = DISABLED) -> Answer:
    """No rule can be made."""
    assert isinstance(call.body, CreateAclsRequest), "dispatch decodes by API key"
    why = NO_AUTHORIZER if error is DISABLED else None
    return CreateAclsResponse(results=[AclCreationResult(error_code=error, error_message=why) for _ in call.body.creations])


def delete_acls(call: Call, error: ErrorCode = DISABLED) -> Answer:
    """No rule can be deleted."""
    assert isinstance(call.body, DeleteAclsRequest), "dispatch decodes by API key"
    why = NO_AUTHORIZER if error is DISABLED else None
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(error_code=error, error_message=why) for _ in call.body.filters])


def create_delegation_token(call: Call, error: ErrorCode = NOT_ALLOWED) -> Answer:
    """Who is not authenticated gets no token."""
    request = call.body
    assert isinstance(request, CreateDelegationTokenRequest), "dispatch decodes by API key"
    names_owner = call.api_version >= REQUESTER_SINCE and bool(request.owner_principal_name)
    response = CreateDelegationTokenResponse(
        error_code=error,
        principal_type=request.owner_principal_type or "" if names_owner else USER,
        principal_name=request.owner_principal_name or "" if names_owner else ANONYMOUS,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
    )
    if call.api_version >= REQUESTER_SINCE:
        response.token_requester_principal_type, response.token_requester_principal_name = USER, ANONYMOUS
    return response


def renew_delegation_token(call: Call, error: ErrorCode = NOT_ALLOWED) -> Answer:
    """Who is not authenticated has no token."""
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIME)


def expire_delegation_token(call: Call, error: ErrorCode = NOT_ALLOWED) -> Answer:
    """Who is not authenticated has no token."""
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIME)


def describe_delegation_token(call: Call, error: ErrorCode = NOT_ALLOWED) -> Answer:
    """Who is not authenticated has no token."""
    return DescribeDelegationTokenResponse(error_code=error)

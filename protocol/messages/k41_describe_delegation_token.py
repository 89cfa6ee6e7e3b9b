"""DescribeDelegationToken (41): list tokens that the client owns, may renew or may describe.

Any broker answers from its metadata; tokens that the client may not describe are left out silently.
Source: KIP-48, KIP-373 (v3: requester); DescribeDelegationTokenRequest.json,
DescribeDelegationTokenResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, byte_string, int16, int32, int64, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
)


@structure
class DescribeDelegationTokenOwner:
    """An owner whose tokens are listed."""

    principal_type: str = string()
    principal_name: str = string()


@message(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest:
    """Null lists every owner's tokens, an empty list none."""

    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, nullable="0+"
    )


@structure
class DescribedDelegationTokenRenewer:
    """A principal besides the owner that may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


@structure
class DescribedDelegationToken:
    """One token, including its secret HMAC; times are in ms since 1970. v3 adds the requester, if
    that was not the owner.
    """

    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = byte_string()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


@message(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenResponse:
    """The throttle time is the last field."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()

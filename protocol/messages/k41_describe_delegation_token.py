"""DescribeDelegationToken (41): list tokens that the asker owns, may renew or may otherwise see.

Any broker answers from what it knows of the metadata; tokens that the asker may not see are left out in silence.
Source: KIP-48, KIP-373 (v3: requester); DescribeDelegationTokenRequest.json, DescribeDelegationTokenResponse.json.
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
    """Whose tokens to list."""

    principal_type: str = string()
    principal_name: str = string()


@message(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest:
    """Null lists every owner's tokens, an empty list none."""

    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, nullable="0+")


@structure
class DescribedDelegationTokenRenewer:
    """Who besides the owner may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


@structure
class DescribedDelegationToken:
    """One token, its secret HMAC included; times are in ms since 1970. v3 adds who asked for it, where that was not the owner."""

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
    """The throttle time stands last, after everything else."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()

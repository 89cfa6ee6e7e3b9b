"""CreateDelegationToken (38): an authenticated client gets a token with which others can
authenticate as it (SASL/SCRAM).

Rejected on unauthenticated connections, and on those that were authenticated by a token.
Source: KIP-48, KIP-373 (v3: tokens for others); CreateDelegationTokenRequest.json,
CreateDelegationTokenResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, byte_string, int16, int32, int64, message, string, structure

SERVER_MAX_LIFETIME = -1  # delegation.token.max.lifetime.ms

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNSUPPORTED_VERSION,  # KRaft before metadata.version 3.6
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,  # no delegation.token.secret.key
    # plain text, anonymous TLS, or logged in with a token
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,  # v3: CREATE_TOKENS on the owner is missing
    ErrorCode.INVALID_PRINCIPAL_TYPE,  # a renewer that is no User
)


@structure
class CreatableRenewers:
    """A principal besides the owner that may renew the token; the type must be "User"."""

    principal_type: str = string()
    principal_name: str = string()


@message(key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenRequest:
    """v3 can set another owner than the requester (null: the requester).

    The lifetime counts from now in ms; -1 requests the server's maximum, which also limits it.
    """

    owner_principal_type: str | None = string(since=3, nullable="3+")
    owner_principal_name: str | None = string(since=3, nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


@message(key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenResponse:
    """The token: its id and its HMAC, which is the secret itself.

    Times are in ms since 1970. Renewing extends the expiry, up to the max timestamp.
    v3 distinguishes owner (principal) and requester. The throttle time is the last field.
    """

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = byte_string()
    throttle_time_ms: int = int32()

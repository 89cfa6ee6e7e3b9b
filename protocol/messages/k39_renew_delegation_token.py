"""RenewDelegationToken (39): extend the expiry of a token, up to its maximum lifetime.

Source: KIP-48; RenewDelegationTokenRequest.json, RenewDelegationTokenResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import byte_string, int16, int32, int64, message

SERVER_RENEW_PERIOD = -1  # delegation.token.expiry.time.ms

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNSUPPORTED_VERSION,  # KRaft before metadata.version 3.6
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,  # neither owner nor renewer
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ErrorCode.DELEGATION_TOKEN_EXPIRED,
)


@message(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenRequest:
    """The token is identified by its HMAC; the period counts from now, -1 requests the server's
    default.
    """

    hmac: bytes = byte_string()
    renew_period_ms: int = int64()


@message(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenResponse:
    """The new expiry of the token, in ms since 1970; 0 with an error."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()

"""ExpireDelegationToken (40): let a token expire earlier, or at once.

Source: KIP-48; ExpireDelegationTokenRequest.json, ExpireDelegationTokenResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import byte_string, int16, int32, int64, message

EXPIRE_NOW = -1

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNSUPPORTED_VERSION,  # KRaft before metadata.version 3.6
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,  # neither owner nor renewer
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ErrorCode.DELEGATION_TOKEN_EXPIRED,  # not when it is to be dropped at once
)


@message(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenRequest:
    """The token is identified by its HMAC; the period counts from now, a negative one expires the
    token at once.
    """

    hmac: bytes = byte_string()
    expiry_time_period_ms: int = int64()


@message(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenResponse:
    """The expiry of the token, in ms since 1970: the current time if it expired at once."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()

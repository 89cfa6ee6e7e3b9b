"""SaslAuthenticate (36): one step of the SASL exchange after SaslHandshake v1 (17).

Also sent later on the same connection, to re-authenticate before the session expires (KIP-368).
Source: KIP-152 (v0), KIP-368 (v1); SaslAuthenticateRequest.json, SaslAuthenticateResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import byte_string, int16, int64, message, string

ERRORS = (
    ErrorCode.ILLEGAL_SASL_STATE,  # sent on a connection that is authenticated, or needs not be
    ErrorCode.SASL_AUTHENTICATION_FAILED,  # then the connection is closed, after a delay
)


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """The client's token, in the format of the mechanism."""

    auth_bytes: bytes = byte_string()


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """The server's token; v1 adds the session lifetime in milliseconds, 0 for unlimited."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = byte_string()
    session_lifetime_ms: int = int64(since=1, ignorable=True)

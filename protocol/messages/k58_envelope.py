"""Envelope (58): a broker forwards a client's request to the active controller, with the client's
principal and address.

It embeds a whole request with its header; the embedded response has the embedded correlation id.
Only the outer connection is the broker's own.
Source: KIP-590; EnvelopeRequest.json, EnvelopeResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import byte_string, int16, message

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
)


@message(key=58, versions="0", flexible="0+")
class EnvelopeRequest:
    """The request as the broker received it (header and body, no size), and the client's address as
    4 or 16 bytes.
    """

    request_data: bytes = byte_string()
    request_principal: bytes | None = byte_string(nullable="0+")
    client_host_address: bytes = byte_string()


@message(key=58, versions="0", flexible="0+")
class EnvelopeResponse:
    """The response for the client (header and body, no size), or an error of the forwarding itself
    and null.
    """

    response_data: bytes | None = byte_string(nullable="0+", default=None)
    error_code: int = int16()

"""SaslHandshake (17): a client selects its SASL mechanism.

The first request of a SASL connection after ApiVersions. After v0 the mechanism's own tokens follow
as bare frames, after v1 inside SaslAuthenticate requests (36). No version is flexible: clients up
to 2.4 send the newest version a broker has, whether they know it or not.
Source: KIP-43 (v0), KIP-152 (v1), KAFKA-9577; SaslHandshakeRequest.json,
SaslHandshakeResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, message, string

ERRORS = (
    # the answer lists those that are; the connection is closed
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    ErrorCode.ILLEGAL_SASL_STATE,  # sent on a connection that is authenticated, or needs not be
)


@message(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    """A mechanism, such as SCRAM-SHA-512."""

    mechanism: str = string()


@message(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    """Every mechanism enabled on this listener, whether or not the requested one is."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)

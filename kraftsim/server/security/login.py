"""Client-side authentication of a node's outgoing connections: handshake, tokens, and session
lifetime.

Source: org.apache.kafka.common.security.authenticator.SaslClientAuthenticator, KIP-152, KIP-368.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ssl import SSLContext
from typing import Final

from kraftsim.server.rules_authentication import ClientExchange, SaslRefused
from protocol.errors import ErrorCode
from protocol.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from protocol.schema import Message

RENEWED_AFTER: Final = 0.85
"""The share of the session lifetime after which a connection is replaced by a new one."""
HANDSHAKE_VERSION: Final = 1
Ask = Callable[[Message, int | None], Awaitable[Message]]


class AuthenticationFailed(ConnectionError):
    """The peer rejected the authentication."""


@dataclass(frozen=True, slots=True)
class LinkSecurity:
    """The security of a connection to a peer's listener: TLS, SASL, or both."""

    tls: SSLContext | None = None
    mechanism: str = ""
    new_exchange: Callable[[], ClientExchange] | None = None


async def log_in(security: LinkSecurity, ask: Ask) -> int:
    """Authenticate, and return the session lifetime in milliseconds; 0: unlimited.

    Raises AuthenticationFailed, and what `ask` raises.
    """
    if security.new_exchange is None:
        return 0
    shaken = await ask(SaslHandshakeRequest(mechanism=security.mechanism), HANDSHAKE_VERSION)
    assert isinstance(shaken, SaslHandshakeResponse), "SaslHandshake was asked"
    if shaken.error_code != ErrorCode.NONE:
        raise AuthenticationFailed(
            f"the peer does not support {security.mechanism} but {', '.join(shaken.mechanisms)}"
        )
    exchange = security.new_exchange()
    token: bytes | None = exchange.first()
    while token is not None:
        answer = await ask(SaslAuthenticateRequest(auth_bytes=token), None)
        assert isinstance(answer, SaslAuthenticateResponse), "SaslAuthenticate was asked"
        if answer.error_code != ErrorCode.NONE:
            raise AuthenticationFailed(answer.error_message or f"error {answer.error_code}")
        try:
            token = exchange.step(bytes(answer.auth_bytes))
        except SaslRefused as refused:
            raise AuthenticationFailed(str(refused)) from refused
    lifetime_ms: int = answer.session_lifetime_ms
    return lifetime_ms

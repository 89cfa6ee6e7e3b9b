"""What SASL mechanisms have in common: an exchange of tokens that ends with a name, or is refused.

Source: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator.handleSaslToken, KIP-152.
"""

from typing import Final, Protocol

PLAIN: Final = "PLAIN"
SCRAM_MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Name -> the number by which records and requests know it."""
MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)


class SaslRefused(Exception):
    """Authentication failed. `told` is what the client is told, None if no more than that its credentials are not valid."""

    def __init__(self, told: str | None, reason: str) -> None:
        super().__init__(reason)
        self.told = told


class ServerExchange(Protocol):
    """The server's side of one authentication."""

    user: str
    """Who it was; known once the exchange is complete."""
    is_complete: bool

    def step(self, token: bytes) -> bytes:
        """Take the client's token and return the server's. Raises SaslRefused."""
        ...


class ClientExchange(Protocol):
    """The client's side of one authentication."""

    def first(self) -> bytes:
        """Return the first token."""
        ...

    def step(self, token: bytes) -> bytes | None:
        """Take the server's token and return the next one, None once it is over. Raises SaslRefused where the server does not know the secret."""
        ...


def refusal_text(refused: SaslRefused, mechanism: str, *, is_again: bool) -> str:
    """Return the error message of SaslAuthenticate."""
    if refused.told is not None:
        return refused.told
    what = "re-authentication" if is_again else "authentication"
    return f"Authentication failed during {what} due to invalid credentials with SASL mechanism {mechanism}"

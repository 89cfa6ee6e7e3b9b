"""The interface of SASL mechanisms: an exchange of tokens that ends with a principal, or fails.

Source: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator.handleSaslToken,
KIP-152.
"""

from typing import Final, Protocol

PLAIN: Final = "PLAIN"
SCRAM_MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Name -> its number in records and requests."""
MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)


class SaslRefused(Exception):
    """Authentication failed.

    `client_message` is the message to the client, None for the generic one (invalid credentials).
    """

    def __init__(self, client_message: str | None, reason: str) -> None:
        super().__init__(reason)
        self.client_message = client_message


class ServerExchange(Protocol):
    """The server side of one authentication."""

    user: str
    """The user name; known once the exchange is complete."""
    is_complete: bool

    def step(self, token: bytes) -> bytes:
        """Handle the client's token and return the server's. Raises SaslRefused."""
        ...


class ClientExchange(Protocol):
    """The client side of one authentication."""

    def first(self) -> bytes:
        """Return the first token."""
        ...

    def step(self, token: bytes) -> bytes | None:
        """Handle the server's token and return the next one, None at the end.

        Raises SaslRefused if the server does not know the secret.
        """
        ...


def refusal_text(refused: SaslRefused, mechanism: str, *, is_reauthentication: bool) -> str:
    """Return the error message of SaslAuthenticate."""
    if refused.client_message is not None:
        return refused.client_message
    what = "re-authentication" if is_reauthentication else "authentication"
    return (
        f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
        f"{mechanism}"
    )

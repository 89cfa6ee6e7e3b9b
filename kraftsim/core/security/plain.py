"""SASL/PLAIN: one token with user name and password.

Source: RFC 4616, org.apache.kafka.common.security.plain.internals.PlainSaslServer.
"""

import hmac
from collections.abc import Mapping

from kraftsim.core.security.sasl import SaslRefused

TOKENS = 3


class PlainServer:
    """The server side, with the users' passwords."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user = ""
        self.is_complete = False

    def step(self, token: bytes) -> bytes:
        """Check the password. Raises SaslRefused."""
        parts = token.decode(errors="replace").split("\0")
        if len(parts) != TOKENS:
            found = min(len(parts), TOKENS + 1)
            raise _refused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {found}")
        authorization_id, user, password = parts
        if not user:
            raise _refused("Authentication failed: username not specified")
        if not password:
            raise _refused("Authentication failed: password not specified")
        expected = self._passwords.get(user)
        if expected is None or not hmac.compare_digest(expected.encode(), password.encode()):
            raise _refused("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise _refused(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self.user, self.is_complete = user, True
        return b""


class PlainClient:
    """The client side."""

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        """Return the only token."""
        return self._token

    def step(self, token: bytes) -> bytes | None:
        """Return None: the exchange is complete."""
        return None


def _refused(why: str) -> SaslRefused:
    return SaslRefused(why, why)

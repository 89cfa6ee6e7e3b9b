"""Authentication: principals, the exchange of a SASL mechanism, JAAS configurations, PLAIN and
SCRAM. OAUTHBEARER is in `rules_bearer_tokens`.

Source: org.apache.kafka.common.security.{auth.KafkaPrincipal, JaasConfig, plain.*, scram.*},
authenticator.SaslServerAuthenticator; KIP-152, RFC 4616, RFC 5802.
"""

import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import pbkdf2_hmac
from typing import Final, NamedTuple, Protocol

from kraftsim.metadata.rules_registries import HASHES
from protocol.metadata.security import UserScramCredentialRecord

USER_TYPE = "User"


# --------------------------------------------------------------------------------------------------
# Principals
#
# Written `Type:name`; without authentication it is `User:ANONYMOUS`.
# Source: KafkaPrincipal, org.apache.kafka.common.utils.SecurityUtils.parseKafkaPrincipal.


class Principal(NamedTuple):
    """A type, nearly always `User`, and a name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER_TYPE, "ANONYMOUS")


def parse_principal_text(text: str) -> Principal:
    """Parse `Type:name`. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not text or not colon:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return Principal(kind, name)


# --------------------------------------------------------------------------------------------------
# A SASL mechanism: an exchange of tokens that ends with a principal, or fails
#
# Source: SaslServerAuthenticator.handleSaslToken, KIP-152.

PLAIN: Final = "PLAIN"
SCRAM_MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Name -> its number in records and requests."""
OAUTHBEARER: Final = "OAUTHBEARER"
LOGIN_MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)
"""The mechanisms with which this project logs in elsewhere."""
MECHANISMS: Final = (*LOGIN_MECHANISMS, OAUTHBEARER)
"""The mechanisms with which clients log in."""


class SaslRefused(Exception):
    """Authentication failed.

    `client_message` is the message to the client, None for the generic one (invalid credentials).
    """

    def __init__(self, client_message: str | None, reason: str) -> None:
        super().__init__(reason)
        self.client_message = client_message


class SaslBroken(SaslRefused):
    """Authentication failed in a way that Kafka does not answer: it closes the connection."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, reason)


class ServerExchange(Protocol):
    """The server side of one authentication."""

    user: str
    """The user name; known once the exchange is complete."""
    is_complete: bool
    expires_ms: int | None
    """The end of the credential in milliseconds since 1970; None: it has none."""

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


# --------------------------------------------------------------------------------------------------
# JAAS: `some.LoginModule required username="u" password="p" user_alice="secret";`
#
# Source: JaasConfig, PlainLoginModule, PlainServerCallbackHandler.

USER_PREFIX = "user_"
_OPTION_VALUE = r"\"(?:[^\"\\]|\\.)*\"|[^\s;\"]+"
_ENTRY = re.compile(
    rf"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)((?:\s+[\w.\-]+\s*=\s*(?:{_OPTION_VALUE}"
    r"))*)\s*;\s*",
    re.IGNORECASE,
)
_OPTION = re.compile(rf"([\w.\-]+)\s*=\s*({_OPTION_VALUE})")
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class LoginSettings:
    """One entry: the credentials of this side, and the accepted users with passwords."""

    username: str = ""
    password: str = field(default="", repr=False)
    passwords: dict[str, str] = field(default_factory=dict, repr=False)
    """user -> password, from the options `user_NAME`."""
    options: dict[str, str] = field(default_factory=dict, repr=False)
    """All options."""


def parse_jaas(text: str) -> LoginSettings:
    """Parse one entry. Raises ValueError, without the text, as it has secrets."""
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise ValueError(
            'expected a login module, a control flag, options as name="value", and a semicolon'
        )
    options = {name: _unquoted(value) for name, value in _OPTION.findall(match[3])}
    passwords = {
        name[len(USER_PREFIX) :]: value
        for name, value in options.items()
        if name.startswith(USER_PREFIX)
    }
    return LoginSettings(
        options.get("username", ""), options.get("password", ""), passwords, options
    )


def _unquoted(value: str) -> str:
    return _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value


# --------------------------------------------------------------------------------------------------
# PLAIN: one token with user name and password
#
# Source: RFC 4616, PlainSaslServer.

TOKENS = 3


class PlainServer:
    """The server side, with the users' passwords."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user = ""
        self.is_complete = False
        self.expires_ms: int | None = None

    def step(self, token: bytes) -> bytes:
        """Check the password. Raises SaslRefused."""
        parts = token.decode(errors="replace").split("\0")
        if len(parts) != TOKENS:
            found = min(len(parts), TOKENS + 1)
            raise _plain_refused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {found}")
        authorization_id, user, password = parts
        if not user:
            raise _plain_refused("Authentication failed: username not specified")
        if not password:
            raise _plain_refused("Authentication failed: password not specified")
        expected = self._passwords.get(user)
        if expected is None or not hmac.compare_digest(expected.encode(), password.encode()):
            raise _plain_refused("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise _plain_refused(
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


def _plain_refused(why: str) -> SaslRefused:
    return SaslRefused(why, why)


# --------------------------------------------------------------------------------------------------
# SCRAM: both sides prove that they know a password without sending it
#
# Source: RFC 5802, org.apache.kafka.common.security.scram.internals.{ScramSaslServer,
# ScramSaslClient, ScramMessages, ScramFormatter}.

ITERATIONS_MIN: Final = 4096
NONCE_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_SASL_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_ATTRIBUTE_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_ATTRIBUTE_VALUE})*"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authorization>{_SASL_NAME}))?,(?:m={_ATTRIBUTE_VALUE},)?n=(?P<name>{_SASL_NAME}),"
    rf"r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS})"
)
_SERVER_FIRST = re.compile(
    rf"(?:m={_ATTRIBUTE_VALUE},)?r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]+)"
    rf"{_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<before>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>"
    rf"{_BASE64})"
)
Credential = UserScramCredentialRecord
Draw = Callable[[int], int]
"""Returns a random number of this many bits."""


def draw_nonce(draw: Draw) -> str:
    """Return a nonce in Kafka's format: a number of 130 bits in base 36."""
    number, text = draw(NONCE_BITS), ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text or "0"


class ScramServer:
    """The server side. `credential_of` returns the keys of a user, never a password."""

    def __init__(
        self, mechanism: str, credential_of: Callable[[str], Credential | None], nonce: str
    ) -> None:
        self._hash = HASHES[SCRAM_MECHANISMS[mechanism]]
        self._credential_of = credential_of
        self._nonce = nonce
        self._credential: Credential | None = None
        self._client_first_bare = self._server_first = ""
        self.user = ""
        self.is_complete = False
        self.expires_ms: int | None = None

    def step(self, token: bytes) -> bytes:
        """Handle the client's first or final message. Raises SaslRefused."""
        if self.is_complete:
            raise _scram_refused("the exchange is over")
        try:
            text = token.decode("ascii")
        except UnicodeDecodeError:
            raise _scram_refused("a message that is no text") from None
        return (
            self._on_first(text)
            if self._credential is None
            else self._on_final(text, self._credential)
        ).encode()

    def _on_first(self, text: str) -> str:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise _scram_refused("Invalid SCRAM client first message format")
        self.user = match["name"].replace("=2C", ",").replace("=3D", "=")
        credential = self._credential_of(self.user)
        if credential is None:
            raise _scram_refused("Authentication failed: Invalid user credentials")
        if (match["authorization"] or self.user) != self.user:
            why = (
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
            raise SaslRefused(why, why)
        if credential.iterations < ITERATIONS_MIN:
            raise _scram_refused(
                f"Iterations {credential.iterations} is less than the minimum {ITERATIONS_MIN}"
            )
        self._credential = credential
        self._nonce = match["nonce"] + self._nonce
        self._client_first_bare = f"n={match['name']},r={match['nonce']}{match['extensions']}"
        self._server_first = (
            f"r={self._nonce},s={b64encode(bytes(credential.salt)).decode()},i="
            f"{credential.iterations}"
        )
        return self._server_first

    def _on_final(self, text: str, credential: Credential) -> str:
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise _scram_refused("Invalid SCRAM client final message format")
        if match["nonce"] != self._nonce:
            raise _scram_refused("Invalid client nonce in the final client message.")
        exchanged = f"{self._client_first_bare},{self._server_first},{match['before']}".encode()
        signature = hmac.new(bytes(credential.stored_key), exchanged, self._hash).digest()
        proof = b64decode(match["proof"])
        if len(proof) != len(signature) or not hmac.compare_digest(
            self._hash(_xor(proof, signature)).digest(), bytes(credential.stored_key)
        ):
            raise _scram_refused("Invalid client credentials")
        self.is_complete = True
        return (
            "v="
            + b64encode(
                hmac.new(bytes(credential.server_key), exchanged, self._hash).digest()
            ).decode()
        )


class ScramClient:
    """The client side."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._make = HASHES[SCRAM_MECHANISMS[mechanism]]
        self._password = password.encode()
        self._nonce = nonce
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._expected: bytes | None = None

    def first(self) -> bytes:
        """Return the first message."""
        return f"n,,{self._bare}".encode()

    def step(self, token: bytes) -> bytes | None:
        """Answer the server's first message with the proof, and check its final one.

        Raises SaslRefused.
        """
        text = token.decode("ascii", errors="replace")
        if self._expected is not None:
            try:
                signature = b64decode(text.removeprefix("v="), validate=True)
            except NotBase64:
                signature = b""
            if not hmac.compare_digest(signature, self._expected):
                raise _scram_refused("the server does not know the credentials")
            return None
        match = _SERVER_FIRST.fullmatch(text)
        if (
            match is None
            or not match["nonce"].startswith(self._nonce)
            or int(match["iterations"]) < ITERATIONS_MIN
        ):
            raise _scram_refused("the server's first message cannot be accepted")
        salted = pbkdf2_hmac(
            self._make().name, self._password, b64decode(match["salt"]), int(match["iterations"])
        )
        client_key = hmac.new(salted, b"Client Key", self._make).digest()
        server_key = hmac.new(salted, b"Server Key", self._make).digest()
        final = f"c=biws,r={match['nonce']}"
        exchanged = f"{self._bare},{text},{final}".encode()
        proof = _xor(
            client_key, hmac.new(self._make(client_key).digest(), exchanged, self._make).digest()
        )
        self._expected = hmac.new(server_key, exchanged, self._make).digest()
        return f"{final},p={b64encode(proof).decode()}".encode()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))


def _scram_refused(reason: str) -> SaslRefused:
    return SaslRefused(None, reason)

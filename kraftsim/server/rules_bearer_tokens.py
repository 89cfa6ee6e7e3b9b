"""SASL OAUTHBEARER with unsecured tokens: the exchange, and the checks of a token without
signature.

A token without signature proves nothing: anybody can write one. Kafka offers them for development
and tests, and it is its default validator.
Source: org.apache.kafka.common.security.oauthbearer.internals.{OAuthBearerSaslServer,
OAuthBearerClientInitialResponse, unsecured.OAuthBearerUnsecuredValidatorCallbackHandler,
unsecured.OAuthBearerUnsecuredJws, unsecured.OAuthBearerValidationUtils}; KIP-255, KIP-342,
RFC 7628, RFC 7515.
"""

import json
import math
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kraftsim.server.rules_authentication import SaslBroken, SaslRefused

END_OF_REFUSED: Final = b"\x01"
"""The client's answer to an error: it ends the exchange."""
INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"
NUMBER_SIZE_MAX: Final = 1000
"""The maximum number of characters of a number, as in Jackson."""
LIFETIME_MAX_MS: Final = 2**63 - 1
VALIDATOR_OPTIONS: Final = "unsecuredValidator"
SECTIONS: Final = 3
_SASL_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR = r"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_FIRST = re.compile(rf"n,(?:a=(?P<authorization>{_SASL_NAME}))?,\x01(?P<pairs>(?:{_PAIR})*)\x01")
_AUTHENTICATION = re.compile(r"(?P<scheme>\w+) +(?P<token>[\-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_BASE64 = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*"
    r"(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?"
)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_JAVA_BLANKS = "".join(map(chr, range(0x21)))
_JSON_BLANKS = " \t\r\n"
_TO_STANDARD_BASE64 = str.maketrans("-_+/", "+/..")
Claim = str | int | float | list[str]


class TokenRefused(Exception):
    """A token is not accepted. `status` and `scope` are the error that the client receives."""

    def __init__(self, reason: str, status: str = INVALID_TOKEN, scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


@dataclass(frozen=True, slots=True)
class BearerToken:
    """An accepted token: its user, and its end in milliseconds since 1970."""

    user: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """The checks of tokens without signature, from the options of the JAAS configuration."""

    user_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0
    is_base64url: bool = True
    """Whether sections are decoded as base64url; up to 4.1 as plain base64."""

    def check(self, token: str, now_ms: int) -> BearerToken:
        """Check a token in its compact form. Raises TokenRefused, and SaslBroken without an
        algorithm.
        """
        sections = token.split(".")
        if len(sections) != SECTIONS or ".." in token:
            raise TokenRefused("a token does not have three sections")
        header = _claims(sections[0], is_base64url=self.is_base64url)
        claims = _claims(sections[1], is_base64url=self.is_base64url)
        if "alg" not in header:
            raise SaslBroken("JWS header must have an Algorithm value")
        if header["alg"] != "none" or sections[2]:
            raise TokenRefused("a token has a signature or an algorithm other than none")
        scope = _scope(claims.get(self.scope_claim))
        expires_s, issued_s = _seconds(claims, "exp"), _seconds(claims, "iat")
        user = claims.get(self.user_claim)
        if expires_s is None or not isinstance(user, str) or not user.strip(_JAVA_BLANKS):
            raise TokenRefused(f"a token has no exp, or no text as {self.user_claim}")
        if issued_s is not None and 1000 * issued_s > now_ms + self.clock_skew_ms:
            raise TokenRefused("a token was issued in the future")
        if now_ms - self.clock_skew_ms >= 1000 * expires_s:
            raise TokenRefused("a token has expired")
        if issued_s is not None and expires_s <= issued_s:
            raise TokenRefused("a token expires before it was issued")
        if not scope.issuperset(self.required_scope):
            required = f"[{', '.join(self.required_scope)}]"
            raise TokenRefused("a token lacks a required scope", INSUFFICIENT_SCOPE, required)
        return BearerToken(user, _rounded_ms(expires_s))


def unsecured_tokens(options: Mapping[str, str], *, is_base64url: bool = True) -> UnsecuredTokens:
    """Return the checks that the options of a JAAS configuration name. Raises ValueError."""

    def option(name: str, default: str) -> str:
        return options.get(VALIDATOR_OPTIONS + name, "").strip(_JAVA_BLANKS) or default

    skew = option("AllowableClockSkewMs", "0")
    if re.fullmatch(r"\+?[0-9]{1,10}", skew) is None or int(skew) >= 2**31:
        raise ValueError(
            f"{VALIDATOR_OPTIONS}AllowableClockSkewMs must be a number of milliseconds, 0 or more"
        )
    scope = tuple(each for each in option("RequiredScope", "").split(" ") if each)
    if not all(_SCOPE.fullmatch(each) for each in scope):
        raise ValueError(f"{VALIDATOR_OPTIONS}RequiredScope has a character that no scope may have")
    return UnsecuredTokens(
        option("PrincipalClaimName", "sub"),
        option("ScopeClaimName", "scope"),
        scope,
        int(skew),
        is_base64url,
    )


class OAuthBearerServer:
    """The server side. `check` accepts a token or raises TokenRefused."""

    def __init__(self, check: Callable[[str], BearerToken]) -> None:
        self._check = check
        self._error = ""
        self.user = ""
        self.is_complete = False
        self.expires_ms: int | None = None

    def step(self, token: bytes) -> bytes:
        """Handle the client's first message, or its end of a refused exchange. Raises
        SaslRefused.
        """
        if token == END_OF_REFUSED and self._error:
            raise SaslRefused(self._error, self._error)
        self._error = ""
        authorization_id, bearer = _parse_first(token)
        try:
            accepted = self._check(bearer)
        except TokenRefused as refused:
            scope = "" if refused.scope is None else f', "scope":"{refused.scope}"'
            self._error = f'{{"status":"{refused.status}"{scope}}}'
            return self._error.encode()
        if authorization_id not in ("", accepted.user):
            raise SaslRefused(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) "
                f"that is different from the token's principal name ({accepted.user})",
                "the authorization id is not the user of the token",
            )
        self.user, self.expires_ms, self.is_complete = accepted.user, accepted.expires_ms, True
        return b""


def _parse_first(message: bytes) -> tuple[str, str]:
    """Return the authorization id and the token. Extensions must have their form (KIP-342); none
    has a meaning. Kafka closes the connection for another scheme than Bearer: it reads the scheme
    for its message from the wrong match.
    """
    match = _FIRST.fullmatch(message.decode(errors="replace"))
    if match is None:
        raise SaslRefused(None, "Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01")[:-1])
    value = pairs.get("auth")
    if value is None:
        raise SaslRefused(None, "Invalid OAUTHBEARER client first message: 'auth' not specified")
    authentication = _AUTHENTICATION.fullmatch(value)
    if authentication is None:
        raise SaslRefused(None, "Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if authentication["scheme"].lower() != "bearer":
        raise SaslBroken("Invalid scheme in OAUTHBEARER client first message")
    return match["authorization"] or "", authentication["token"]


# Claims
# --------------------------------------------------------------------------------------------------


def _claims(section: str, *, is_base64url: bool) -> dict[str, Claim]:
    """Return the members of a section's JSON object; none if it is no object."""
    if is_base64url:
        section = section.translate(_TO_STANDARD_BASE64)
    if _BASE64.fullmatch(section) is None:
        raise TokenRefused("a section is not base64")
    try:
        data = b64decode(section + "=" * (-len(section) % 4))
        text = data.decode(json.detect_encoding(data)).lstrip(_JSON_BLANKS)
        found = _DECODER.raw_decode(text)[0] if text else None
    except (NotBase64, ValueError, RecursionError):
        raise TokenRefused("a section is not JSON") from None
    if not isinstance(found, dict):
        return {}
    return {name: _claim(value) for name, value in found.items()}


def _claim(value: object) -> Claim:
    if isinstance(value, list):
        return [str(each) if _is_number(each) else _text(each) for each in value]
    return value if isinstance(value, (int, float)) and _is_number(value) else _text(value)


def _text(value: object) -> str:
    """Return the text of a JSON value as Jackson has it: empty for an object or array."""
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case _:
            return ""


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _seconds(claims: Mapping[str, Claim], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, (int, float)):
        raise TokenRefused(f"{name} of a token is not a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _rounded_ms(seconds: float) -> int:
    ms = 1000 * seconds
    return LIFETIME_MAX_MS if ms >= LIFETIME_MAX_MS else math.floor(ms + 0.5)


def _scope(value: Claim | None) -> frozenset[str]:
    if isinstance(value, (int, float)):
        raise TokenRefused("the scope of a token is a number")
    parts = [value] if isinstance(value, str) else value or []
    stripped = (part.strip(_JAVA_BLANKS) for part in parts)
    return frozenset(part for part in stripped if part)


def _whole(text: str) -> int:
    _limit(text)
    return int(text)


def _fraction(text: str) -> float:
    _limit(text)
    return float(text)


def _limit(text: str) -> None:
    if len(text) > NUMBER_SIZE_MAX:
        raise ValueError("a number is too long")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_int=_whole, parse_float=_fraction, parse_constant=_no_constant)

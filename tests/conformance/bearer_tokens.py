"""Exchanges of SASL OAUTHBEARER over the wire, and what a node responds to each: the same list for
Apache Kafka and for ours.
"""

import json
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.expect import expect_error
from kraftsim.conformance.peer import Peer, PeerClosed
from kraftsim.conformance.security_login import FAILED, authenticate, expect_served, shake
from protocol.errors import ErrorCode
from tests.apache_kafka.harness import ApacheKafka

LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OAUTHBEARER = "OAUTHBEARER"
HOUR_S = 3605
"""The time that a token is valid: an hour, and five seconds for the test."""
KEY = "listener.name.{}.oauthbearer.{}"
SETTINGS = {
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TOKENS:SASL_PLAINTEXT,STRICT:SASL_PLAINTEXT"
    ),
    "sasl.enabled.mechanisms": OAUTHBEARER,
    KEY.format("tokens", "sasl.jaas.config"): f"{LOGIN_MODULE} required;",
    KEY.format("strict", "sasl.jaas.config"): (
        f'{LOGIN_MODULE} required unsecuredValidatorPrincipalClaimName="user" '
        'unsecuredValidatorScopeClaimName="may" unsecuredValidatorRequiredScope="read write" '
        'unsecuredValidatorAllowableClockSkewMs="5000" '
        'unsecuredLoginStringClaim_sub="the-node";'
    ),
    KEY.format("strict", "connections.max.reauth.ms"): "60000",
    "group.initial.rebalance.delay.ms": "0",
}
"""Apache Kafka requires a login of its own as soon as there is any option."""
Outcome = tuple[object, ...]
NONE = b'{"alg":"none"}'


def section(content: object) -> str:
    """Return a section of a token: base64url without padding."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def unsecured_token(claims: object, header: object = NONE, signature: str = "") -> str:
    """Return a token without signature, unless one is given."""
    return f"{section(header)}.{section(claims)}.{signature}"


def first_message(token: str, *, authorization: str = "", extensions: str = "") -> bytes:
    """Return the client's first message."""
    return f"n,{authorization},\x01auth=Bearer {token}\x01{extensions}\x01".encode()


def exchanges(now_s: float) -> dict[str, list[bytes]]:
    """Return the client's messages by what they try."""
    good = {"sub": "alice", "exp": now_s + HOUR_S, "iat": now_s - 1}
    claims: dict[str, object] = {
        "good": good,
        "no iat": {"sub": "alice", "exp": now_s + HOUR_S},
        "expired": {**good, "exp": now_s - 1, "iat": now_s - 2},
        "expired long ago": {**good, "exp": 1},
        "issued later": {**good, "iat": now_s + 60},
        "expires before it was issued": {**good, "iat": now_s + 2, "exp": now_s + 1},
        "no sub": {"exp": now_s + HOUR_S},
        "a blank sub": {**good, "sub": " \t"},
        "a number as sub": {**good, "sub": 7},
        "a list as sub": {**good, "sub": ["alice"]},
        "true as sub": {**good, "sub": True},
        "null as sub": {**good, "sub": None},
        "an object as sub": {**good, "sub": {"a": 1}},
        "no exp": {"sub": "alice"},
        "a text as exp": {**good, "exp": str(now_s + HOUR_S)},
        "a text as iat": {**good, "iat": "1"},
        "a number as scope": {**good, "scope": 1},
        "a list of scopes": {**good, "scope": ["read", " write "]},
        "an endless number as exp": b'{"sub":"alice","exp":1' + b"0" * 1001 + b"}",
        "not a number": b'{"sub":"alice","exp":NaN}',
        "no JSON": b'{"sub":',
        "an array": b'["sub"]',
        "nothing": b"",
        "something after the object": json.dumps(good).encode() + b" x",
        "blanks before the object": b"\r\n\t " + json.dumps(good).encode(),
        "a name twice": b'{"sub":"x",' + json.dumps(good).encode()[1:],
        "no UTF-8": b'{"sub":"\xff","exp":9999999999}',
        "a character that base64 and base64url write differently": {**good, "a": "~~~???>>>"},
    }
    token = unsecured_token(good)
    header, body, _ = token.split(".")
    plain = b64encode(json.dumps({**good, "a": "~~~???>>>"}).encode()).decode()
    tokens = {
        "another algorithm": unsecured_token(good, {"alg": "RS256"}),
        "no algorithm": unsecured_token(good, {"typ": "JWT"}),
        "null as algorithm": unsecured_token(good, {"alg": None}),
        "an array as algorithm": unsecured_token(good, {"alg": ["none"]}),
        "an array as header": unsecured_token(good, ["alg"]),
        "no header": f".{body}.",
        "a signature": unsecured_token(good, signature="AAAA"),
        "two sections": f"{header}.{body}",
        "four sections": f"{token}.x",
        "two dots": f"{header}..{body}",
        "one word": "token",
        "padding": f"{header}{'=' * (-len(header) % 4)}.{body}.",
        "plain base64": f"{header}.{plain.rstrip('=')}.",
        "no base64": f"{header}.{body}A~.",
        "one base64 character too many": f"{header}.AAAAA.",
    }
    messages = {
        "an authorization id": first_message(token, authorization="a=alice"),
        "another authorization id": first_message(token, authorization="a=bob"),
        "an escaped authorization id": first_message(token, authorization="a=b=2Cob"),
        "extensions": first_message(token, extensions="a=b\x01logicalCluster=lkc-1\x01"),
        "an extension named auth": first_message(token, extensions="auth=Bearer x\x01"),
        "a digit in the name of an extension": first_message(token, extensions="a1=b\x01"),
        "an extension without a value": first_message(token, extensions="a=\x01"),
        "an extension with another character": first_message(token, extensions="a=\u00e9\x01"),
        "no auth": b"n,,\x01a=b\x01\x01",
        "no pairs": b"n,,\x01\x01",
        "another scheme": b"n,,\x01auth=Basic " + token.encode() + b"\x01\x01",
        "a scheme in lower case": b"n,,\x01auth=bearer   " + token.encode() + b"\x01\x01",
        "no scheme": b"n,,\x01auth=" + token.encode() + b"\x01\x01",
        "channel binding": b"y,,\x01auth=Bearer " + token.encode() + b"\x01\x01",
        "no end": b"n,,\x01auth=Bearer " + token.encode() + b"\x01",
        "an end only": b"\x01",
        "empty": b"",
        "no text": b"\xff\xfe",
    }
    found = {
        **{
            f"claims: {what}": first_message(unsecured_token(each)) for what, each in claims.items()
        },
        **{f"token: {what}": first_message(each) for what, each in tokens.items()},
        **{f"message: {what}": each for what, each in messages.items()},
    }
    bad = first_message("token")
    return {
        **{what: [message, b"\x01"] for what, message in found.items()},
        "a good token after a refused one": [bad, first_message(token)],
        "a refused token twice": [bad, bad, b"\x01"],
        "no message after a refused token": [bad, b"bad"],
    }


def strict_exchanges(now_s: float) -> dict[str, list[bytes]]:
    """Return those of the listener that requires a scope and allows a clock skew."""
    good = {"user": "alice", "exp": now_s + HOUR_S, "may": ["write", "read", "fly"]}
    claims = {
        "all scopes": good,
        "a token that ends before the session": {**good, "exp": now_s + 35},
        "expired within the skew": {**good, "exp": now_s - 2},
        "expired before": {**good, "exp": now_s - 7},
        "issued later within the skew": {**good, "iat": now_s + 2},
        "no scope": {"user": "alice", "exp": now_s + HOUR_S},
        "one scope": {**good, "may": ["read"]},
        "one text with both": {**good, "may": "read write"},
        "another claim": {"sub": "alice", "exp": now_s + HOUR_S, "may": ["write", "read"]},
    }
    return {what: [first_message(unsecured_token(each)), b"\x01"] for what, each in claims.items()}


def outcome(address: str, messages: list[bytes]) -> Outcome:
    """Return the responses to an exchange: error, message, data, and the lifetime in steps of 10
    seconds, until it is complete or closed.
    """
    found: list[object] = []
    with Peer.at(address) as peer:
        expect_error(shake(peer, OAUTHBEARER).error_code, ErrorCode.NONE, "SaslHandshake")
        for message in messages:
            try:
                answer = authenticate(peer, message)
            except PeerClosed:
                return (*found, "closed")
            data = bytes(answer.auth_bytes)
            lifetime = answer.session_lifetime_ms // 10_000
            found.append((answer.error_code, answer.error_message, data, lifetime))
            if answer.error_code:
                assert peer.is_closed_by_node()
                return (*found, "closed")
            if not data:
                break
        try:
            expect_served(peer)
        except PeerClosed:
            return (*found, "closed")
        return (*found, "served")


def outcomes(tokens: str, strict: str) -> dict[str, Outcome]:
    """Return the outcomes of all exchanges on both listeners of a node."""
    found = {what: outcome(tokens, exchanges(time.time())[what]) for what in exchanges(time.time())}
    for what in strict_exchanges(time.time()):
        found[f"strict: {what}"] = outcome(strict, strict_exchanges(time.time())[what])
    for user in ("alice", "bob"):
        found[f"again as {user}"] = _again(strict, user)
    return found


def _again(address: str, user: str) -> Outcome:
    """Return the response to a second login on the connection of alice."""
    now_s = time.time()
    with Peer.at(address) as peer:
        for each in ("alice", user):
            expect_error(shake(peer, OAUTHBEARER).error_code, ErrorCode.NONE, "SaslHandshake")
            claims = {"user": each, "exp": now_s + HOUR_S, "may": ["read", "write"]}
            answer = authenticate(peer, first_message(unsecured_token(claims)))
        return (answer.error_code, answer.error_message, answer.session_lifetime_ms)


def expected(*, is_base64url: bool) -> dict[str, Outcome]:
    """Return the outcomes of Apache Kafka 3.9.1 and 4.4.0; `is_base64url` since 4.2."""
    found = dict.fromkeys(exchanges(0), REFUSED)
    found |= dict.fromkeys(SERVED, (_accepted(360), "served"))
    found |= dict.fromkeys(GENERIC, (_failed(INVALID_CREDENTIALS), "closed"))
    found |= dict.fromkeys(CLOSED, ("closed",))
    found[PLAIN_BASE64 if not is_base64url else BASE64URL] = (_accepted(360), "served")
    for what, user in (("another", "bob"), ("an escaped", "b=2Cob")):
        found[f"message: {what} authorization id"] = (
            _failed(
                f"Authentication failed: Client requested an authorization id ({user}) that is "
                "different from the token's principal name (alice)"
            ),
            "closed",
        )
    found["a good token after a refused one"] = (REFUSED[0], _accepted(360), "served")
    found["a refused token twice"] = (REFUSED[0], *REFUSED)
    found["no message after a refused token"] = (
        REFUSED[0],
        _failed(INVALID_CREDENTIALS),
        "closed",
    )
    scope = '{"status":"insufficient_scope", "scope":"[read, write]"}'
    strict: dict[str, Outcome] = {
        "all scopes": (_accepted(6), "served"),
        "a token that ends before the session": (_accepted(3), "served"),
        "expired within the skew": (_accepted(0), "closed"),
        "expired before": REFUSED,
        "issued later within the skew": (_accepted(6), "served"),
        **dict.fromkeys(("no scope", "one scope", "one text with both"), _refused(scope)),
        "another claim": REFUSED,
    }
    changed = "Cannot change principals during re-authentication from User.alice: User.bob"
    return {
        **found,
        **{f"strict: {what}": each for what, each in strict.items()},
        "again as alice": (0, "", 60_000),
        "again as bob": (int(ErrorCode.SASL_AUTHENTICATION_FAILED), changed, 0),
    }


def _accepted(lifetime: int) -> Outcome:
    return (0, "", b"", lifetime)


def _failed(why: str) -> Outcome:
    return (int(ErrorCode.SASL_AUTHENTICATION_FAILED), why, b"", 0)


def _refused(why: str) -> Outcome:
    return ((0, "", why.encode(), 0), _failed(why), "closed")


INVALID_CREDENTIALS = f"{FAILED}{OAUTHBEARER}"
REFUSED = _refused('{"status":"invalid_token"}')
PLAIN_BASE64 = "token: plain base64"
BASE64URL = "claims: a character that base64 and base64url write differently"
SERVED = (
    "claims: good",
    "claims: no iat",
    "claims: true as sub",
    "claims: null as sub",
    "claims: a list of scopes",
    "claims: something after the object",
    "claims: blanks before the object",
    "claims: a name twice",
    "message: an authorization id",
    "message: extensions",
    "message: a scheme in lower case",
)
GENERIC = (
    "token: padding",
    "message: a digit in the name of an extension",
    "message: an extension without a value",
    "message: an extension with another character",
    "message: no auth",
    "message: no pairs",
    "message: no scheme",
    "message: channel binding",
    "message: no end",
    "message: an end only",
    "message: empty",
    "message: no text",
)
CLOSED = (
    "token: no algorithm",
    "token: an array as header",
    "token: no header",
    "message: another scheme",
)


@contextmanager
def apache_kafka_with_tokens(release: str) -> Iterator[tuple[str, str]]:
    """One node of Apache Kafka: the addresses of both listeners."""
    port = free_port_range(4)
    plain, tokens, strict, control = (f"127.0.0.1:{port + index}" for index in range(4))
    clients = f"PLAINTEXT://{plain},TOKENS://{tokens},STRICT://{strict}"
    settings = {
        **SETTINGS,
        "listeners": f"{clients},CONTROLLER://{control}",
        "advertised.listeners": clients,
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.voters": f"1@{control}",
    }
    with ApacheKafka(release, settings, port=port, controller_port=port + 3):
        yield tokens, strict


@contextmanager
def kraftsim_with_tokens(
    release: str, others: Mapping[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    """A broker of ours, likewise."""
    port = free_port_range(4)
    plain, tokens, strict = (f"127.0.0.1:{port + index}" for index in range(3))
    own = {"listeners": f"PLAINTEXT://{plain},TOKENS://{tokens},STRICT://{strict}"}
    spec = ClusterSpec(
        brokers=1,
        release=release,
        port=port,
        settings={**SETTINGS, **(others or {})},
        node_settings={"broker-1": own},
    )
    with EmbeddedCluster(spec) as cluster:
        cluster.wait_until_ready()
        yield tokens, strict

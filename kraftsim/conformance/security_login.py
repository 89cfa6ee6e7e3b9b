"""SaslHandshake (17) and SaslAuthenticate (36): how a client says who it is, and what becomes of one that cannot.

The listener that is asked knows `alice` with the password `alice-secret` (PLAIN), and whatever SCRAM credentials are made while it runs.
Source: KIP-43, KIP-152, SaslServerAuthenticator, PlainSaslServer, ScramSaslServer.
"""

import hashlib
import hmac
import time
from base64 import b64decode, b64encode

from kraftsim.conformance.expect import Inapplicable, Unmet, expect_equal, expect_error
from kraftsim.conformance.peer import Peer, PeerClosed
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from protocol.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.k51_alter_user_scram_credentials import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)

REQUIREMENTS = Requirements("security", 1, "Saying who one is")
AUTHENTICATOR = "SaslServerAuthenticator"
USER, PASSWORD = "alice", "alice-secret"
SCRAM = {"SCRAM-SHA-256": (SCRAM_SHA_256, "sha256"), "SCRAM-SHA-512": (SCRAM_SHA_512, "sha512")}
METADATA_VERSION, ITERATIONS, SALT = 9, 4096, b"some salt"
FAILED = "Authentication failed during authentication due to invalid credentials with SASL mechanism "


def sasl_peer(target: Target) -> Peer:
    """Return a connection to the SASL listener. Raises Inapplicable if nobody said where it is."""
    if not target.sasl:
        raise Inapplicable("no SASL listener was named")
    return target.peer(target.sasl)


def shake(peer: Peer, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
    """Name a mechanism."""
    return peer.ask(SaslHandshakeRequest(mechanism=mechanism), version, SaslHandshakeResponse)


def authenticate(peer: Peer, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
    """Send one token."""
    return peer.ask(SaslAuthenticateRequest(auth_bytes=token), version, SaslAuthenticateResponse)


def plain(user: str = USER, password: str = PASSWORD, authorization: str = "") -> bytes:
    """Return the token of PLAIN."""
    return f"{authorization}\0{user}\0{password}".encode()


def log_in(peer: Peer, user: str = USER, password: str = PASSWORD) -> None:
    """Authenticate with PLAIN."""
    expect_error(shake(peer).error_code, ErrorCode.NONE, "SaslHandshake")
    expect_error(authenticate(peer, plain(user, password)).error_code, ErrorCode.NONE, "SaslAuthenticate")


def expect_served(peer: Peer) -> None:
    """The node answers a request that only those may send who are known."""
    expect_equal(len(peer.ask(MetadataRequest(topics=[]), METADATA_VERSION, MetadataResponse).brokers) > 0, True, "whether Metadata names brokers")


def expect_closed(peer: Peer, what: str) -> None:
    """The node ends the connection and says nothing more."""
    expect_equal(peer.is_closed_by_node(), True, f"whether the connection is closed after {what}")


@REQUIREMENTS.that(1, "the handshake names what is enabled, and then a password lets the client in", source=f"KIP-43, KIP-152; {AUTHENTICATOR}")
def plain_password(target: Target) -> None:
    for version in (0, 1, 2):
        with sasl_peer(target) as peer:
            answer = shake(peer)
            expect_equal(sorted(answer.mechanisms), ["PLAIN", *sorted(SCRAM)], "mechanisms")
            reply = authenticate(peer, plain(), version)
            expect_equal((reply.error_code, reply.error_message, bytes(reply.auth_bytes)), (0, "", b""), f"SaslAuthenticate v{version}")
            expect_served(peer)


@REQUIREMENTS.that(2, "a mechanism that is not enabled is refused with error 33 and the enabled ones, and the connection ends", source=AUTHENTICATOR)
def unknown_mechanism(target: Target) -> None:
    for version in (0, 1):
        with sasl_peer(target) as peer:
            answer = shake(peer, "GSSAPI", version)
            expect_error(answer.error_code, ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"SaslHandshake v{version}")
            expect_equal(sorted(answer.mechanisms), ["PLAIN", *sorted(SCRAM)], "mechanisms")
            expect_closed(peer, "it")


@REQUIREMENTS.that(3, "who fails with PLAIN is told why with error 58 after a while, and the connection ends", source="PlainSaslServer; KIP-306")
def plain_failures(target: Target) -> None:
    invalid = "Authentication failed: Invalid username or password"
    rows = {
        "a wrong password": (plain(password="guess"), invalid),
        "an unknown user": (plain(user="nobody"), invalid),
        "no user": (plain(user=""), "Authentication failed: username not specified"),
        "no password": (plain(password=""), "Authentication failed: password not specified"),
        "another authorization id": (
            plain(authorization="bob"),
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        "two parts": (b"alice\0alice-secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        "nothing": (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    }
    for what, (token, why) in rows.items():
        with sasl_peer(target) as peer:
            shake(peer)
            asked = time.monotonic()
            answer = authenticate(peer, token)
            waited = time.monotonic() - asked
            found = (answer.error_code, answer.error_message)
            expect_equal(found, (int(ErrorCode.SASL_AUTHENTICATION_FAILED), why), what)
            if waited < 0.09:
                raise Unmet(f"{what}: time until the answer", "100 ms", f"{waited * 1000:.0f} ms")
            expect_closed(peer, what)


@REQUIREMENTS.that(4, "before the handshake nothing but one ApiVersions is served: anything else ends the connection", source=AUTHENTICATOR)
def nothing_before(target: Target) -> None:
    with sasl_peer(target) as peer:
        peer.send(MetadataRequest(topics=[]), METADATA_VERSION)
        expect_closed(peer, "Metadata")
    with sasl_peer(target) as peer:
        peer.send(SaslAuthenticateRequest(auth_bytes=plain()), 2)
        expect_closed(peer, "SaslAuthenticate without a handshake")
    with sasl_peer(target) as peer:
        expect_equal(peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code, 0, "ApiVersions")
        peer.send(ApiVersionsRequest(), 0)
        expect_closed(peer, "a second ApiVersions")
    with sasl_peer(target) as peer:
        bad = ApiVersionsRequest(client_software_name="-", client_software_version="-")
        expect_error(peer.ask(bad, 3, ApiVersionsResponse).error_code, ErrorCode.INVALID_REQUEST, "ApiVersions of a client without a name")
        expect_equal(peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code, 0, "ApiVersions after a refused one")
        log_in(peer)
        expect_served(peer)


@REQUIREMENTS.that(5, "between handshake and tokens another request is refused with error 34, and the connection ends", source=AUTHENTICATOR)
def nothing_between(target: Target) -> None:
    with sasl_peer(target) as peer:
        shake(peer)
        answer = shake(peer)
        expect_error(answer.error_code, ErrorCode.ILLEGAL_SASL_STATE, "a second SaslHandshake")
        expect_closed(peer, "it")
    with sasl_peer(target) as peer:
        shake(peer)
        told = peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        expect_error(told.error_code, ErrorCode.ILLEGAL_SASL_STATE, "ApiVersions")
        expect_closed(peer, "it")


@REQUIREMENTS.that(6, "once a client is known, handshake and tokens are refused with error 34, and the connection goes on", source="KafkaApis")
def known_already(target: Target) -> None:
    with sasl_peer(target) as peer:
        log_in(peer)
        expect_error(shake(peer).error_code, ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake")
        expect_error(authenticate(peer, plain()).error_code, ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate")
        expect_served(peer)


@REQUIREMENTS.that(7, "a listener without authentication refuses handshake and tokens with error 34, and the connection goes on", source="KafkaApis")
def no_authentication(target: Target) -> None:
    for version in (0, 1):
        with target.peer() as peer:
            answer = shake(peer, "PLAIN", version)
            expect_equal((answer.error_code, answer.mechanisms), (int(ErrorCode.ILLEGAL_SASL_STATE), []), f"SaslHandshake v{version}")
    for version in (0, 1, 2):
        with target.peer() as peer:
            found = authenticate(peer, plain(), version)
            why = "SaslAuthenticate request received after successful authentication"
            expect_equal((found.error_code, found.error_message), (int(ErrorCode.ILLEGAL_SASL_STATE), why), f"SaslAuthenticate v{version}")
            expect_served(peer)


@REQUIREMENTS.that(8, "after a handshake of version 0 tokens come and go without headers", source=f"KIP-43; {AUTHENTICATOR}")
def raw_tokens(target: Target) -> None:
    with sasl_peer(target) as peer:
        expect_error(shake(peer, version=0).error_code, ErrorCode.NONE, "SaslHandshake v0")
        peer.send_bytes(len(plain()).to_bytes(4) + plain())
        expect_equal(peer.receive_frame(), b"", "the server's token")
        expect_served(peer)
    with sasl_peer(target) as peer:
        shake(peer, version=0)
        peer.send_bytes(len(plain(password="guess")).to_bytes(4) + plain(password="guess"))
        expect_closed(peer, "a wrong password")


@REQUIREMENTS.that(9, "a frame above 512 KiB before authentication ends the connection", source="sasl.server.max.receive.size")
def large_frames(target: Target) -> None:
    with sasl_peer(target) as peer:
        peer.send_bytes((524289).to_bytes(4) + b"\x00\x11\x00\x01")
        expect_closed(peer, "its size")


@REQUIREMENTS.that(
    10, "SCRAM lets in whom the metadata log knows, and the server proves that it knows him, too", source="KIP-84, KIP-900, RFC 5802", since="3.5"
)
def scram_password(target: Target) -> None:
    for mechanism in SCRAM:
        user = scram_user(target, mechanism, "pa=ss,word")
        with sasl_peer(target) as peer:
            prove(peer, mechanism, user, "pa=ss,word")
            expect_served(peer)


@REQUIREMENTS.that(11, "a wrong SCRAM proof, an unknown user and a broken message are refused alike: error 58", source="ScramSaslServer", since="3.5")
def scram_failures(target: Target) -> None:
    for mechanism in SCRAM:
        user = scram_user(target, mechanism, "secret")
        with sasl_peer(target) as peer:
            expect_refused(prove_badly(peer, mechanism, user, "guess"), mechanism, "a wrong password")
            expect_closed(peer, "it")
        rows = {"an unknown user": b"n,,n=nobody,r=abc", "no nonce": b"n,,n=nobody", "another authorization id": f"n,a=bob,n={user},r=abc".encode()}
        for what, token in rows.items():
            with sasl_peer(target) as peer:
                shake(peer, mechanism)
                answer = authenticate(peer, token)
                expect_error(answer.error_code, ErrorCode.SASL_AUTHENTICATION_FAILED, what)
                if what != "another authorization id":
                    expect_refused(answer, mechanism, what)
                expect_closed(peer, what)
        with sasl_peer(target) as peer:
            shake(peer, mechanism)
            told = bytes(authenticate(peer, f"n,,n={user},r=abc".encode()).auth_bytes).decode()
            if not told.startswith("r=abc") or len(told.split(",")[0]) < 20:
                raise Unmet("the server's first message", "r=abc and a nonce of its own", told)
            expect_equal(told.split(",")[1:], ["s=" + b64encode(SALT).decode(), f"i={ITERATIONS}"], "salt and iterations")
            expect_refused(authenticate(peer, b"c=biws,r=abcother,p=AAAA"), mechanism, "another nonce")


def scram_user(target: Target, mechanism: str, password: str) -> str:
    """Make a user; return once every node knows it."""
    user = target.fresh_name("user=,")
    number, hash_name = SCRAM[mechanism]
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), SALT, ITERATIONS)
    row = ScramCredentialUpsertion(name=user, mechanism=number, iterations=ITERATIONS, salt=SALT, salted_password=salted)
    with target.peer() as peer:
        answer = peer.ask(AlterUserScramCredentialsRequest(upsertions=[row]), 0, AlterUserScramCredentialsResponse)
    expect_equal([each.error_code for each in answer.results], [0], "AlterUserScramCredentials")
    give_up_at = time.monotonic() + 5
    escaped = user.replace("=", "=3D").replace(",", "=2C")
    while True:
        with sasl_peer(target) as peer:
            shake(peer, mechanism)
            if not authenticate(peer, f"n,,n={escaped},r=probe".encode()).error_code:
                return escaped
        if time.monotonic() > give_up_at:
            raise Unmet("a SCRAM user", "known to the broker", "unknown")


def prove(peer: Peer, mechanism: str, user: str, password: str) -> None:
    """Authenticate, and check that the server knows the secret."""
    final, expected = exchange(peer, mechanism, user, password)
    expect_equal((final.error_code, bytes(final.auth_bytes)), (0, expected), f"the server's final message of {mechanism}")


def prove_badly(peer: Peer, mechanism: str, user: str, password: str) -> SaslAuthenticateResponse:
    """Authenticate with a wrong password, and return the answer."""
    return exchange(peer, mechanism, user, password)[0]


def exchange(peer: Peer, mechanism: str, user: str, password: str) -> tuple[SaslAuthenticateResponse, bytes]:
    """Play a client of SCRAM; return the last answer, and what the server must say in it."""
    final, expected = scram_proof(peer, mechanism, user, password)
    return authenticate(peer, final), expected


def scram_proof(peer: Peer, mechanism: str, user: str, password: str) -> tuple[bytes, bytes]:
    """Play a client of SCRAM up to its last token; return that token and the server's last one."""
    hash_name = SCRAM[mechanism][1]
    shake(peer, mechanism)
    bare = f"n={user},r=conformance"
    told = bytes(authenticate(peer, f"n,,{bare}".encode()).auth_bytes).decode()
    parts = dict(part.split("=", 1) for part in told.split(","))
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), b64decode(parts["s"]), int(parts["i"]))
    final = f"c=biws,r={parts['r']}"
    both = f"{bare},{told},{final}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), both, hash_name)
    proof = b64encode(bytes(left ^ right for left, right in zip(client_key, signature, strict=True))).decode()
    expected = b"v=" + b64encode(hmac.digest(hmac.digest(salted, b"Server Key", hash_name), both, hash_name))
    return f"{final},p={proof}".encode(), expected


def expect_refused(answer: SaslAuthenticateResponse, mechanism: str, what: str) -> None:
    """The client is told no more than that it failed."""
    expect_equal((answer.error_code, answer.error_message), (int(ErrorCode.SASL_AUTHENTICATION_FAILED), FAILED + mechanism), what)


def is_open(peer: Peer) -> bool:
    """Tell whether a connection still serves."""
    try:
        expect_served(peer)
    except PeerClosed:
        return False
    return True

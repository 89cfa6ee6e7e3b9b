"""SaslHandshake (17) and SaslAuthenticate (36): authentication, and its failures.

The SASL listener knows `alice` with the password `alice-secret` (PLAIN), and the SCRAM credentials
that are created while it runs.
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
from protocol.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from protocol.messages.k51_alter_user_scram_credentials import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)

REQUIREMENTS = Requirements("security", 1, "Authentication")
AUTHENTICATOR = "SaslServerAuthenticator"
USER, PASSWORD = "alice", "alice-secret"
SCRAM = {"SCRAM-SHA-256": (SCRAM_SHA_256, "sha256"), "SCRAM-SHA-512": (SCRAM_SHA_512, "sha512")}
METADATA_VERSION, ITERATIONS, SALT = 9, 4096, b"some salt"
FAILED = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism "
)


def sasl_peer(target: Target) -> Peer:
    """Return a connection to the SASL listener. Raises Inapplicable if its address is not given."""
    if not target.sasl:
        raise Inapplicable("no SASL listener is given")
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
    expect_error(
        authenticate(peer, plain(user, password)).error_code, ErrorCode.NONE, "SaslAuthenticate"
    )


def expect_served(peer: Peer) -> None:
    """The node responds to a request that requires authentication."""
    expect_equal(
        len(peer.ask(MetadataRequest(topics=[]), METADATA_VERSION, MetadataResponse).brokers) > 0,
        True,
        "whether Metadata names brokers",
    )


def expect_closed(peer: Peer, what: str) -> None:
    """The node closes the connection without a response."""
    expect_equal(peer.is_closed_by_node(), True, f"whether the connection is closed after {what}")


@REQUIREMENTS.that(
    1,
    "the handshake returns the enabled mechanisms, and a password authenticates the client",
    source=f"KIP-43, KIP-152; {AUTHENTICATOR}",
)
def plain_password(target: Target) -> None:
    for version in (0, 1, 2):
        with sasl_peer(target) as peer:
            answer = shake(peer)
            expect_equal(sorted(answer.mechanisms), ["PLAIN", *sorted(SCRAM)], "mechanisms")
            reply = authenticate(peer, plain(), version)
            expect_equal(
                (reply.error_code, reply.error_message, bytes(reply.auth_bytes)),
                (0, "", b""),
                f"SaslAuthenticate v{version}",
            )
            expect_served(peer)


@REQUIREMENTS.that(
    2,
    "a disabled mechanism returns UNSUPPORTED_SASL_MECHANISM with the enabled ones, and the "
    "connection is closed",
    source=AUTHENTICATOR,
)
def unknown_mechanism(target: Target) -> None:
    for version in (0, 1):
        with sasl_peer(target) as peer:
            answer = shake(peer, "GSSAPI", version)
            expect_error(
                answer.error_code, ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"SaslHandshake v{version}"
            )
            expect_equal(sorted(answer.mechanisms), ["PLAIN", *sorted(SCRAM)], "mechanisms")
            expect_closed(peer, "it")


@REQUIREMENTS.that(
    3,
    "a PLAIN failure returns SASL_AUTHENTICATION_FAILED with a message after a delay, and the "
    "connection is closed",
    source="PlainSaslServer; KIP-306",
)
def plain_failures(target: Target) -> None:
    invalid = "Authentication failed: Invalid username or password"
    rows = {
        "a wrong password": (plain(password="guess"), invalid),
        "an unknown user": (plain(user="nobody"), invalid),
        "no user": (plain(user=""), "Authentication failed: username not specified"),
        "no password": (plain(password=""), "Authentication failed: password not specified"),
        "another authorization id": (
            plain(authorization="bob"),
            (
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            ),
        ),
        "two parts": (
            b"alice\0alice-secret",
            "Invalid SASL/PLAIN response: expected 3 tokens, got 2",
        ),
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


@REQUIREMENTS.that(
    4,
    "before the handshake only one ApiVersions is served: any other request closes the connection",
    source=AUTHENTICATOR,
)
def nothing_before(target: Target) -> None:
    with sasl_peer(target) as peer:
        peer.send(MetadataRequest(topics=[]), METADATA_VERSION)
        expect_closed(peer, "Metadata")
    with sasl_peer(target) as peer:
        peer.send(SaslAuthenticateRequest(auth_bytes=plain()), 2)
        expect_closed(peer, "SaslAuthenticate without a handshake")
    with sasl_peer(target) as peer:
        expect_equal(
            peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code, 0, "ApiVersions"
        )
        peer.send(ApiVersionsRequest(), 0)
        expect_closed(peer, "a second ApiVersions")
    with sasl_peer(target) as peer:
        bad = ApiVersionsRequest(client_software_name="-", client_software_version="-")
        expect_error(
            peer.ask(bad, 3, ApiVersionsResponse).error_code,
            ErrorCode.INVALID_REQUEST,
            "ApiVersions of a client without a name",
        )
        expect_equal(
            peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code,
            0,
            "ApiVersions after a refused one",
        )
        log_in(peer)
        expect_served(peer)


@REQUIREMENTS.that(
    5,
    "between handshake and tokens another request returns ILLEGAL_SASL_STATE, and the connection "
    "is closed",
    source=AUTHENTICATOR,
)
def nothing_between(target: Target) -> None:
    with sasl_peer(target) as peer:
        shake(peer)
        answer = shake(peer)
        expect_error(answer.error_code, ErrorCode.ILLEGAL_SASL_STATE, "a second SaslHandshake")
        expect_closed(peer, "it")
    with sasl_peer(target) as peer:
        shake(peer)
        returned = peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        expect_error(returned.error_code, ErrorCode.ILLEGAL_SASL_STATE, "ApiVersions")
        expect_closed(peer, "it")


@REQUIREMENTS.that(
    6,
    "after authentication, handshake and tokens return ILLEGAL_SASL_STATE, and the connection "
    "stays open",
    source="KafkaApis",
)
def known_already(target: Target) -> None:
    with sasl_peer(target) as peer:
        log_in(peer)
        expect_error(shake(peer).error_code, ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake")
        expect_error(
            authenticate(peer, plain()).error_code, ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate"
        )
        expect_served(peer)


@REQUIREMENTS.that(
    7,
    "a listener without authentication returns ILLEGAL_SASL_STATE for handshake and tokens, and "
    "the connection stays open",
    source="KafkaApis",
)
def no_authentication(target: Target) -> None:
    for version in (0, 1):
        with target.peer() as peer:
            answer = shake(peer, "PLAIN", version)
            expect_equal(
                (answer.error_code, answer.mechanisms),
                (int(ErrorCode.ILLEGAL_SASL_STATE), []),
                f"SaslHandshake v{version}",
            )
    for version in (0, 1, 2):
        with target.peer() as peer:
            found = authenticate(peer, plain(), version)
            why = "SaslAuthenticate request received after successful authentication"
            expect_equal(
                (found.error_code, found.error_message),
                (int(ErrorCode.ILLEGAL_SASL_STATE), why),
                f"SaslAuthenticate v{version}",
            )
            expect_served(peer)


@REQUIREMENTS.that(
    8,
    "after a handshake of version 0 tokens are sent without headers",
    source=f"KIP-43; {AUTHENTICATOR}",
)
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


@REQUIREMENTS.that(
    9,
    "a frame above 512 KiB before authentication closes the connection",
    source="sasl.server.max.receive.size",
)
def large_frames(target: Target) -> None:
    with sasl_peer(target) as peer:
        peer.send_bytes((524289).to_bytes(4) + b"\x00\x11\x00\x01")
        expect_closed(peer, "its size")


@REQUIREMENTS.that(
    10,
    "SCRAM authenticates users of the metadata log, and the server signature is valid",
    source="KIP-84, KIP-900, RFC 5802",
    since="3.5",
)
def scram_password(target: Target) -> None:
    for mechanism in SCRAM:
        user = scram_user(target, mechanism, "pa=ss,word")
        with sasl_peer(target) as peer:
            prove(peer, mechanism, user, "pa=ss,word")
            expect_served(peer)


@REQUIREMENTS.that(
    11,
    "a wrong SCRAM proof, an unknown user and a malformed message all return "
    "SASL_AUTHENTICATION_FAILED",
    source="ScramSaslServer",
    since="3.5",
)
def scram_failures(target: Target) -> None:
    for mechanism in SCRAM:
        user = scram_user(target, mechanism, "secret")
        with sasl_peer(target) as peer:
            expect_refused(
                prove_badly(peer, mechanism, user, "guess"), mechanism, "a wrong password"
            )
            expect_closed(peer, "it")
        rows = {
            "an unknown user": b"n,,n=nobody,r=abc",
            "no nonce": b"n,,n=nobody",
            "another authorization id": f"n,a=bob,n={user},r=abc".encode(),
        }
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
            returned = bytes(authenticate(peer, f"n,,n={user},r=abc".encode()).auth_bytes).decode()
            if not returned.startswith("r=abc") or len(returned.split(",")[0]) < 20:
                raise Unmet("the server's first message", "r=abc and a nonce of its own", returned)
            expect_equal(
                returned.split(",")[1:],
                ["s=" + b64encode(SALT).decode(), f"i={ITERATIONS}"],
                "salt and iterations",
            )
            expect_refused(
                authenticate(peer, b"c=biws,r=abcother,p=AAAA"), mechanism, "another nonce"
            )


def scram_user(target: Target, mechanism: str, password: str) -> str:
    """Create a user; return once every node has its credential."""
    user = target.fresh_name("user=,")
    number, hash_name = SCRAM[mechanism]
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), SALT, ITERATIONS)
    row = ScramCredentialUpsertion(
        name=user, mechanism=number, iterations=ITERATIONS, salt=SALT, salted_password=salted
    )
    with target.peer() as peer:
        answer = peer.ask(
            AlterUserScramCredentialsRequest(upsertions=[row]), 0, AlterUserScramCredentialsResponse
        )
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
    """Authenticate, and check that the server has the secret."""
    final, expected = exchange(peer, mechanism, user, password)
    expect_equal(
        (final.error_code, bytes(final.auth_bytes)),
        (0, expected),
        f"the server's final message of {mechanism}",
    )


def prove_badly(peer: Peer, mechanism: str, user: str, password: str) -> SaslAuthenticateResponse:
    """Authenticate with a wrong password, and return the response."""
    return exchange(peer, mechanism, user, password)[0]


def exchange(
    peer: Peer, mechanism: str, user: str, password: str
) -> tuple[SaslAuthenticateResponse, bytes]:
    """Run a SCRAM exchange; return the last response, and the expected server signature."""
    final, expected = scram_proof(peer, mechanism, user, password)
    return authenticate(peer, final), expected


def scram_proof(peer: Peer, mechanism: str, user: str, password: str) -> tuple[bytes, bytes]:
    """Run a SCRAM exchange up to its last token; return that token and the server's last one."""
    hash_name = SCRAM[mechanism][1]
    shake(peer, mechanism)
    bare = f"n={user},r=conformance"
    returned = bytes(authenticate(peer, f"n,,{bare}".encode()).auth_bytes).decode()
    parts = dict(part.split("=", 1) for part in returned.split(","))
    salted = hashlib.pbkdf2_hmac(
        hash_name, password.encode(), b64decode(parts["s"]), int(parts["i"])
    )
    final = f"c=biws,r={parts['r']}"
    both = f"{bare},{returned},{final}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), both, hash_name)
    proof = b64encode(
        bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    ).decode()
    expected = b"v=" + b64encode(
        hmac.digest(hmac.digest(salted, b"Server Key", hash_name), both, hash_name)
    )
    return f"{final},p={proof}".encode(), expected


def expect_refused(answer: SaslAuthenticateResponse, mechanism: str, what: str) -> None:
    """The client gets no more information than that authentication failed."""
    expect_equal(
        (answer.error_code, answer.error_message),
        (int(ErrorCode.SASL_AUTHENTICATION_FAILED), FAILED + mechanism),
        what,
    )


def is_open(peer: Peer) -> bool:
    """Return whether a connection is still usable."""
    try:
        expect_served(peer)
    except PeerClosed:
        return False
    return True

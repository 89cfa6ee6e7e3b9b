"""SCRAM with the examples of its specifications, ACLs with Kafka's own cases, and the formats of
credentials.
"""

import base64
import hashlib
import hmac
import itertools

import pytest

from kraftsim.metadata.rules_registries import Registries
from kraftsim.server import rules_authorization as security_authorizer
from kraftsim.server.rules_authentication import (
    PlainServer,
    Principal,
    SaslRefused,
    ScramClient,
    ScramServer,
    draw_nonce,
    parse_jaas,
)
from kraftsim.server.rules_authorization import Authorizer, Verdicts
from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from protocol.metadata.security import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
)

ALICE = Principal("User", "alice")
READ, WRITE, DESCRIBE, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALL,
)
TOPIC = AclResourceType.TOPIC
RFC_7677 = (
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ),
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


def credential(
    password: str, *, hash_name: str = "sha256", salt: bytes = b"salt", iterations: int = 4096
) -> UserScramCredentialRecord:
    """The stored form of a password in the metadata log."""
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    stored = hashlib.new(hash_name, hmac.digest(salted, b"Client Key", hash_name)).digest()
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    return UserScramCredentialRecord(
        name="user", salt=salt, stored_key=stored, server_key=server_key, iterations=iterations
    )


def test_both_scram_sides_match_the_rfc_7677_example() -> None:
    first, server_first, final, server_final = RFC_7677
    known = credential("pencil", salt=base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    server = ScramServer("SCRAM-SHA-256", {"user": known}.get, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert client.first() == first
    assert server.step(first) == server_first
    assert client.step(server_first) == final
    assert not server.is_complete
    assert server.step(final) == server_final
    assert (server.is_complete, server.user) == (True, "user")
    assert client.step(server_final) is None


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_wrong_password_or_wrong_server_keys_fail_the_exchange(mechanism: str) -> None:
    known = credential("right", hash_name=f"sha{mechanism[-3:]}")
    server = ScramServer(mechanism, {"a=b,c": known}.get, "server")
    client = ScramClient(mechanism, "a=b,c", "wrong", "client")
    proof = client.step(server.step(client.first()))
    assert proof is not None
    with pytest.raises(SaslRefused) as refused:
        server.step(proof)
    assert refused.value.client_message is None
    with pytest.raises(SaslRefused):
        client.step(b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,n=user",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=",
        b"\xff\xfe",
        b"n,,n=nobody,r=abc",
    ],
)
def test_invalid_first_message_is_rejected(token: bytes) -> None:
    with pytest.raises(SaslRefused):
        ScramServer("SCRAM-SHA-256", {"user": credential("x")}.get, "server").step(token)


def test_credential_with_too_few_iterations_is_rejected() -> None:
    with pytest.raises(SaslRefused):
        ScramServer("SCRAM-SHA-256", {"user": credential("x", iterations=1000)}.get, "server").step(
            b"n,,n=user,r=abc"
        )


def test_nonces_have_130_bits_in_base_36() -> None:
    assert int(draw_nonce(lambda bits: 2**bits - 1), 36) == 2**130 - 1
    assert (draw_nonce(lambda bits: 0), draw_nonce(lambda bits: 36)) == ("0", "10")


def test_plain_accepts_only_configured_users() -> None:
    login = parse_jaas(
        'a.b.PlainLoginModule required username="u" password="p;\\"q" user_alice="s e=cret" '
        "user_bob=plain;"
    )
    assert (login.username, login.password) == ("u", 'p;"q')
    server = PlainServer(login.passwords)
    assert server.step(b"alice\0alice\0s e=cret") == b""
    assert (server.is_complete, server.user) == (True, "alice")
    with pytest.raises(SaslRefused):
        PlainServer(login.passwords).step(b"\0u\0p")
    for broken in ("", "a.B required", "a.B perhaps;", 'a.B required x="y;', "a.B required x=y"):
        with pytest.raises(ValueError, match="expected a login module"):
            parse_jaas(broken)


RULE_IDS = itertools.count(1)


def rule(
    name: str,
    operation: AclOperation,
    *,
    prefixed: bool = False,
    deny: bool = False,
    principal: str = "User:alice",
    host: str = "*",
) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=next(RULE_IDS).to_bytes(16),
        resource_type=TOPIC,
        resource_name=name,
        pattern_type=AclPatternType.PREFIXED if prefixed else AclPatternType.LITERAL,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=AclPermissionType.DENY if deny else AclPermissionType.ALLOW,
    )


def authorizer(*rules: AccessControlEntryRecord, open_without_rules: bool = False) -> Authorizer:
    registries = Registries(dict)
    for each in rules:
        registries.replay(each)
    return Authorizer(
        "User:root; User:CN=x,O=y",
        allows_without_rules=open_without_rules,
        registries=lambda: registries,
    )


@pytest.mark.parametrize(
    ("rules", "operation", "may"),
    [
        ([], READ, False),
        ([rule("t", READ)], READ, True),
        ([rule("t", READ)], DESCRIBE, True),
        ([rule("t", READ)], WRITE, False),
        ([rule("t", READ, deny=True), rule("t", ALL)], DESCRIBE, True),
        ([rule("t", ALL, deny=True), rule("t", ALL)], DESCRIBE, False),
        ([rule("*", READ)], READ, True),
        ([rule("*", READ), rule("", READ, prefixed=True, deny=True)], READ, False),
        ([rule("t", READ, host="10.0.0.1")], READ, False),
        ([rule("t", READ, principal="User:*"), rule("t", READ, deny=True)], READ, False),
        ([rule("topic", READ, prefixed=True)], READ, False),
    ],
)
def test_topic_acls(
    rules: list[AccessControlEntryRecord], operation: AclOperation, may: bool
) -> None:
    assert authorizer(*rules).allows(ALICE, "127.0.0.1", operation, TOPIC, "t") is may


def test_resources_without_acls_are_open_only_if_configured() -> None:
    node = authorizer(
        rule("t", READ, principal="User:bob"),
        rule("pre", READ, prefixed=True),
        open_without_rules=True,
    )
    assert [
        node.allows(ALICE, "h", READ, TOPIC, name) for name in ("other", "t", "prefix", "pr")
    ] == [True, False, True, True]


def test_super_users_bypass_deny_rules() -> None:
    node = authorizer(rule("*", ALL, deny=True, principal="User:*"))
    assert node.allows(Principal("User", "root"), "h", WRITE, TOPIC, "t")
    assert node.allows(Principal("User", "CN=x,O=y"), "h", WRITE, TOPIC, "t")
    assert not node.allows(Principal("Group", "root"), "h", WRITE, TOPIC, "t")


@pytest.mark.parametrize(
    ("rules", "may"),
    [
        ([], False),
        ([rule("t", WRITE)], True),
        ([rule("t", READ)], False),
        ([rule("t", WRITE), rule("t", WRITE, deny=True)], False),
        ([rule("topic", WRITE, prefixed=True), rule("to", WRITE, prefixed=True, deny=True)], False),
        ([rule("to", WRITE, prefixed=True), rule("topic", WRITE, prefixed=True, deny=True)], True),
        ([rule("t", WRITE), rule("*", WRITE, deny=True)], False),
        ([rule("*", WRITE), rule("t", WRITE, deny=True)], True),
        ([rule("t", WRITE), rule("t", WRITE, prefixed=True, deny=True)], False),
    ],
)
def test_authorize_by_resource_type_considers_deny_rules(
    rules: list[AccessControlEntryRecord], may: bool
) -> None:
    assert authorizer(*rules).allows_any(ALICE, "h", WRITE, TOPIC) is may


def test_removed_acl_no_longer_applies() -> None:
    registries = Registries(dict)
    node = Authorizer("", allows_without_rules=False, registries=lambda: registries)
    given = rule("t", READ)
    registries.replay(given)
    assert node.allows(ALICE, "h", READ, TOPIC, "t")
    registries.replay(RemoveAccessControlEntryRecord(id=given.id))
    assert not node.allows(ALICE, "h", READ, TOPIC, "t")


def test_authorization_results_are_cached_until_acls_change() -> None:
    """A fetch session of 1,000 topics costs 1,000 dict lookups, not 1,000 evaluations."""
    registries = Registries(dict)
    registries.replay(rule("t", READ))
    node = Authorizer("", allows_without_rules=False, registries=lambda: registries)
    first = node.verdicts(ALICE, "h", READ, TOPIC)
    assert [first["t"], first["u"], dict(first)] == [True, False, {"t": True, "u": False}]
    assert node.verdicts(ALICE, "h", READ, TOPIC) is first
    registries.replay(rule("u", READ))
    assert node.verdicts(ALICE, "h", READ, TOPIC)["u"]


def test_client_chosen_names_do_not_fill_the_authorization_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(security_authorizer, "VERDICTS_MAX", 100)
    registries = Registries(dict)
    node = Authorizer("", allows_without_rules=True, registries=lambda: registries)
    cached = 0
    for number in range(1000):
        assert node.allows(Principal("User", f"u{number % 7}"), "h", READ, TOPIC, f"t{number}")
    for number in range(7):
        verdicts = node.verdicts(Principal("User", f"u{number}"), "h", READ, TOPIC)
        assert isinstance(verdicts, Verdicts)
        cached += len(verdicts)
    assert 0 < cached <= 100


def test_long_name_is_authorized_but_not_cached() -> None:
    """65,536 group ids of 32,767 bytes each take 2 GB."""
    registries = Registries(dict)
    registries.replay(rule("g", READ, prefixed=True))
    node = Authorizer("", allows_without_rules=False, registries=lambda: registries)
    assert [node.allows(ALICE, "h", READ, TOPIC, name * 249) for name in ("g", "h")] == [
        True,
        False,
    ]
    assert [node.allows(ALICE, "h", READ, TOPIC, name * 250) for name in ("g", "h")] == [
        True,
        False,
    ]
    assert sorted(map(len, node.verdicts(ALICE, "h", READ, TOPIC))) == [249, 249]

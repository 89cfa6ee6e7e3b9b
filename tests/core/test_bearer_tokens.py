"""Tokens of SASL OAUTHBEARER: options, limits, and what settings a node refuses. What each token is
answered is in tests/conformance/test_bearer_tokens.py.
"""

import time

import pytest

from kraftsim.cluster.launch import parse_node
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.rules_authentication import SaslRefused
from kraftsim.server.rules_bearer_tokens import (
    LIFETIME_MAX_MS,
    BearerToken,
    OAuthBearerServer,
    TokenRefused,
    UnsecuredTokens,
    unsecured_tokens,
)
from tests.conformance.bearer_tokens import (
    KEY,
    LOGIN_MODULE,
    SETTINGS,
    first_message,
    unsecured_token,
)

NOW_MS = 1_000_000
HUGE = 500_000


def test_token_names_its_user_and_its_end_rounded_to_milliseconds() -> None:
    token = unsecured_token({"sub": "alice", "exp": 1000.0006, "iat": 999})
    assert UnsecuredTokens().check(token, NOW_MS) == BearerToken("alice", 1_000_001)
    endless = unsecured_token(b'{"sub":"\\ud800x","exp":1e999}')
    assert UnsecuredTokens().check(endless, NOW_MS) == BearerToken("?x", LIFETIME_MAX_MS)


def test_token_expires_at_its_end_plus_the_clock_skew() -> None:
    token = unsecured_token({"sub": "alice", "exp": 1000})
    late = unsecured_tokens({"unsecuredValidatorAllowableClockSkewMs": " 500 "})
    assert late.check(token, NOW_MS + 499).user == "alice"
    for rules, now_ms in ((late, NOW_MS + 500), (UnsecuredTokens(), NOW_MS)):
        with pytest.raises(TokenRefused, match="expired"):
            rules.check(token, now_ms)
    assert UnsecuredTokens().check(token, NOW_MS - 1).expires_ms == NOW_MS


@pytest.mark.parametrize(
    "options",
    [
        {"AllowableClockSkewMs": "-1"},
        {"AllowableClockSkewMs": "1s"},
        {"AllowableClockSkewMs": str(2**31)},
        {"RequiredScope": 'read "write"'},
    ],
)
def test_unusable_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        unsecured_tokens({f"unsecuredValidator{name}": each for name, each in options.items()})


@pytest.mark.parametrize(
    "message",
    [
        first_message("a" * HUGE),
        first_message("." * HUGE),
        first_message("a.b.c", extensions="a=b\x01" * (HUGE // 4)),
        first_message("a.b.c", authorization="a=" + "=2C" * (HUGE // 3)),
        first_message(unsecured_token(b"[" * (HUGE // 2))),
        first_message(unsecured_token(b'{"exp":' + b"9" * (HUGE // 2) + b"}")),
        first_message(unsecured_token(b'{"a":' * (HUGE // 8))),
        b"n," + b"\x01" * HUGE,
        b"n,,\x01" + b"a" * HUGE,
    ],
)
def test_half_a_megabyte_is_refused_in_linear_time(message: bytes) -> None:
    server = OAuthBearerServer(lambda token: UnsecuredTokens().check(token, NOW_MS))
    started = time.process_time()
    try:
        reply = server.step(message)
    except SaslRefused:
        reply = b""
    assert (server.is_complete, reply[:10] in (b"", b'{"status":')) == (False, True)
    assert time.process_time() - started < 2


def test_reason_of_a_refusal_never_has_the_token() -> None:
    rules = UnsecuredTokens()
    for token in ("secret", "secret.secret.secret", unsecured_token({"sub": "secret"})):
        with pytest.raises(TokenRefused) as refused:
            rules.check(token, NOW_MS)
        assert "secret" not in str(refused.value)
    server = OAuthBearerServer(lambda token: BearerToken("alice", NOW_MS))
    messages = (
        b"secret",
        b"n,,\x01auth=secret\x01\x01",
        b"n,,\x01auth=secret secret\x01\x01",
        first_message("secret", authorization="a=secret"),
    )
    for message in messages:
        with pytest.raises(SaslRefused) as failed:
            server.step(message)
        assert "secret" not in str(failed.value)


def test_node_refuses_settings_that_it_cannot_serve() -> None:
    listeners = "PLAINTEXT://127.0.0.1:9092,TOKENS://127.0.0.1:9093,STRICT://127.0.0.1:9094"
    good = {
        **SETTINGS,
        "process.roles": "broker",
        "node.id": "1",
        "log.dirs": "logs",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "101@127.0.0.1:9095",
        "listeners": listeners,
    }
    parse_node(good)
    validator = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    rows = (
        ({KEY.format("tokens", "sasl.jaas.config"): ""}, "OAuthBearerLoginModule required"),
        (
            {KEY.format("tokens", "sasl.server.callback.handler.class"): validator},
            "not implemented",
        ),
        (
            {
                KEY.format("tokens", "sasl.jaas.config"): (
                    f'{LOGIN_MODULE} required unsecuredValidatorAllowableClockSkewMs="x";'
                )
            },
            "AllowableClockSkewMs",
        ),
        (
            {
                "inter.broker.listener.name": "TOKENS",
                "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            },
            "OAUTHBEARER is not one of PLAIN",
        ),
    )
    for changed, why in rows:
        with pytest.raises(ConfigError, match=why):
            parse_node({**good, **changed})

"""TLS versions and cipher suites are those of a listener's settings; an unknown one is rejected in
one line.
"""

import ssl

import pytest

from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.security.tls import check_principal_rules, choose_versions_and_ciphers
from tests.node.test_config import BROKER


def config(**settings: str) -> NodeConfig:
    prefix = "listener.name.plaintext.ssl."
    return NodeConfig.parse(
        {**BROKER, **{prefix + name.replace("_", "."): value for name, value in settings.items()}}
    )


def chosen(**settings: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    choose_versions_and_ciphers(context, config(**settings), "PLAINTEXT")
    return context


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"cipher_suites": "NONSENSE"},
            "ssl.cipher.suites: NONSENSE of PLAINTEXT is not supported",
        ),
        ({"cipher_suites": "TLS_RSA_WITH_ROT13"}, "ssl.cipher.suites: TLS_RSA_WITH_ROT13 of"),
        (
            {"enabled_protocols": "TLSv9"},
            "ssl.enabled.protocols: TLSv9 of PLAINTEXT is not one of TLSv1, ",
        ),
        (
            {"enabled_protocols": "TLSv1.2", "cipher_suites": "TLS_AES_128_GCM_SHA256"},
            "no suite of PLAINTEXT fits",
        ),
    ],
)
def test_unknown_protocols_and_cipher_suites_are_rejected(
    settings: dict[str, str], complaint: str
) -> None:
    """Apache Kafka 3.9.1: Unsupported CipherSuite: NONSENSE; Unsupported protocolTLSv9."""
    with pytest.raises(ConfigError, match=complaint):
        chosen(**settings)


def test_protocol_versions_and_cipher_suites_are_enforced() -> None:
    """TLS 1.2 suites alone exclude TLS 1.3, and vice versa."""
    assert chosen().minimum_version == ssl.TLSVersion.TLSv1_2
    only = chosen(enabled_protocols="TLSv1.3")
    assert (only.minimum_version, only.maximum_version) == (
        ssl.TLSVersion.TLSv1_3,
        ssl.TLSVersion.TLSv1_3,
    )
    older = chosen(
        cipher_suites="TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
    )
    names = {each["name"] for each in older.get_ciphers() if each["protocol"] != "TLSv1.3"}
    assert names == {"ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305"}
    assert older.maximum_version == ssl.TLSVersion.TLSv1_2
    assert chosen(cipher_suites="TLS_AES_128_GCM_SHA256").minimum_version == ssl.TLSVersion.TLSv1_3
    assert (
        chosen(cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384").maximum_version
        == ssl.TLSVersion.TLSv1_2
    )


def test_principal_mapping_rules_other_than_default_are_rejected() -> None:
    """Only DEFAULT is implemented: the distinguished name of the certificate."""
    check_principal_rules(config(principal_mapping_rules="DEFAULT"), "PLAINTEXT")
    with pytest.raises(
        ConfigError,
        match=r"ssl.principal.mapping.rules: only DEFAULT is supported, PLAINTEXT has 'RULE:",
    ):
        check_principal_rules(config(principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/"), "PLAINTEXT")

"""TLS versions and cipher suites of a listener (ssl.enabled.protocols, ssl.cipher.suites), and the
principal mapping rules.

Suites have Java's names (RFC 8446, and `TLS_x_WITH_y` for earlier versions). Unknown ones are
rejected, as Apache Kafka's engine rejects them.
Source: DefaultSslEngineFactory, SslPrincipalMapper (only its rule DEFAULT is implemented).
"""

import re
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kraftsim.server.config_keys import ConfigError
from kraftsim.server.security.listener_settings import setting_value

if TYPE_CHECKING:
    from kraftsim.server.config import NodeConfig

VERSIONS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
DEFAULT_VERSIONS: Final = "TLSv1.2,TLSv1.3"
SUITES_OF_1_3: Final = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
DEFAULT_RULE: Final = "DEFAULT"
PROTOCOLS_KEY, SUITES_KEY, RULES_KEY = (
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
    "ssl.principal.mapping.rules",
)
TLS_CHOICES: Final = frozenset({PROTOCOLS_KEY, SUITES_KEY, RULES_KEY})
"""Settings that this module reads, of the whole node or of one listener."""
_SUITE = re.compile(r"TLS_(\w+)_WITH_(\w+)")


def choose_versions_and_ciphers(
    context: ssl.SSLContext, config: "NodeConfig", listener: str
) -> None:
    """Apply the versions and suites of a listener to a context. Raises ConfigError."""
    names = _names(setting_value(config, listener, PROTOCOLS_KEY, DEFAULT_VERSIONS))
    for name in names:
        if name not in VERSIONS:
            expected = ", ".join(VERSIONS)
            raise ConfigError(
                f"ssl.enabled.protocols: {name} of {listener} is not one of {expected}"
            )
    versions = [VERSIONS[name] for name in names] or [
        VERSIONS[name] for name in _names(DEFAULT_VERSIONS)
    ]
    suites = _names(setting_value(config, listener, SUITES_KEY))
    older = [_library_name(suite, listener) for suite in suites if suite not in SUITES_OF_1_3]
    if suites:
        versions = [each for each in versions if _has_suite(each, suites, older)]
    if not versions:
        raise ConfigError(
            f"ssl.cipher.suites: no suite of {listener} fits its ssl.enabled.protocols"
        )
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if older:
        context.set_ciphers(":".join(older))


def check_principal_rules(config: "NodeConfig", listener: str) -> None:
    """Reject unsupported rules: they would map to other principals. Raises ConfigError."""
    rules = setting_value(config, listener, RULES_KEY, DEFAULT_RULE)
    if rules.strip() != DEFAULT_RULE:
        raise ConfigError(
            f"ssl.principal.mapping.rules: only {DEFAULT_RULE} is supported, {listener} has "
            f"{rules!r}"
        )


def _has_suite(version: ssl.TLSVersion, suites: Sequence[str], older: Sequence[str]) -> bool:
    if version is ssl.TLSVersion.TLSv1_3:
        return any(suite in SUITES_OF_1_3 for suite in suites)
    return bool(older)


def _library_name(suite: str, listener: str) -> str:
    """Return the OpenSSL name of a cipher suite for TLS 1.2 and earlier."""
    found = _SUITE.fullmatch(suite)
    if found is not None:
        cipher = re.sub(r"_(128|256)_", r"\1-", found[2]).replace("CBC-", "").replace("CBC_", "")
        cipher = cipher.replace("_", "-").replace("POLY1305-SHA256", "POLY1305")
        name = cipher if found[1] == "RSA" else f"{found[1].replace('_', '-')}-{cipher}"
        if _is_supported(name):
            return name
    raise ConfigError(f"ssl.cipher.suites: {suite} of {listener} is not supported")


def _is_supported(name: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(name)
    except ssl.SSLError:
        return False
    return True


def _names(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]

"""TLS contexts from Kafka's properties, with PEM keys and certificates, inline or in files.

Source: KIP-651, org.apache.kafka.common.security.ssl.DefaultSslEngineFactory, SslPrincipalMapper.
"""

import re
import ssl
from asyncio import BaseTransport
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from kraftsim.server.config_keys import ConfigError
from kraftsim.server.rules_authentication import ANONYMOUS, USER_TYPE, Principal
from kraftsim.server.security.listener_settings import setting_value

if TYPE_CHECKING:
    from kraftsim.server.config import NodeConfig


# --------------------------------------------------------------------------------------------------
# TLS versions and cipher suites of a listener (ssl.enabled.protocols, ssl.cipher.suites), and the
# principal mapping rules
#
# Suites have Java's names (RFC 8446, and `TLS_x_WITH_y` for earlier versions). Unknown ones are
# rejected, as Apache Kafka's engine rejects them.
# Source: DefaultSslEngineFactory, SslPrincipalMapper (only its rule DEFAULT is implemented).

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


PEM: Final = "PEM"
CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
SHORT_NAMES: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


def server_context(config: "NodeConfig", listener: str) -> ssl.SSLContext:
    """Return the server-side TLS context of a listener. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if not _load_own(context, config, listener):
        raise ConfigError(
            f"ssl.keystore.type: {listener} needs PEM, with ssl.keystore.key and "
            "ssl.keystore.certificate.chain"
        )
    choose_versions_and_ciphers(context, config, listener)
    check_principal_rules(config, listener)
    wish = setting_value(config, listener, "ssl.client.auth", "none").lower()
    if wish not in CLIENT_AUTH:
        raise ConfigError(
            f"ssl.client.auth: expected one of {', '.join(CLIENT_AUTH)}, got {wish!r}"
        )
    if CLIENT_AUTH[wish] is not ssl.CERT_NONE:
        _load_trusted(context, config, listener)
        context.verify_mode = CLIENT_AUTH[wish]
    return context


def client_context(config: "NodeConfig", listener: str) -> ssl.SSLContext:
    """Return the client-side TLS context for a peer's listener. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = (
        setting_value(config, listener, "ssl.endpoint.identification.algorithm", "https") != ""
    )
    choose_versions_and_ciphers(context, config, listener)
    _load_trusted(context, config, listener)
    _load_own(context, config, listener)
    return context


def report_handshakes(context: ssl.SSLContext, report: Callable[[str], None]) -> None:
    """Call `report` with OpenSSL's reason for each failed handshake of the context.

    asyncio and uvloop close such a connection without notifying its protocol, so the SSL object has
    to report it.
    """

    class ReportingObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as failure:
                report(failure.reason or str(failure))
                raise

    context.sslobject_class = ReportingObject


def principal_of(transport: BaseTransport) -> Principal:
    """Return the principal of the client's certificate, formatted as in RFC 2253."""
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return ANONYMOUS
    parts = [
        f"{SHORT_NAMES.get(kind, kind)}={_escaped(value)}"
        for name in reversed(certificate["subject"])
        for kind, value in name
    ]
    return Principal(USER_TYPE, ",".join(parts))


def _load_own(context: ssl.SSLContext, config: "NodeConfig", listener: str) -> bool:
    """Load key and certificate, if configured."""
    kind = setting_value(config, listener, "ssl.keystore.type", "JKS")
    if kind.upper() != PEM:
        if setting_value(config, listener, "ssl.keystore.location"):
            raise ConfigError(f"ssl.keystore.type: only PEM is there, got {kind}")
        return False
    location = setting_value(config, listener, "ssl.keystore.location")
    password = setting_value(config, listener, "ssl.key.password") or None
    try:
        if location:
            context.load_cert_chain(location, password=password)
            return True
        key, chain = (
            setting_value(config, listener, name)
            for name in ("ssl.keystore.key", "ssl.keystore.certificate.chain")
        )
        if not key or not chain:
            return False
        with TemporaryDirectory() as directory:  # the ssl module loads keys from files only
            file = Path(directory) / "own.pem"
            file.touch(mode=0o600)
            file.write_text(f"{_lines(key)}\n{_lines(chain)}\n")
            context.load_cert_chain(file, password=password)
    except (OSError, ssl.SSLError) as reason:
        raise ConfigError(
            f"ssl.keystore.type: key and certificate of {listener} cannot be used: {reason}"
        ) from None
    return True


def _load_trusted(context: ssl.SSLContext, config: "NodeConfig", listener: str) -> None:
    """Load the truststore; without one, the system's certificates."""
    certificates, location = (
        setting_value(config, listener, name)
        for name in ("ssl.truststore.certificates", "ssl.truststore.location")
    )
    try:
        if certificates:
            context.load_verify_locations(cadata=_lines(certificates))
        elif location:
            context.load_verify_locations(location)
        else:
            context.load_default_certs()
    except (OSError, ssl.SSLError) as reason:
        raise ConfigError(
            f"ssl.truststore.type: the truststore of {listener} cannot be read: {reason}"
        ) from None


def _lines(text: str) -> str:
    """Restore the line breaks of a PEM text that a property file may contain in one line."""
    if "\n" in text.strip():
        return text
    for mark in ("-----BEGIN ", "-----END "):
        text = text.replace(mark, "\n" + mark)
    found = []
    for part in text.split("\n"):
        head, dashes, rest = part.partition("-----")
        if dashes:
            name, _, body = rest.partition("-----")
            found += [f"-----{name}-----", *body.split()]
        else:
            found += head.split()
    return "\n".join(found)


def _escaped(value: str) -> str:
    return "".join(f"\\{letter}" if letter in ',+"\\<>;' else letter for letter in value)

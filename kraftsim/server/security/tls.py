"""TLS contexts from Kafka's properties, with PEM keys and certificates, inline or in files.

Source: KIP-651, org.apache.kafka.common.security.ssl.DefaultSslEngineFactory, SslPrincipalMapper.
"""

import ssl
from asyncio import BaseTransport
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from kraftsim.server.config_keys import ConfigError
from kraftsim.server.rules_authentication import ANONYMOUS, USER_TYPE, Principal
from kraftsim.server.security.listener_settings import setting_value
from kraftsim.server.security.tls_choices import check_principal_rules, choose_versions_and_ciphers

if TYPE_CHECKING:
    from kraftsim.server.config import NodeConfig

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

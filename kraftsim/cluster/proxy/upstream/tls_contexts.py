"""Security of the proxy: towards clients it has a certificate, towards the cluster it is a client.

The proxy reads requests and writes responses, so it ends TLS on both sides by itself; it cannot
pass TLS on unread. A client that expects the name of a broker in the certificate needs one for the
name of the proxy.

SASL passes, so the proxy needs credentials only for the connections that it opens by itself.
"""

import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kraftsim.server.rules_authentication import (
    LOGIN_MECHANISMS,
    PLAIN,
    ClientExchange,
    PlainClient,
    ScramClient,
    draw_nonce,
    parse_jaas,
)
from kraftsim.server.security.login import LinkSecurity

MECHANISM: Final = "sasl.mechanism"
JAAS: Final = "sasl.jaas.config"
PROTOCOL: Final = "security.protocol"


def client_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Return the context towards clients; None without a certificate. Raises ValueError."""
    if certificate is None:
        if key is not None:
            raise ValueError("--tls-key needs --tls-cert")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load(context, certificate, key, "--tls-cert", "--tls-key")
    return context


def node_context(
    is_used: bool, trusted: Path | None, certificate: Path | None, key: Path | None
) -> ssl.SSLContext | None:
    """Return the context towards the cluster; None if its listener has no TLS. Raises
    ValueError.
    """
    if not is_used:
        if trusted is not None or certificate is not None or key is not None:
            raise ValueError(
                "--upstream-ca, --upstream-cert and --upstream-key need --upstream-tls"
            )
        return None
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=trusted)
    except ssl.SSLError as error:
        raise ValueError(
            f"--upstream-ca {trusted} has no certificate in PEM: {error.reason}"
        ) from error
    if certificate is not None:
        _load(context, certificate, key, "--upstream-cert", "--upstream-key")
    elif key is not None:
        raise ValueError("--upstream-key needs --upstream-cert")
    return context


def own_security(tls: ssl.SSLContext | None, settings: Mapping[str, str]) -> LinkSecurity | None:
    """Return the security of connections that the proxy opens by itself; `settings` are those of a
    Kafka client. Raises ValueError.
    """
    if not settings:
        return None if tls is None else LinkSecurity(tls)
    wanted = "SASL_PLAINTEXT" if tls is None else "SASL_SSL"
    if settings.get(PROTOCOL, wanted) != wanted:
        raise ValueError(
            f"{PROTOCOL} is {settings[PROTOCOL]}, not {wanted}: --upstream-tls says which it is"
        )
    mechanism = settings.get(MECHANISM, "")
    if mechanism not in LOGIN_MECHANISMS:
        raise ValueError(f"{MECHANISM} is {mechanism!r}, not one of {', '.join(LOGIN_MECHANISMS)}")
    return LinkSecurity(tls, mechanism, _exchanges(mechanism, settings.get(JAAS, "")))


def _exchanges(mechanism: str, jaas: str) -> Callable[[], ClientExchange]:
    try:
        login = parse_jaas(jaas)
    except ValueError as reason:
        raise ValueError(f"{JAAS}: {reason}") from None
    if not login.username:
        raise ValueError(f"{JAAS} has no username")
    if mechanism == PLAIN:
        return lambda: PlainClient(login.username, login.password)
    return lambda: ScramClient(mechanism, login.username, login.password, draw_nonce(_draw))


def _draw(bits: int) -> int:
    return int.from_bytes(os.urandom(-(-bits // 8))) >> -bits % 8


def _load(context: ssl.SSLContext, certificate: Path, key: Path | None, *options: str) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        reason = error.reason or "no certificate and key in PEM"
        raise ValueError(
            f"{options[0]} {certificate} and {options[1]} {key or certificate}: {reason}"
        ) from error

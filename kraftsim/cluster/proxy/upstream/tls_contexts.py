"""TLS of the proxy: towards clients it has a certificate, towards the cluster it is a client.

The proxy reads requests and writes responses, so it ends TLS on both sides by itself; it cannot
pass TLS on unread. A client that expects the name of a broker in the certificate needs one for the
name of the proxy.
"""

import ssl
from pathlib import Path


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


def _load(context: ssl.SSLContext, certificate: Path, key: Path | None, *options: str) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        reason = error.reason or "no certificate and key in PEM"
        raise ValueError(
            f"{options[0]} {certificate} and {options[1]} {key or certificate}: {reason}"
        ) from error

"""Ready-made security of a test cluster: the settings of its brokers, and of clients that log in.

PLAIN and SCRAM users are `admin` (the brokers' own login, a super user) and `client`. TLS uses a
certificate that the `openssl` command makes for 127.0.0.1 when the cluster starts.
"""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PROTOCOLS: Final = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
CLIENT, ADMIN = "client", "admin"
CLIENT_PASSWORD, ADMIN_PASSWORD = "client-secret", "admin-secret"
_JAAS: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{ADMIN}" password="{ADMIN_PASSWORD}" '
    f'user_{ADMIN}="{ADMIN_PASSWORD}" user_{CLIENT}="{CLIENT_PASSWORD}";'
)
CERTIFICATE, KEY_AND_CERTIFICATE = "certificate.pem", "key-and-certificate.pem"


class SecurityNotPossible(ValueError):
    """A preset that does not exist, or cannot be made on this machine: one line that says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Security:
    """The settings of the brokers, and those of clients in the names of librdkafka."""

    brokers: Mapping[str, str] = field(default_factory=dict)
    clients: Mapping[str, str] = field(default_factory=dict)


def security_preset(protocol: str, directory: Path) -> Security:
    """Return the settings for a security protocol; certificates are made in `directory`.

    Raises SecurityNotPossible.
    """
    if protocol not in PROTOCOLS:
        raise SecurityNotPossible(
            f"{protocol} is no security protocol (there are: {', '.join(PROTOCOLS)})"
        )
    if protocol == "PLAINTEXT":
        return Security()
    brokers = {
        "listener.security.protocol.map": f"PLAINTEXT:{protocol},CONTROLLER:PLAINTEXT",
        "super.users": f"User:{ADMIN}",
    }
    clients = {"security.protocol": protocol}
    if protocol.startswith("SASL"):
        brokers |= {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.plaintext.plain.sasl.jaas.config": _JAAS,
        }
        clients |= {
            "sasl.mechanism": "PLAIN",
            "sasl.username": CLIENT,
            "sasl.password": CLIENT_PASSWORD,
        }
    if protocol.endswith("SSL"):
        _make_certificate(directory)
        brokers |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(directory / KEY_AND_CERTIFICATE),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(directory / CERTIFICATE),
        }
        clients["ssl.ca.location"] = str(directory / CERTIFICATE)
    return Security(brokers=brokers, clients=clients)


def _make_certificate(directory: Path) -> None:
    if shutil.which("openssl") is None:
        raise SecurityNotPossible("TLS needs the `openssl` command, to make a certificate")
    directory.mkdir(parents=True, exist_ok=True)
    key, certificate = directory / "key.pem", directory / CERTIFICATE
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    (directory / KEY_AND_CERTIFICATE).write_bytes(key.read_bytes() + certificate.read_bytes())

"""Clusters whose brokers require a login or a certificate start like others, and a failed start
reports the reason.
"""

import asyncio
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import pbkdf2_hmac
from pathlib import Path

import pytest

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.readiness import ClusterFailed, NotReady, listeners_of
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.server.broker import Broker
from kraftsim.server.outbound import PeerConnection
from kraftsim.server.rules_authentication import ClientExchange, ScramClient, draw_nonce
from kraftsim.server.security.login import AuthenticationFailed, LinkSecurity
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)

PROJECT_ROOT = Path(__file__).parents[2]
PAGE = PROJECT_ROOT / "docs" / "clusters.md"
SHA_256 = "SCRAM-SHA-256"
SCRAM_TYPE = 1
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret" user_alice="alice-secret";'
)
SASL = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
}
Running = Callable[[ClusterSpec, Path], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with both.pem and certificate.pem, created by the commands of the docs page."""
    directory = tmp_path_factory.mktemp("certificates")
    subprocess.run(
        ["bash", "-ec", blocks("bash")[1]], cwd=directory, check=True, capture_output=True
    )
    return directory


def blocks(language: str) -> list[str]:
    """The examples of the docs page, in order."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def settings_for(protocol: str, certificates: Path) -> dict[str, str]:
    tls = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates / "both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "certificate.pem"),
    }
    return {
        "listener.security.protocol.map": f"PLAINTEXT:{protocol},CONTROLLER:PLAINTEXT",
        **(SASL if protocol.startswith("SASL") else {}),
        **(tls if protocol.endswith("SSL") else {}),
    }


@contextmanager
def embedded(spec: ClusterSpec, directory: Path) -> Iterator[None]:
    with EmbeddedCluster(spec, RunDirectory(directory)):
        yield


@contextmanager
def processes(spec: ClusterSpec, directory: Path) -> Iterator[None]:
    cluster = ProcessCluster(spec, RunDirectory(directory))
    with asyncio.Runner() as runner:
        runner.run(cluster.start())
        try:
            yield
        finally:
            runner.run(cluster.stop())


async def brokers_seen(spec: ClusterSpec, security: LinkSecurity | None, user: str = "") -> int:
    """The number of brokers that a client finds when it logs in as a broker; with `user` as a SCRAM
    user that it creates first.
    """
    node = spec.node("broker-1")
    connection = PeerConnection(node.host, node.port, client_id="client", security=security)
    await connection.connect()
    if user:
        made = ScramCredentialUpsertion(
            name=user,
            mechanism=SCRAM_TYPE,
            iterations=4096,
            salt=b"salt",
            salted_password=pbkdf2_hmac("sha256", b"secret", b"salt", 4096),
        )
        answer = await connection.request(AlterUserScramCredentialsRequest(upsertions=[made]))
        assert (
            isinstance(answer, AlterUserScramCredentialsResponse)
            and answer.results[0].error_code == 0
        )
        connection.close()
        assert security is not None
        return await brokers_seen(
            spec, LinkSecurity(security.tls, SHA_256, lambda: scram_client(user))
        )
    answer = await connection.request(MetadataRequest(topics=[]))
    connection.close()
    assert isinstance(answer, MetadataResponse)
    return len(answer.brokers)


def scram_client(user: str) -> ClientExchange:
    return ScramClient(SHA_256, user, "secret", draw_nonce(lambda bits: 7))


@pytest.mark.parametrize(
    ("running", "protocol"),
    [
        (embedded, "SASL_PLAINTEXT"),
        (embedded, "SSL"),
        (embedded, "SASL_SSL"),
        (processes, "SASL_SSL"),
    ],
)
def test_a_secured_cluster_starts_and_accepts_clients(
    running: Running, protocol: str, certificates: Path, tmp_path: Path
) -> None:
    brokers = 2 if protocol == "SASL_SSL" else 1
    spec = ClusterSpec(
        brokers=brokers,
        port=free_port_range(brokers),
        settings=settings_for(protocol, certificates),
    )
    (listener, *_) = listeners_of([spec.node(name) for name in spec.broker_names], {})
    assert listener.security is not None
    with running(spec, tmp_path / "run"):
        assert asyncio.run(brokers_seen(spec, listener.security)) == brokers
        if protocol.startswith("SASL"):
            assert asyncio.run(brokers_seen(spec, listener.security, "bob")) == brokers
            with pytest.raises(AuthenticationFailed):
                asyncio.run(
                    brokers_seen(
                        spec,
                        LinkSecurity(listener.security.tls, SHA_256, lambda: scram_client("eve")),
                    )
                )


def test_failed_tls_handshakes_are_reported_and_leave_no_connection(
    certificates: Path, tmp_path: Path
) -> None:
    spec = ClusterSpec(
        brokers=1, port=free_port_range(1), settings=settings_for("SSL", certificates)
    )
    with EmbeddedCluster(spec, RunDirectory(tmp_path / "run")) as cluster:
        broker = cluster._nodes["broker-1"].node
        assert isinstance(broker, Broker)
        listeners = broker._listeners
        address = (spec.node("broker-1").host, spec.node("broker-1").port)
        before = listeners.connection_count
        for _ in range(5):
            with socket.create_connection(address) as client:
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert client.recv(100) == b"", "the broker closes the connection"
        with (
            pytest.raises(ssl.SSLCertVerificationError),
            socket.create_connection(address) as client,
        ):
            ssl.create_default_context().wrap_socket(client, server_hostname="127.0.0.1")
        assert listeners.connection_count <= before
    events = (tmp_path / "run" / "events" / "broker-1.1.jsonl").read_text()
    assert events.count('"kind":"TlsHandshakeFailed"') == 6


@pytest.mark.parametrize("running", [embedded, processes])
def test_a_refused_login_aborts_the_start_and_is_named(
    running: Running, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = JAAS.replace('password="admin-secret"', 'password="wrong"')
    settings = settings_for("SASL_PLAINTEXT", tmp_path) | {
        "listener.name.plaintext.plain.sasl.jaas.config": wrong
    }
    spec = ClusterSpec(brokers=1, port=free_port_range(1), settings=settings)
    with (
        pytest.raises(
            NotReady,
            match=r"broker-1, listener PLAINTEXT \(SASL_PLAINTEXT\) at .*: Authentication failed: "
            r"Invalid username or password",
        ),
        running(spec, tmp_path / "run"),
    ):
        pass
    assert "was destroyed but it is pending" not in capfd.readouterr().err


def test_an_untrusted_certificate_aborts_the_start_and_is_named(
    certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftsim.cluster.embedded.READY_SECONDS", 6.0)
    settings = settings_for("SSL", certificates)
    del settings["ssl.truststore.location"]
    spec = ClusterSpec(brokers=1, port=free_port_range(1), settings=settings)
    with (
        pytest.raises(
            NotReady, match=r"broker-1, listener PLAINTEXT \(SSL\) at .*certificate verify failed"
        ),
        embedded(spec, tmp_path / "run"),
    ):
        pass


@pytest.mark.parametrize("running", [embedded, processes])
def test_a_slow_start_reports_what_it_waits_for(
    running: Running,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Two of three voters are missing: no controller is elected, and no broker can register."""
    monkeypatch.setattr("kraftsim.cluster.embedded.READY_SECONDS", 1.0)
    monkeypatch.setattr(ProcessCluster.start, "__kwdefaults__", {"timeout_seconds": 4.0})
    port = free_port_range(1, controllers=3)
    voters = ",".join(f"{101 + index}@127.0.0.1:{port + 100 + index}" for index in range(3))
    spec = ClusterSpec(brokers=1, port=port, settings={"controller.quorum.voters": voters})
    with (
        pytest.raises((NotReady, ClusterFailed), match="broker-1"),
        running(spec, tmp_path / "run"),
    ):
        pass
    assert "was destroyed but it is pending" not in capfd.readouterr().err


@pytest.mark.interop
def test_the_examples_of_the_docs_page_work(tmp_path: Path, certificates: Path) -> None:
    port = free_port_range(1)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    start, make = blocks("bash")
    client, test = blocks("python")
    run("bash", "-ec", make)
    try:
        assert (
            run("bash", "-ec", start.replace("9092", str(port))).strip()
            == f"bootstrap.servers=127.0.0.1:{port}"
        )
        assert run(sys.executable, "-c", client.replace("9092", str(port))).strip() == "[1]"
    finally:
        run(sys.executable, "-m", "kraftsim", "down", "--data", "runs/secured")
    (tmp_path / "test_sample.py").write_text(test)
    assert "1 passed" in run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sample.py"
    )

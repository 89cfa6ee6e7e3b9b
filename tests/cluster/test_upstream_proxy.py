"""The proxy in front of another cluster: clients that begin there stay there, faults and conditions
meet them, logins and certificates work, and what they did can be judged.
"""

import asyncio
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from hashlib import pbkdf2_hmac
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from kraftsim import Cluster
from kraftsim.cli.main import kraftsim
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.proxy.upstream import recording
from kraftsim.cluster.proxy.upstream.final_logs import LogsNotRead
from kraftsim.cluster.proxy.upstream.tls_contexts import (
    client_context,
    node_context,
    own_security,
)
from kraftsim.cluster.proxy.upstream.upstream_proxy import (
    UpstreamError,
    UpstreamPlan,
    UpstreamProxy,
)
from kraftsim.inspect.capture import CaptureReader, CaptureSettings
from kraftsim.inspect.conversation import Exchange
from kraftsim.lab.faults.field import Condition
from kraftsim.lab.faults.rules_request_faults import RequestAction, RequestFault, RequestHit
from kraftsim.server.outbound import PeerConnection
from kraftsim.server.rules_authentication import ClientExchange, PlainClient
from kraftsim.server.security.login import LinkSecurity
from protocol.api_keys import ApiKey
from protocol.frames import SIZE
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.k18_api_versions import ApiVersionsResponse
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from protocol.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.requests import read_request_head, response_chunks
from tests.cluster.broker_client import batch_of
from tests.cluster.test_secured_start import SCRAM_TYPE, scram_client, settings_for
from tests.cluster.test_secured_start import certificates as certificates

SECONDS = 10.0
PRODUCE, METADATA = int(ApiKey.PRODUCE), int(ApiKey.METADATA)
ANY_PORT = 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings={"broker.session.timeout.ms": "60000"}) as running:
        running.create_topic("orders", partitions=3)
        yield running


def address_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


@asynccontextmanager
async def in_front_of(
    bootstrap: str,
    *,
    directory: Path | None = None,
    capture: Path | None = None,
    tls: tuple[ssl.SSLContext | None, ssl.SSLContext | None] = (None, None),
    own: LinkSecurity | None = None,
) -> AsyncIterator[UpstreamProxy]:
    """A proxy in front of the first of the bootstrap servers."""
    plan = UpstreamPlan(upstream=(address_of(bootstrap.split(",")[0]),), port=ANY_PORT)
    proxy = UpstreamProxy(
        plan,
        asyncio.get_running_loop(),
        client_tls=tls[0],
        node_tls=tls[1],
        own_security=own,
        directory=None if directory is None else RunDirectory(directory),
        capture=capture,
    )
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.close()


@asynccontextmanager
async def connected(
    address: str, client_id: str = "app", security: LinkSecurity | None = None
) -> AsyncIterator[PeerConnection]:
    host, port = address_of(address)
    connection = PeerConnection(host, port, client_id=client_id, security=security)
    await connection.connect()
    try:
        yield connection
    finally:
        connection.close()


def producing(topic: str, *, count: int = 1) -> ProduceRequest:
    batch = batch_of([b"v%d" % number for number in range(count)])
    return ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
            )
        ],
    )


async def metadata(connection: PeerConnection, version: int | None = None) -> MetadataResponse:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    answer = await connection.request(asked, api_version=version)
    assert isinstance(answer, MetadataResponse)
    return answer


async def leader_of_orders(proxy: UpstreamProxy) -> str:
    """The address at which clients find the leader of orders-0."""
    async with connected(proxy.bootstrap) as connection:
        answer = await metadata(connection)
    leader = answer.topics[0].partitions[0].leader_id
    return next(f"{each.host}:{each.port}" for each in answer.brokers if each.node_id == leader)


async def produced(connection: PeerConnection, *, count: int = 1) -> int:
    """Produce to orders-0; return the error code."""
    answer = await connection.request(producing("orders", count=count), api_version=9)
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not is_so():
            await asyncio.sleep(0.01)


# --------------------------------------------------------------------------------------------------
# Addresses


async def test_clients_stay_at_the_proxy(cluster: Cluster) -> None:
    """Whatever tells them an address; and each port leads to the broker of its id."""
    async with in_front_of(cluster.bootstrap) as proxy:
        assert [node.name for node in proxy.nodes] == ["broker-1", "broker-2", "broker-3"]
        ports = {node.node_id: node.listens_port for node in proxy.nodes}
        async with connected(proxy.bootstrap) as connection:
            for version in range(connection.version_for(METADATA) + 1):
                brokers = (await metadata(connection, version)).brokers
                assert {each.node_id: each.port for each in brokers} == ports, version
                assert {each.host for each in brokers} == {"127.0.0.1"}
            described = await connection.request(DescribeClusterRequest())
            assert isinstance(described, DescribeClusterResponse)
            assert {each.broker_id: each.port for each in described.brokers} == ports
            found = await connection.request(
                FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), api_version=4
            )
            assert isinstance(found, FindCoordinatorResponse)
            assert found.coordinators[0].port == ports.get(found.coordinators[0].node_id, -1)
        direct = {each.port: name for each, name in zip(proxy.nodes, proxy.node_names, strict=True)}
        assert len(direct) == len(cluster.broker_names)
        for node in proxy.nodes:
            async with connected(proxy.address_of(node)) as connection:
                await metadata(connection)


class FakeBroker:
    """Answers ApiVersions and Metadata; what it says of the brokers changes."""

    def __init__(self) -> None:
        self.brokers: list[MetadataResponseBroker] = []
        self.port = 0
        self.accepted = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            while True:
                size = SIZE.unpack(await reader.readexactly(4))[0]
                head = read_request_head(await reader.readexactly(size))
                body: ApiVersionsResponse | MetadataResponse = (
                    MetadataResponse(brokers=self.brokers)
                    if head.api_key == METADATA
                    else ApiVersionsResponse()
                )
                chunks = response_chunks(head.api_key, head.api_version, head.correlation_id, body)
                writer.write(b"".join(chunks))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def fake_brokers(count: int) -> AsyncIterator[list[FakeBroker]]:
    brokers = [FakeBroker() for _ in range(count)]
    for broker in brokers:
        await broker.open()
    try:
        yield brokers
    finally:
        for broker in brokers:
            broker.close()


def broker(node_id: int, port: int) -> MetadataResponseBroker:
    return MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port)


async def test_broker_keeps_its_port_when_it_moves() -> None:
    """A broker that comes later gets the next port; new connections follow one that moves."""
    async with fake_brokers(3) as (first, second, third):
        first.brokers = [broker(1, first.port), broker(2, second.port)]
        async with in_front_of(f"127.0.0.1:{first.port}") as proxy:
            ports = [node.listens_port for node in proxy.nodes]
            first.brokers = [broker(1, first.port), broker(2, third.port), broker(9, second.port)]
            async with connected(proxy.bootstrap) as connection:
                await connection.request(MetadataRequest(topics=[]), api_version=9)
            assert [node.name for node in proxy.nodes] == ["broker-1", "broker-2", "broker-9"]
            assert [node.listens_port for node in proxy.nodes][:2] == ports
            before = third.accepted
            async with connected(f"127.0.0.1:{ports[1]}") as connection:
                await connection.request(MetadataRequest(topics=[]), api_version=9)
            assert third.accepted == before + 1


async def test_several_upstreams_have_a_port_each() -> None:
    """Also one that is down: the others are enough. Names come with the first response."""
    async with fake_brokers(2) as (first, second):
        down = socket.create_server(("127.0.0.1", 0))
        addresses = (
            ("127.0.0.1", int(down.getsockname()[1])),
            ("127.0.0.1", first.port),
            ("127.0.0.1", second.port),
        )
        down.close()
        loop = asyncio.get_running_loop()
        proxy = UpstreamProxy(UpstreamPlan(upstream=addresses, port=ANY_PORT), loop)
        await proxy.open()
        assert len(proxy.bootstrap.split(",")) == 3
        assert proxy.node_names == ["upstream-1", "upstream-2", "upstream-3"]
        first.brokers = [broker(5, second.port)]
        async with connected(proxy.bootstrap.split(",")[1]) as connection:
            await connection.request(MetadataRequest(topics=[]), api_version=9)
        assert proxy.node_names == ["upstream-1", "upstream-2", "broker-5"]
        await proxy.close()


async def test_ports_follow_the_first_one(tmp_path: Path) -> None:
    """Those that are taken are left out; a first one that is taken is an error."""
    async with fake_brokers(1) as (first,):
        first.brokers = [broker(1, first.port), broker(2, 9092), broker(3, 9093)]
        loop = asyncio.get_running_loop()
        begin = free_port_range(8)
        plan = UpstreamPlan(upstream=(("127.0.0.1", first.port),), port=begin)
        with socket.create_server(("127.0.0.1", begin + 1)):
            proxy = UpstreamProxy(plan, loop)
            await proxy.open()
            ports = [node.listens_port for node in proxy.nodes]
            assert ports[0] == begin and ports[1] > begin + 1 and ports[2] > ports[1]
            with pytest.raises(
                UpstreamError, match=f"cannot listen on 127.0.0.1:{begin}: .*--port"
            ):
                await UpstreamProxy(plan, loop, directory=RunDirectory(tmp_path)).open()
            await proxy.close()


async def test_proxy_ends_when_no_port_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of a broker that nothing listens for would lead clients past the proxy."""
    async with fake_brokers(1) as (first,):
        first.brokers = [broker(1, first.port)]
        begin = free_port_range(8)
        monkeypatch.setattr("kraftsim.cluster.proxy.upstream.upstream_proxy.PORTS_TRIED", 1)
        plan = UpstreamPlan(upstream=(("127.0.0.1", first.port),), port=begin)
        proxy = UpstreamProxy(plan, asyncio.get_running_loop())
        await proxy.open()
        first.brokers = [broker(1, first.port), broker(2, 9092)]
        with socket.create_server(("127.0.0.1", begin + 1)):
            async with connected(proxy.bootstrap) as connection:
                await connection.request(MetadataRequest(topics=[]), api_version=9)
        await asyncio.wait_for(proxy.has_failed.wait(), SECONDS)
        assert "is free" in str(proxy.trouble)
        await proxy.close()


# --------------------------------------------------------------------------------------------------
# Faults and conditions


def fault(action: RequestAction, **options: object) -> RequestFault:
    return msgspec.convert({"action": action, "api": PRODUCE, **options}, RequestFault)


async def test_fault_meets_a_connection_that_is_open(cluster: Cluster) -> None:
    """By its node, and of the next requests; then everything passes again."""
    hits: list[RequestHit] = []
    async with (
        in_front_of(cluster.bootstrap) as proxy,
        connected(await leader_of_orders(proxy)) as connection,
    ):
        assert await produced(connection) == 0
        number = proxy.add_fault(
            fault(RequestAction.ERROR, error=6, times=2, topic="orders"), hits.append
        )
        assert [await produced(connection) for _ in range(3)] == [6, 6, 0]
        (status,) = proxy.fault_status()
        assert (status.number, status.effects, status.is_over) == (number, 2, True)
        assert {hit.node for hit in hits} <= set(proxy.node_names) and len(hits) == 2
        proxy.end_fault(number)
        await until(lambda: not proxy.has_gates)
        assert await produced(connection) == 0


async def test_topic_is_known_by_its_id(cluster: Cluster) -> None:
    """Produce names the id alone since version 13; the proxy has learned it from Metadata."""
    async with in_front_of(cluster.bootstrap) as proxy:
        address = await leader_of_orders(proxy)
        proxy.add_fault(fault(RequestAction.ERROR, error=6, topic="other"))
        proxy.add_fault(fault(RequestAction.ERROR, error=7, topic="orders"))
        topic_id = next(each for each, name in proxy.topic_names.items() if name == "orders")
        async with connected(address) as connection:
            asked = producing("orders")
            asked.topic_data[0].name, asked.topic_data[0].topic_id = "", topic_id
            answer = await connection.request(asked, api_version=13)
            assert isinstance(answer, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 7


async def test_black_hole_catches_clients_that_are_connected(cluster: Cluster) -> None:
    """Their connections stay open; other clients go on, and they go on when it ends."""
    async with in_front_of(cluster.bootstrap) as proxy:
        address = await leader_of_orders(proxy)
        async with connected(address, "app-1") as caught, connected(address, "other") as free:
            assert await produced(caught) == await produced(free) == 0
            number = proxy.add_fault(
                RequestFault(action=RequestAction.BLACKHOLE, client_id="app-*", times=None)
            )
            waiting = asyncio.ensure_future(produced(caught))
            assert await produced(free) == 0
            await asyncio.sleep(0.1)
            assert not waiting.done()
            proxy.end_fault(number)
            assert await asyncio.wait_for(waiting, SECONDS) == 0


async def test_fault_ends_after_its_duration(cluster: Cluster) -> None:
    async with (
        in_front_of(cluster.bootstrap) as proxy,
        connected(await leader_of_orders(proxy)) as connection,
    ):
        proxy.add_fault(fault(RequestAction.ERROR, error=6, times=None, duration_ms=150))
        assert await produced(connection) == 6
        await until(lambda: proxy.fault_status()[0].is_over)
        assert await produced(connection) == 0
        await until(lambda: not proxy.has_gates)


async def test_conditions_of_links(cluster: Cluster) -> None:
    """Held bytes arrive when the condition is lifted; a cut resets connections; a name that is none
    is refused.
    """
    async with in_front_of(cluster.bootstrap) as proxy:
        address = await leader_of_orders(proxy)
        async with connected(address) as connection:
            assert await produced(connection) == 0
            number = proxy.impose(proxy.links("broker-*<>clients"), Condition(holds=True))
            waiting = asyncio.ensure_future(produced(connection))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            assert proxy.lift(number).touched_bytes > 0
            assert await asyncio.wait_for(waiting, SECONDS) == 0
            proxy.impose(proxy.links("broker-*>clients"), Condition(latency_ms=50))
            before = asyncio.get_running_loop().time()
            assert await produced(connection) == 0
            assert asyncio.get_running_loop().time() - before >= 0.045
            assert proxy.lift_all() == 1
            assert proxy.cut(proxy.links("broker-*<>clients")).closed == proxy.connections + 1
            await until(lambda: not connection.is_open)
        with pytest.raises(KeyError):
            proxy.links("broker-77<>clients")


# --------------------------------------------------------------------------------------------------
# TLS and SASL


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL", "SSL"])
async def test_secured_upstream(protocol: str, certificates: Path) -> None:
    """SASL passes: PLAIN and SCRAM. TLS ends at the proxy on both sides, and may be on one."""
    settings = settings_for(protocol, certificates)
    pem, trusted = certificates / "both.pem", certificates / "certificate.pem"
    with Cluster(brokers=2, settings=settings) as running:
        bootstrap = running.bootstrap
        is_tls = protocol.endswith("SSL")
        node_tls = node_context(is_tls, trusted if is_tls else None, None, None)
        node_tls_of_clients = node_context(True, trusted, None, None)
        for client_tls, own_tls in (
            (None, None),
            (client_context(pem, None), node_tls_of_clients),
        ):
            async with in_front_of(bootstrap, tls=(client_tls, node_tls)) as proxy:
                security = (
                    LinkSecurity(own_tls, "PLAIN", plain_admin)
                    if protocol.startswith("SASL")
                    else LinkSecurity(own_tls)
                )
                async with connected(proxy.bootstrap, security=security) as connection:
                    answer = await connection.request(MetadataRequest(topics=[]))
                    assert isinstance(answer, MetadataResponse) and len(answer.brokers) == 2
                    if security.mechanism:
                        await create_scram_user(connection, "bob")
                if security.mechanism:
                    scram = LinkSecurity(own_tls, "SCRAM-SHA-256", lambda: scram_client("bob"))
                    async with connected(proxy.bootstrap, security=scram) as connection:
                        await connection.request(MetadataRequest(topics=[]))
                other = next(
                    node for node in proxy.nodes if proxy.address_of(node) != proxy.bootstrap
                )
                async with connected(proxy.address_of(other), security=security) as connection:
                    await connection.request(MetadataRequest(topics=[]))
                with pytest.raises(OSError):
                    async with connected(
                        proxy.bootstrap,
                        security=LinkSecurity(own_tls, "SCRAM-SHA-256", lambda: scram_client("eve"))
                        if protocol.startswith("SASL")
                        else LinkSecurity(None if own_tls else node_tls_of_clients),
                    ):
                        pass


async def create_scram_user(connection: PeerConnection, user: str) -> None:
    made = ScramCredentialUpsertion(
        name=user,
        mechanism=SCRAM_TYPE,
        iterations=4096,
        salt=b"salt",
        salted_password=pbkdf2_hmac("sha256", b"secret", b"salt", 4096),
    )
    answer = await connection.request(AlterUserScramCredentialsRequest(upsertions=[made]))
    assert isinstance(answer, AlterUserScramCredentialsResponse)
    assert answer.results[0].error_code == 0


def plain_admin() -> ClientExchange:
    return PlainClient("admin", "admin-secret")


async def test_tls_client_at_a_port_without_tls(cluster: Cluster, certificates: Path) -> None:
    """It is refused, and said once: the proxy cannot pass on what it cannot read."""
    notices: list[str] = []
    tls = node_context(True, certificates / "certificate.pem", None, None)
    async with in_front_of(cluster.bootstrap) as proxy:
        proxy.on_notice = notices.append
        for _ in range(2):
            with pytest.raises(OSError):
                async with connected(proxy.bootstrap, security=LinkSecurity(tls)):
                    pass
    assert len(notices) == 1 and "--tls-cert" in notices[0]


async def test_end_of_the_proxy_ends_connections_with_tls(
    cluster: Cluster, certificates: Path
) -> None:
    tls = client_context(certificates / "both.pem", None)
    trusting = node_context(True, certificates / "certificate.pem", None, None)
    async with (
        in_front_of(cluster.bootstrap, tls=(tls, None)) as proxy,
        connected(proxy.bootstrap, security=LinkSecurity(trusting)) as connection,
    ):
        await metadata(connection)
        await proxy.close()
        await until(lambda: not connection.is_open)


# --------------------------------------------------------------------------------------------------
# What is wrong is said in one line


async def refused(port: int, node_tls: ssl.SSLContext | None = None) -> str:
    plan = UpstreamPlan(upstream=(("127.0.0.1", port),), port=ANY_PORT)
    with pytest.raises(UpstreamError) as caught:
        await UpstreamProxy(plan, asyncio.get_running_loop(), node_tls=node_tls).open()
    return str(caught.value)


async def test_upstream_that_cannot_be_used(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens; it is silent; it speaks HTTP; it speaks TLS, or does not."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
        monkeypatch.setattr("kraftsim.cluster.proxy.upstream.upstream_proxy.PROBE_SECONDS", 0.2)
        assert "does not answer within 0.2 s" in await refused(port)
    assert f"cannot reach 127.0.0.1:{port}" in await refused(port)
    monkeypatch.setattr("kraftsim.cluster.proxy.upstream.upstream_proxy.PROBE_SECONDS", 5.0)

    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(http, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert "does not answer as a Kafka broker" in await refused(port)
    tls = node_context(True, certificates / "certificate.pem", None, None)
    assert tls is not None
    assert "does the listener use TLS" in await refused(port, node_tls=tls)
    server.close()
    server = await asyncio.start_server(
        http, "127.0.0.1", 0, ssl=client_context(certificates / "both.pem", None)
    )
    port = server.sockets[0].getsockname()[1]
    assert "--upstream-tls" in await refused(port)
    wrong = node_context(True, None, None, None)
    assert wrong is not None
    assert "--upstream-ca" in await refused(port, node_tls=wrong)
    server.close()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--upstream", "kafka"], "write --upstream HOST:PORT"),
        (["--upstream", "kafka:99999"], "write --upstream HOST:PORT"),
        (["--upstream", "h:1", "--inject", "EndTxn eror=X"], "eror"),
        (["--upstream", "h:1", "--host", "0.0.0.0"], "needs --advertised-host"),
        (["--upstream", "h:1", "--read-back"], "--read-back needs --data"),
        (["--upstream", "h:1", "--upstream-ca", __file__], "need --upstream-tls"),
        (["--upstream", "h:1", "--tls-key", __file__], "--tls-key needs --tls-cert"),
        (["--upstream", "h:1", "--tls-cert", __file__], "--tls-cert"),
        (["--upstream", "h:1", "--upstream-tls", "--upstream-ca", __file__], "no certificate"),
        (["--upstream", "h:1", "--upstream-tls", "--upstream-key", __file__], "--upstream-cert"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], reason: str) -> None:
    """In one line, with exit code 3."""
    done = CliRunner().invoke(kraftsim, ["proxy", *arguments])
    assert done.exit_code == 3 and reason in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_the_command_says_where_clients_connect(cluster: Cluster, tmp_path: Path) -> None:
    """On its first line; then the brokers, and what faults did; SIGTERM ends it."""
    bootstrap = cluster.bootstrap.split(",")[0]
    command = [sys.executable, "-u", "-m", "kraftsim", "proxy", "--upstream", bootstrap]
    command += ["--port", "0", "--inject", "Metadata error=UNKNOWN_SERVER_ERROR version=9"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip().removeprefix("bootstrap.servers=")
        lines = [process.stdout.readline().split() for _ in cluster.broker_names]
        assert lines[0] == ["broker-1", address, "->", bootstrap]
        assert "error UNKNOWN_SERVER_ERROR for Metadata" in process.stdout.readline()

        async def ask() -> None:
            async with connected(address) as connection:
                await connection.request(
                    MetadataRequest(topics=[MetadataRequestTopic(name="t")]), api_version=9
                )

        asyncio.run(ask())
        assert "Metadata v9 of client 'app' at broker-1" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


# --------------------------------------------------------------------------------------------------
# The event log


def kinds_in(directory: Path) -> list[str]:
    lines = (directory / "events" / "clients.1.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line)["kind"] for line in lines]


async def test_what_clients_did_is_recorded(cluster: Cluster, tmp_path: Path) -> None:
    """Records that were acknowledged, and some whose acknowledgement a fault kept away."""
    async with in_front_of(cluster.bootstrap, directory=tmp_path / "run") as proxy:
        address = await leader_of_orders(proxy)
        async with connected(address) as connection:
            assert await produced(connection, count=3) == 0
            proxy.add_fault(fault(RequestAction.DROP, done=True))
            lost = asyncio.ensure_future(produced(connection, count=2))
            await until(lambda: proxy.fault_status()[0].effects == 1)
        with pytest.raises(OSError):
            await lost
    kinds = kinds_in(tmp_path / "run")
    assert kinds.count("RecordSent") == 5
    assert kinds.count("RecordAcknowledged") == 3


async def test_slow_recorder_holds_clients_back(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left out: the proxy reads no more until the other process goes on."""
    monkeypatch.setattr(recording, "QUEUE_MAX_BYTES", 1000)
    monkeypatch.setattr(recording, "_widen", lambda pipe: None)
    async with in_front_of(cluster.bootstrap, directory=tmp_path / "run") as proxy:
        address = await leader_of_orders(proxy)
        assert proxy.recorder is not None
        async with connected(address) as connection:
            os.kill(proxy.recorder.pid, signal.SIGSTOP)
            try:
                waiting = [
                    asyncio.ensure_future(produced(connection, count=400)) for _ in range(40)
                ]
                await until(lambda: proxy.recorder is not None and proxy.recorder.is_full)
                await asyncio.sleep(0.2)
                assert not all(each.done() for each in waiting)
            finally:
                os.kill(proxy.recorder.pid, signal.SIGCONT)
            assert set(await asyncio.wait_for(asyncio.gather(*waiting), SECONDS)) == {0}
    assert kinds_in(tmp_path / "run").count("RecordAcknowledged") == 16_000


async def test_recorder_that_ends_stops_the_proxy(cluster: Cluster, tmp_path: Path) -> None:
    """An event log with a gap would be judged wrongly."""
    async with in_front_of(cluster.bootstrap, directory=tmp_path / "run") as proxy:
        assert proxy.recorder is not None
        os.kill(proxy.recorder.pid, signal.SIGKILL)
        await asyncio.wait_for(proxy.has_failed.wait(), SECONDS)
        assert "the process that records has ended" in str(proxy.trouble)


def final_events(directory: Path, kind: str) -> list[dict[str, object]]:
    lines = (directory / "events" / "final.1.jsonl").read_bytes().splitlines()
    return [event for event in map(msgspec.json.decode, lines) if event["kind"] == kind]


async def produce_to_a_compacted_topic(proxy: UpstreamProxy) -> None:
    config = CreatableTopicConfig(name="cleanup.policy", value="compact")
    wanted = CreatableTopic(
        name="compacted", num_partitions=1, replication_factor=3, configs=[config]
    )
    async with connected(proxy.bootstrap) as connection:
        await connection.request(CreateTopicsRequest(topics=[wanted], timeout_ms=5000))
    error = -1
    async with asyncio.timeout(SECONDS):
        while error:
            for node in proxy.nodes:
                async with connected(proxy.address_of(node)) as connection:
                    answer = await connection.request(producing("compacted"), api_version=9)
                    assert isinstance(answer, ProduceResponse)
                    error = answer.responses[0].partition_responses[0].error_code
                if not error:
                    break


async def test_final_logs_are_read_back(cluster: Cluster, tmp_path: Path) -> None:
    """From the first record on that was acknowledged through the proxy; compacted topics are left
    out.
    """
    async with in_front_of(cluster.bootstrap, directory=tmp_path / "run") as proxy:
        address = await leader_of_orders(proxy)
        leader = next(each for each in proxy.nodes if proxy.address_of(each) == address)
        async with connected(f"{leader.host}:{leader.port}") as direct:
            assert await produced(direct, count=5) == 0
        async with connected(address) as connection:
            assert await produced(connection, count=4) == 0
            assert await produced(connection, count=2) == 0
        await produce_to_a_compacted_topic(proxy)
    assert await proxy.read_back() == 1
    (log,) = final_events(tmp_path / "run", "FinalLog")
    records = final_events(tmp_path / "run", "FinalRecord")
    assert (log["topic"], log["broker"], log["record_count"]) == ("orders", leader.name, 6)
    assert [each["offset"] for each in records] == list(
        range(int(str(log["log_start_offset"])), int(str(log["next_offset"])))
    )


LOGIN = {
    "PLAIN": """org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password="admin-secret";""",
    "SCRAM-SHA-256": """org.apache.kafka.common.security.scram.ScramLoginModule required
        username="bob" password="secret";""",
}


async def test_final_logs_are_read_with_a_login(certificates: Path, tmp_path: Path) -> None:
    """Of the proxy's own, by PLAIN or SCRAM; a client keeps its own, and a wrong one is named."""
    plain = LinkSecurity(None, "PLAIN", plain_admin)
    with Cluster(brokers=1, settings=settings_for("SASL_PLAINTEXT", certificates)) as running:
        for number, mechanism in enumerate(LOGIN):
            settings = {"sasl.mechanism": mechanism, "sasl.jaas.config": LOGIN[mechanism]}
            own = own_security(None, settings)
            async with (
                in_front_of(running.bootstrap, directory=tmp_path / mechanism, own=own) as proxy,
                connected(proxy.bootstrap, security=plain) as connection,
            ):
                if not number:
                    await create_scram_user(connection, "bob")
                    wanted = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
                    await connection.request(CreateTopicsRequest(topics=[wanted]))
                while await produced(connection, count=3):
                    await asyncio.sleep(0.05)
            assert await proxy.read_back() == 1
            (log,) = final_events(tmp_path / mechanism, "FinalLog")
            assert log["record_count"] == 3
            proxy.own_security = own_security(
                None, {**settings, "sasl.jaas.config": LOGIN[mechanism].replace("secret", "wrong")}
            )
            with pytest.raises(LogsNotRead, match="uthentication failed"):
                await proxy.read_back()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism is 'GSSAPI', not one of PLAIN"),
        ({"sasl.jaas.config": LOGIN["PLAIN"]}, "sasl.mechanism is ''"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config: expected a login module"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "a.B required;"}, "has no username"),
        ({"security.protocol": "SASL_SSL"}, "--upstream-tls says which it is"),
    ],
)
def test_login_that_cannot_be_used_is_refused(settings: dict[str, str], said: str) -> None:
    """Without the text of the entry, which has secrets."""
    with pytest.raises(ValueError, match=re.escape(said)):
        own_security(None, settings)


async def test_logs_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """Nothing was written: there is nothing to read; else the reason is one line."""
    events = tmp_path / "events"
    events.mkdir()
    plan = UpstreamPlan(upstream=(("127.0.0.1", 1),), port=ANY_PORT)
    proxy = UpstreamProxy(plan, asyncio.get_running_loop(), directory=RunDirectory(tmp_path))
    assert await proxy.read_back() == 0
    (events / "clients.1.jsonl").write_text(
        '{"topic":"t","partition":0,"offset":7,"kind":"RecordAcknowledged"}\n'
    )
    with pytest.raises(LogsNotRead, match="the final logs cannot be read"):
        await proxy.read_back()


async def test_capture_is_read_by_decode(cluster: Cluster, tmp_path: Path) -> None:
    """Requests and responses in order, of several connections, one with a large request."""
    capture = tmp_path / "talk.pcap"
    async with in_front_of(cluster.bootstrap, capture=capture) as proxy:
        address = await leader_of_orders(proxy)
        async with connected(address) as first, connected(address, "other") as second:
            assert await produced(first, count=3) == 0
            assert await produced(second, count=20_000) == 0
    reader = CaptureReader(CaptureSettings())
    with capture.open("rb") as file:
        found = [each for each in reader.read(file) if isinstance(each, Exchange)]
    assert not reader.foreign and not reader.tally.ends_early
    answers = [each for each in found if each.answers is not None]
    assert len(answers) * 2 == len(found), "every request has its response"
    assert [each.said for each in found if each.said] == []
    assert max(len(each.frame.content) for each in found) > 200_000

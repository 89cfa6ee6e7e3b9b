"""HTTP control of an embedded cluster, over a socket, with both clients for Python."""

import asyncio
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

import kraftsim
from kraftsim.control.client import (
    AsyncControlClient,
    ControlClient,
    ControlRefused,
    NoControl,
    StreamedEvent,
)
from kraftsim.control.state.cluster_snapshot import NodeCondition
from kraftsim.lab.faults.rules_request_faults import RequestAction, RequestFault
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from tests.cluster.broker_client import broker_client

SECONDS = 20.0
BROKER, OTHER, CONTROLLER = "broker-1", "broker-2", "controller-101"
UP, DOWN = NodeCondition.UP, NodeCondition.DOWN


@pytest.fixture(scope="module")
def cluster() -> Iterator[kraftsim.Cluster]:
    with kraftsim.Cluster(brokers=2, network_faults=True, http=True) as cluster:
        yield cluster


@pytest.fixture
def control(cluster: kraftsim.Cluster) -> Iterator[ControlClient]:
    with cluster.serve_http() as control:
        yield control


def conditions(control: ControlClient) -> dict[str, NodeCondition]:
    return {node.name: node.condition for node in control.nodes()}


def test_the_port_is_on_loopback_and_stays(
    cluster: kraftsim.Cluster, control: ControlClient
) -> None:
    assert control.url.startswith("http://127.0.0.1:")
    with cluster.serve_http() as again:
        assert (again.url, again.token) == (control.url, control.token)
    described = control.describe()
    assert described.mode == "embedded" and cluster.bootstrap
    impossible = {verb.verb: verb.reason for verb in described.verbs if not verb.is_possible}
    assert set(impossible) == {"pause", "resume"} and "share a thread" in impossible["pause"]


def test_nodes_are_killed_and_restarted(control: ControlClient) -> None:
    assert conditions(control) == {CONTROLLER: UP, BROKER: UP, OTHER: UP}
    (killed,) = control.kill(OTHER)
    assert (killed.changed, killed.text) == (True, "broker-2 killed")
    assert not control.kill(OTHER)[0].changed
    assert conditions(control)[OTHER] is DOWN
    assert control.restart(OTHER)[0].text == "broker-2 started again"
    assert conditions(control)[OTHER] is UP
    (stopped,) = control.stop(OTHER)
    assert stopped.text == "broker-2 stopped"
    control.restart("broker-*")
    assert set(conditions(control).values()) == {UP}


def test_a_node_restarts_with_another_release(control: ControlClient) -> None:
    (done,) = control.restart(OTHER, release="4.1", settings={"num.io.threads": "3"})
    assert done.text == "broker-2 stopped and started again as 4.1, was 3.9"
    released = {node.name: node.release for node in control.nodes()}
    assert released[OTHER] == "4.1" and released[BROKER] == "3.9"
    with pytest.raises(ControlRefused, match=r"no release is called 9\.9") as refused:
        control.restart(OTHER, release="9.9")
    assert refused.value.status == 400
    with pytest.raises(ControlRefused, match=r"num\.partition") as refused:
        control.restart(OTHER, settings={"num.partition": "3"})
    assert refused.value.status == 400
    assert conditions(control)[OTHER] is UP, "it was not stopped"


def test_an_upgrade_restarts_the_nodes_in_order(control: ControlClient) -> None:
    done = control.upgrade("4.2")
    assert [each.node for each in done] == [BROKER, OTHER, CONTROLLER]
    assert {node.release for node in control.nodes()} == {"4.2"}


def test_a_disk_fails_while_its_node_is_down(control: ControlClient) -> None:
    with pytest.raises(ControlRefused, match="kill or stop it first") as refused:
        control.fail_disk(OTHER, "lost-disk")
    assert refused.value.status == 409
    with pytest.raises(ControlRefused, match="simulation has it"):
        control.fail_disk(OTHER, "slow-disk")
    with pytest.raises(ControlRefused, match="known: lost-disk, bit-rot"):
        control.fail_disk(OTHER, "melted")
    control.kill(OTHER)
    (done,) = control.fail_disk(OTHER, "lost-disk")
    assert done.changed and done.text.endswith("files are gone")
    assert control.fail_disk(OTHER, "lost-disk")[0].text == "broker-2: the disk was empty"
    assert control.restart(OTHER)[0].text == "broker-2 started again"


def test_links_are_cut_slowed_and_healed(cluster: kraftsim.Cluster, control: ControlClient) -> None:
    """One way, both ways, one by its number; what the fixture cuts is listed, too."""
    (one_way,) = control.cut(f"{BROKER}>{OTHER}")
    (slow,) = control.slow("clients<>broker-*", latency_ms=5, bytes_per_second=100_000)
    cluster.cut(OTHER)
    listed = control.network()
    assert [each.target for each in listed] == [f"{BROKER}>{OTHER}", "clients<>broker-*", OTHER]
    assert [each.words for each in listed] == ["cut", "latency 5 ms, 100000 bytes/s", "cut"]
    control.lift(one_way.number)
    with pytest.raises(ControlRefused) as refused:
        control.lift(one_way.number)
    assert refused.value.status == 404
    assert control.heal(OTHER) == 2
    assert control.network() == ()
    assert control.reset("broker-*").closed >= 1
    with pytest.raises(ControlRefused, match="no node is called"):
        control.cut("broker-1>broker-2>broker-3")
    assert slow.condition.latency_ms == 5
    cluster.cut(BROKER)
    cluster.heal()
    assert control.network() == ()


def test_a_cut_delays_the_clients_until_it_is_healed(
    cluster: kraftsim.Cluster, control: ControlClient
) -> None:
    """The state is still read: past the proxy."""
    port = int(cluster.bootstrap.split(",")[0].rpartition(":")[2])
    control.cut(f"clients<>{BROKER}")
    waiting = threading.Thread(target=_ask_metadata, args=(port,), daemon=True)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    assert {node.condition for node in control.state().nodes} == {UP}
    control.heal()
    waiting.join(SECONDS)
    assert not waiting.is_alive()


def _ask_metadata(port: int) -> None:
    with broker_client(f"127.0.0.1:{port}") as broker:
        broker.metadata("t")


def test_faults_of_requests_say_what_they_took_effect_on(
    cluster: kraftsim.Cluster, control: ControlClient
) -> None:
    fault = RequestFault(
        action=RequestAction.ERROR,
        api=int(ApiKey.INIT_PRODUCER_ID),
        error=int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        times=2,
    )
    port = int(cluster.bootstrap.split(",")[0].rpartition(":")[2])
    added = control.inject(fault)
    assert added.fault == fault and (added.matched, added.effects, added.is_over) == (0, 0, False)
    with broker_client(f"127.0.0.1:{port}") as broker:
        errors = [broker.init_producer_id().error_code for _ in range(3)]
    assert errors[:2] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    report = control.request_fault(added.number)
    assert (report.effects, report.is_over) == (2, True)
    assert [hit.api for hit in report.recent_hits] == ["InitProducerId"] * 2
    text = control.inject("Metadata delay=request delay_ms=1 times=all")
    assert text.number in [each.number for each in control.request_faults()]
    assert control.end_fault(text.number).is_over
    control.inject("Metadata drop=reply nth=1000")
    assert control.end_faults() >= 1
    assert all(each.is_over for each in control.request_faults())


def test_the_state_has_what_the_cluster_did(
    cluster: kraftsim.Cluster, control: ControlClient
) -> None:
    topic = cluster.create_topic(partitions=2)
    deadline = time.monotonic() + SECONDS
    while topic not in {each.name for each in control.state().topics}:
        assert time.monotonic() < deadline
    state = control.state()
    (status,) = [each for each in state.topics if each.name == topic]
    assert len(status.partitions) == 2 and status.partitions[0].high_watermark == 0
    assert state.quorum is not None and state.blocks and state.checks is not None
    assert state.missing == {}
    assert state.checks.violation_count == 0


def test_events_of_the_operator_are_streamed(control: ControlClient) -> None:
    """A kill is in the event log, with its time: the node itself cannot write it."""
    found: list[StreamedEvent] = []
    is_open = threading.Event()

    def watch() -> None:
        for event in control.events(begin="start", nodes=("operator", OTHER)):
            is_open.set()
            found.append(event)
            if event.kind == "NodeStarted" and len(found) > before:
                return

    past = list(control.events(begin="start", follow=False, nodes=("operator", OTHER)))
    before = len(past)
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    assert is_open.wait(SECONDS)
    with ControlClient(control.url, control.token) as other:
        other.kill(OTHER)
        other.restart(OTHER)
    watching.join(SECONDS)
    assert not watching.is_alive()
    new = [(event.node, event.kind, event.fields.get("fault")) for event in found[before:]]
    of_operator = [(kind, fault) for node, kind, fault in new if node == "operator"]
    assert of_operator == [("FaultInjected", "kill"), ("FaultInjected", "restart")]
    assert new[-1][:2] == (OTHER, "NodeStarted")
    assert [event.event_id for event in found[:before]] == [event.event_id for event in past]


async def test_the_client_with_coroutines_does_the_same(control: ControlClient) -> None:
    async with AsyncControlClient(control.url, control.token) as client:
        assert (await client.describe()).mode == "embedded"
        assert (await client.kill(OTHER))[0].changed
        assert (await client.restart(OTHER))[0].text == "broker-2 started again"
        imposed = await client.cut(OTHER)
        assert await client.network() == imposed
        assert (await client.lift(imposed[0].number)).closed == 0
        await client.slow(OTHER, latency_ms=1)
        assert await client.heal() == 1
        report = await client.inject("EndTxn drop=reply")
        assert report in await client.request_faults()
        assert (await client.request_fault(report.number)).matched == 0
        assert (await client.end_fault(report.number)).is_over
        assert await client.end_faults() == 0
        assert len((await client.state()).nodes) == 3
        assert {node.condition for node in await client.nodes()} == {UP}
        kinds = {
            event.kind
            async for event in client.events(begin="start", follow=False, kinds=("NodeStarted",))
        }
        assert kinds == {"NodeStarted"}
        with pytest.raises(ControlRefused):
            await client.pause(BROKER)


async def test_a_stream_is_opened_again_behind_its_last_event(
    control: ControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends in the middle; the client notices no difference."""
    whole = [event.event_id for event in control.events(begin="start", follow=False)]
    seen: list[str] = []
    sent = httpx.AsyncHTTPTransport.handle_async_request
    breaks = iter((3, 2))

    class Breaking(httpx.AsyncByteStream):
        """Lets some events through, then fails."""

        def __init__(self, inner: httpx.AsyncByteStream, events: int) -> None:
            self._inner, self._left = inner, events

        async def __aiter__(self):  # type: ignore[no-untyped-def]  # a generator of bytes
            async for piece in self._inner:
                for block in piece.split(b"\n\n")[:-1]:
                    yield block + b"\n\n"
                    self._left -= block.startswith(b"id")
                    if self._left == 0:
                        raise httpx.ReadError("the connection broke")

    async def handle(transport: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        response = await sent(transport, request)
        count = next(breaks, None)
        if count is not None:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = Breaking(response.stream, count)
        return response

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", handle)
    monkeypatch.setattr("kraftsim.control.client.RETRY_SECONDS", 0)
    async with AsyncControlClient(control.url, control.token) as client, asyncio.timeout(SECONDS):
        async for event in client.events(begin="start"):
            seen.append(event.event_id)
            if len(seen) == len(whole):
                break
    assert seen == whole and next(breaks, None) is None


def test_a_wrong_token_is_an_error_that_says_so(control: ControlClient) -> None:
    with ControlClient(control.url, "0" * 32) as stranger:
        with pytest.raises(ControlRefused, match="the token is wrong") as refused:
            stranger.kill(BROKER)
        assert refused.value.status == 403
        with pytest.raises(ControlRefused, match="the token is wrong"):
            next(stranger.events())


def test_no_proxy_of_the_environment_gets_the_token(
    control: ControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with ControlClient(control.url, control.token) as client:
        assert client.describe().mode == "embedded"


def test_a_data_directory_without_http_is_refused(tmp_path: object) -> None:
    with pytest.raises(NoControl, match="kraftsim up --http 8080"):
        ControlClient.of(str(tmp_path))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_acts_with_the_token(control: ControlClient) -> None:
    words = [
        *("curl", "-sS", "-H", f"Authorization: Bearer {control.token}"),
        *("-d", "EndTxn drop=reply", "-H", "Content-Type: text/plain"),
        f"{control.url}/v1/request-faults",
    ]
    own = {"no_proxy": "127.0.0.1"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=own)
    assert '"text":"EndTxn drop=reply"' in done.stdout
    control.end_faults()


def test_after_the_cluster_nothing_listens() -> None:
    """And its streams have ended."""
    with kraftsim.Cluster() as cluster, cluster.serve_http() as control:
        stream = control.events(begin="start")
        next(stream)
        cluster.stop()
        with pytest.raises(httpx.TransportError):
            control.describe()
        stream.close()  # type: ignore[attr-defined]  # an iterator that is a generator


def test_the_fixture_gives_a_client(
    kraftsim_cluster: kraftsim.Cluster, kraftsim_http: ControlClient
) -> None:
    assert kraftsim_http.describe().bootstrap == kraftsim_cluster.bootstrap

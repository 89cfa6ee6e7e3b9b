"""`kraftsim up --http` and `kraftsim proxy --http`, and the examples of the page about them."""

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kraftsim.cluster.directories import ClusterState, RunDirectory, read_state
from kraftsim.cluster.ports import free_port_range
from kraftsim.control.access import TOKEN_VARIABLE
from kraftsim.control.client import ControlClient, ControlRefused
from kraftsim.control.routes import ROUTES
from kraftsim.control.state.cluster_snapshot import NodeCondition
from tests.cluster.broker_client import broker_client
from tests.cluster.test_up import KRAFTSIM, kraftsim, one_line_of

PROJECT_ROOT = Path(__file__).parents[2]
PAGE = PROJECT_ROOT / "docs" / "http-control.md"
TOKEN = "a/token+of+the=test"
SECONDS = 60.0
QUICK = ("--set", "broker.session.timeout.ms=1000", "--set", "broker.heartbeat.interval.ms=200")


class Served:
    """A cluster of `up --detach --http 0`."""

    def __init__(self, data: Path, *options: str, token: str | None, brokers: int = 2) -> None:
        self.data = data
        self.port = free_port_range(brokers)
        words = ["up", "--brokers", str(brokers), "--port", str(self.port), "--data", str(data)]
        environment = {} if token is None else {TOKEN_VARIABLE: token}
        done = kraftsim(
            *words, "--detach", "--http", "0", *QUICK, *options, environment=environment
        )
        assert done.returncode == 0, done.stderr
        self.shown = done.stdout

    @property
    def state(self) -> ClusterState:
        state = read_state(RunDirectory(self.data))
        assert state is not None
        return state


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("http") / "up"
    try:
        yield Served(data, "--proxy", token=TOKEN)
    finally:
        kraftsim("down", "--data", str(data))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("plain") / "up"
    try:
        yield Served(data, token=None, brokers=1)
    finally:
        kraftsim("down", "--data", str(data))


def test_a_given_token_is_not_shown(served: Served) -> None:
    assert served.state.http_token == TOKEN
    assert served.shown.splitlines()[1:] == [f"http={served.state.http}/"]


def test_a_new_token_is_shown_once(plain: Served) -> None:
    """In the URL of the page. It is in no file but its owner's, and on no command line."""
    state = plain.state
    assert re.fullmatch("[0-9a-f]{32}", state.http_token)
    assert plain.shown.splitlines()[1] == f"http={state.http}/#token={state.http_token}"
    holders = [
        path
        for path in plain.data.rglob("*")
        if path.is_file() and state.http_token.encode() in path.read_bytes()
    ]
    assert [path.name for path in holders] == ["cluster.json"]
    assert holders[0].stat().st_mode & 0o077 == 0
    for pid in (state.supervisor, *state.nodes.values()):
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists():
            assert state.http_token.encode() not in command.read_bytes()


def test_the_supervisor_listens_on_loopback_only(plain: Served) -> None:
    listening = [
        each.laddr.ip
        for each in psutil.Process(plain.state.supervisor).net_connections()
        if each.status == psutil.CONN_LISTEN
    ]
    assert len(listening) == 2, "the control socket and HTTP"
    assert set(listening) == {"127.0.0.1"}


def test_without_a_proxy_links_and_requests_are_409(plain: Served) -> None:
    """With the command that starts a cluster that has them."""
    with ControlClient.of(plain.data) as control:
        for refused_verb in (
            lambda: control.cut("broker-1"),
            lambda: control.inject("EndTxn drop=reply"),
        ):
            with pytest.raises(ControlRefused, match=f"--proxy --data {plain.data}") as refused:
                refused_verb()
            assert refused.value.status == 409
        impossible = [verb.verb for verb in control.describe().verbs if not verb.is_possible]
    assert impossible == ["cut", "slow", "reset", "heal", "inject"]


def test_the_command_line_and_http_do_the_same(plain: Served) -> None:
    """One class carries out both: what one of them paused, the other one knows."""
    with ControlClient.of(plain.data) as control:
        assert kraftsim("pause", "broker-1", "--data", str(plain.data)).returncode == 0
        conditions = {node.name: node.condition for node in control.nodes()}
        assert conditions["broker-1"] is NodeCondition.PAUSED
        assert control.pause("broker-1")[0].text == "broker-1 was paused already"
        assert control.resume()[0].text == "broker-1 resumed"
        before = plain.state.nodes["broker-1"]
        control.kill("broker-1")
        assert "broker-1" not in plain.state.nodes, "cluster.json knows it, too"
        control.restart("broker-1")
        assert plain.state.nodes["broker-1"] != before
        log = list(control.events(begin="start", follow=False, nodes=("operator",)))
    faults = [(event.kind, event.fields["fault"]) for event in log]
    assert faults[:4] == [
        ("FaultInjected", "pause"),
        ("FaultEnded", "pause"),
        ("FaultInjected", "kill"),
        ("FaultInjected", "restart"),
    ]


@pytest.mark.parametrize(
    ("options", "environment", "line"),
    [
        (("--http-token-file", "NONE"), {}, "NONE"),
        ((), {TOKEN_VARIABLE: "short"}, "16 to 256 printable characters"),
        (("--http-host", "192.0.2.1"), {}, "HTTP cannot listen on 192.0.2.1:0"),
        (("--http-host", "192.0.2.1", "--detach"), {}, "HTTP cannot listen on 192.0.2.1:0"),
    ],
)
def test_http_that_cannot_be_served_ends_up_with_one_line(
    options: tuple[str, ...], environment: dict[str, str], line: str, tmp_path: Path
) -> None:
    """Before any node starts; an address that others reach is warned of first."""
    data = tmp_path / "up"
    given = [word.replace("NONE", str(tmp_path / "NONE")) for word in options]
    words = ["up", "--brokers", "1", "--port", str(free_port_range(1)), "--data", str(data)]
    done = kraftsim(*words, "--http", "0", *given, environment=environment)
    said = done.stderr.splitlines()
    assert done.returncode == 3 and line in said[-1], done.stderr
    assert not (data / "logs" / "broker-1.log").exists()
    is_warned = said[0].startswith("warning: 192.0.2.1 is not loopback")
    assert is_warned is ("--http-host" in options)


def test_a_taken_port_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = kraftsim("up", "--http", str(port), "--data", str(tmp_path / "up"))
    assert one_line_of(done).startswith(f"Error: HTTP cannot listen on 127.0.0.1:{port}")


def test_a_token_comes_from_a_file_in_the_foreground(tmp_path: Path) -> None:
    """And HTTP ends with the cluster, also while an event stream is open."""
    file = tmp_path / "token"
    file.write_text("0123456789abcdef0\n")
    data, port = tmp_path / "up", free_port_range(1)
    words = ["up", "--brokers", "1", "--port", str(port), "--data", str(data), "--http", "0"]
    process = subprocess.Popen(
        [*KRAFTSIM, *words, "--http-token-file", str(file)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("bootstrap.servers=")
        assert process.stdout.readline().startswith("http=http://127.0.0.1:")
        with ControlClient.of(data) as control:
            assert control.token == "0123456789abcdef0"
            stream = control.events(begin="start")
            next(stream)
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()


def examples() -> list[str]:
    """Return the lines of the examples that use HTTP."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return [
        line
        for block in blocks
        for line in block.splitlines()
        if line.startswith(("api ", "curl "))
    ]


def test_the_page_has_an_example_of_every_route() -> None:
    lines = "\n".join(examples())
    for route in ROUTES:
        path = re.escape(route.path.replace("{topic}", "orders"))
        path = re.sub(r"\\{\w+\\}", r"[^/ ]+", path)
        method = {"GET": "", "POST": "(-X POST )?", "DELETE": "-X DELETE "}[route.method]
        wanted = rf'(api|curl) [^\n]*{method}"?\$URL{path}(?=["? \n]|$)'
        assert re.search(wanted, lines), f"{route.method} {route.path}"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_examples_of_the_page_work(served: Served) -> None:
    """All of them, in order, as a reader would run them; each must succeed."""
    with broker_client(f"127.0.0.1:{served.port}") as broker:
        broker.create_topic("orders", 2)
    setup = re.search(r"api\(\) .*\njson=.*\n", PAGE.read_text())
    assert setup is not None
    lines = [f"URL={served.state.http}", setup[0], "set -e", *examples()]
    done = subprocess.run(
        ["bash", "-x", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, TOKEN_VARIABLE: TOKEN, "no_proxy": "127.0.0.1"},
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert '"text":"broker-1 killed"' in done.stdout
    assert "as 4.1, was" in done.stdout
    assert "files are gone" in done.stdout
    assert '"text":"Produce drop=reply topic=orders ' in done.stdout
    assert '"kind":"FaultInjected"' in done.stdout and '"openapi":"3.1.0"' in done.stdout
    assert "kafka_server_" in done.stdout


def test_a_proxy_of_any_cluster_is_controlled(plain: Served, tmp_path: Path) -> None:
    """Its faults and links; the nodes are not its own, and the state is that of the cluster."""
    port = free_port_range(2)
    words = ["proxy", "--upstream", f"127.0.0.1:{plain.port}", "--port", str(port), "--http", "0"]
    process = subprocess.Popen(
        [*KRAFTSIM, *words, "--data", str(tmp_path / "recorded")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, TOKEN_VARIABLE: TOKEN},
    )
    try:
        assert process.stdout is not None
        lines = process.stdout
        url = next(line.strip().removeprefix("http=") for line in lines if line.startswith("http="))
        with ControlClient(url, TOKEN) as control:
            described = control.describe()
            assert described.mode == "proxy"
            impossible = [verb.verb for verb in described.verbs if not verb.is_possible]
            assert impossible == [
                "kill",
                "stop",
                "restart",
                "upgrade",
                "pause",
                "resume",
                "fail-disk",
            ]
            for verb in ("kill", "stop", "restart", "pause", "resume"):
                with pytest.raises(ControlRefused, match="did not start the nodes") as refused:
                    getattr(control, verb)("broker-1")
                assert refused.value.status == 409
            with pytest.raises(ControlRefused, match="no access to the disks"):
                control.fail_disk("broker-1", "lost-disk")
            assert "broker-1" in [node.name for node in control.nodes()]
            fault = control.inject("Metadata error=UNKNOWN_SERVER_ERROR times=all")
            with broker_client(f"127.0.0.1:{port}") as broker:
                broker.metadata("t")
            assert control.request_fault(fault.number).effects >= 1
            assert control.end_faults() == 1
            (imposed,) = control.slow("clients<>broker-1", latency_ms=1)
            assert control.network() == (imposed,)
            assert control.heal("broker-1") == 1
            with pytest.raises(ControlRefused, match="no node is called broker-9"):
                control.cut("broker-9")
            assert control.reset("broker-1").closed >= 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()

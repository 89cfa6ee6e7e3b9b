"""The command-line contract for scripts: `kraftsim up`, `down` and `node`, run as a user would."""

import difflib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kraftsim.cli.main import main
from kraftsim.cluster.directories import ClusterState, RunDirectory, is_locked, write_state
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.supervise import down
from kraftsim.lab.bugs.bug import BUGS
from kraftsim.releases.release import DEFAULT_RELEASE, known_releases
from protocol.errors import ErrorCode
from tests.cluster.broker_client import batch_of, broker_client
from tests.cluster.running import logged_events

KRAFTSIM = [sys.executable, "-m", "kraftsim"]
SECONDS = 30.0
FAILED = 3
OTHER_RELEASES = [each.name for each in known_releases() if each.name != DEFAULT_RELEASE]
NEAR = " or ".join(difflib.get_close_matches("KAFKA-1053", BUGS.names(), n=3))


class Foreground:
    """`kraftsim up` in the foreground."""

    def __init__(self, data: Path, *options: str, brokers: int = 1) -> None:
        self.port = free_port_range(brokers)
        self.directory = RunDirectory(data)
        words = [
            "up",
            "--controllers",
            "1",
            "--brokers",
            str(brokers),
            "--port",
            str(self.port),
            "--data",
            str(data),
            *options,
        ]
        self.process = subprocess.Popen(
            [*KRAFTSIM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal; return the exit code and the output on both streams since the first
        line.
        """
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err


@contextmanager
def up(data: Path, *options: str, brokers: int = 1) -> Iterator[Foreground]:
    running = Foreground(data, *options, brokers=brokers)
    try:
        assert running.line, running.process.communicate(timeout=SECONDS)[1]
        yield running
    finally:
        if running.process.poll() is None:
            running.end()


def kraftsim(
    *words: str, cwd: Path | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, **(environment or {})}
    return subprocess.run(
        [*KRAFTSIM, *words],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=cwd,
        env=given,
    )


def one_line_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the single error line of a failed command."""
    assert done.returncode == FAILED, (done.returncode, done.stdout, done.stderr)
    assert not done.stdout and len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr.strip()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreground]:
    """Two brokers and a controller that run in the foreground."""
    with up(
        tmp_path_factory.mktemp("up") / "run", "--set", "num.partitions=7", brokers=2
    ) as running:
        yield running


def nodes_of(cluster: Foreground) -> list[psutil.Process]:
    """Return the processes of all nodes: the children of the process that forked them."""
    (fork_server,) = psutil.Process(cluster.process.pid).children()
    return fork_server.children()


def test_up_prints_one_line_when_every_broker_answers(cluster: Foreground) -> None:
    """Brokers at P, P+1, ..., controllers from P+100."""
    assert (
        cluster.line == f"bootstrap.servers=127.0.0.1:{cluster.port},127.0.0.1:{cluster.port + 1}\n"
    )
    with broker_client(f"127.0.0.1:{cluster.port}") as broker:
        known = {(each.node_id, each.host, each.port) for each in broker.metadata("t").brokers}
    assert known == {(1, "127.0.0.1", cluster.port), (2, "127.0.0.1", cluster.port + 1)}
    controller = f"127.0.0.1:{cluster.port + 100}"
    assert kraftsim("doctor", "--node", controller).stdout.startswith(
        f"{controller} answers as a controller"
    )


def test_settings_reach_the_nodes(cluster: Foreground) -> None:
    with broker_client(f"127.0.0.1:{cluster.port}") as broker:
        broker.metadata("made", create=True)
        broker.wait_for_leaders("made", 7)


def test_nodes_listen_on_loopback_only(cluster: Foreground) -> None:
    connections = [
        each
        for node in nodes_of(cluster)
        for each in node.net_connections("inet")
        if each.status == psutil.CONN_LISTEN
    ]
    assert [each.laddr.ip for each in connections] == ["127.0.0.1"] * 3


def test_a_data_directory_in_use_prints_one_line(cluster: Foreground) -> None:
    """Two processes that append to one log would corrupt it."""
    file = cluster.directory.properties("broker-1")
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{free_port_range(1)}"
    assert one_line_of(kraftsim("node", str(file), "--set", listeners)).endswith(
        "/data/broker-1 is in use by another process"
    )
    data = cluster.directory.root
    line = (
        f"Error: a cluster already runs on {data} (bootstrap "
        f"127.0.0.1:{cluster.port},127.0.0.1:{cluster.port + 1}); stop it by: kraftsim down"
    )
    assert (
        one_line_of(kraftsim("up", "--port", str(free_port_range(3)), "--data", str(data)))
        == f"{line} --data {data}"
    )


def test_a_port_in_use_prints_one_line(cluster: Foreground, tmp_path: Path) -> None:
    port = cluster.port + 1
    done = kraftsim("up", "--brokers", "1", "--port", str(port), "--data", str(tmp_path / "run"))
    assert one_line_of(done) == (
        f"Error: broker-1 cannot listen on 127.0.0.1:{port}: Address already in use; choose "
        "another --port"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_stops_its_nodes_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM or Ctrl-C: exit 0, no more output, no process remains; the directory is refused to
    another cluster afterwards.
    """
    with up(tmp_path / "run") as running:
        nodes = nodes_of(running)
        assert len(nodes) == 2
        assert running.end(number) == (0, "", "")
    assert not any(node.is_running() for node in nodes)
    for name in ("broker-1", "controller-101"):
        assert len(logged_events(running.directory, "NodeStopped", name)) == 1, (
            f"{name} was stopped, not killed"
        )
    assert (running.directory.data("broker-1") / ".kafka_cleanshutdown").exists()
    other = "b3RoZXItY2x1c3Rlci1pZA"
    words = [
        "up",
        "--brokers",
        "1",
        "--port",
        str(running.port),
        "--data",
        str(tmp_path / "run"),
        "--set",
        f"kraftsim.cluster.id={other}",
    ]
    assert (
        f"belongs to cluster a3JhZnRzaW0tY2x1c3RlcQ, not to {other} (kraftsim.cluster.id)"
        in one_line_of(kraftsim(*words))
    )


def test_up_exits_when_a_node_dies_and_names_it(tmp_path: Path) -> None:
    with up(tmp_path / "run") as cluster:
        nodes = nodes_of(cluster)
        next(node for node in nodes if "broker-1.properties" in " ".join(node.cmdline())).kill()
        out, err = cluster.process.communicate(timeout=SECONDS)
    assert (cluster.process.returncode, out) == (FAILED, "")
    assert err.startswith("Error: broker-1 went down with status -9") and len(err.splitlines()) == 1
    assert not any(node.is_running() for node in nodes), "no process remains"


def test_a_detached_cluster_runs_until_down(tmp_path: Path) -> None:
    """`up --detach` returns once every broker answers; a second cluster on the same data is
    refused; `down` stops all, cleanly.
    """
    data = str(tmp_path / "run")
    words = ["up", "--brokers", "1", "--port", str(free_port_range(1)), "--data", data]
    done = kraftsim(*words, "--detach")
    try:
        assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith(
            "bootstrap.servers=127.0.0.1:"
        )
        with broker_client(done.stdout.strip().partition("=")[2]) as broker:
            broker.create_topic("t")
            broker.produce("t", batch_of([b"value"]))
    finally:
        stopped = kraftsim("down", "--data", data)
    assert (stopped.returncode, stopped.stdout) == (0, "2 nodes stopped\n")
    assert len(logged_events(RunDirectory(Path(data)), "NodeStopped", "broker-1")) == 1
    assert kraftsim("down", "--data", data).stdout == "0 nodes stopped\n"


def test_down_also_finds_nodes_whose_supervisor_was_killed(tmp_path: Path) -> None:
    data = tmp_path / "run"
    kraftsim(
        "up", "--brokers", "1", "--port", str(free_port_range(1)), "--data", str(data), "--detach"
    )
    try:
        supervisor = psutil.Process(
            int(
                RunDirectory(data)
                .state_file.read_text()
                .partition('"supervisor":')[2]
                .partition(",")[0]
            )
        )
        nodes = supervisor.children(recursive=True)
        supervisor.kill()
    finally:
        stopped = kraftsim("down", "--data", str(data))
    assert stopped.stdout == "2 nodes stopped\n"
    deadline = time.monotonic() + 5
    while any(node.is_running() and node.status() != psutil.STATUS_ZOMBIE for node in nodes):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    "options, line",
    [
        (
            ("--set", "log.segment.byte=5"),
            "Error: log.segment.byte is not a known setting; did you mean log.segment.bytes?; "
            "--ignore-unknown leaves it out",
        ),
        (
            ("--set", "num.partitions=many"),
            "Error: num.partitions: expected a whole number of 1 or more, got 'many'",
        ),
        (("--set", "num.partitions"), "Error: --set num.partitions: write it as KEY=VALUE"),
        (
            ("--release", "3.99"),
            f"Error: no release is called 3.99 (there are: 3.9, {', '.join(OTHER_RELEASES)})",
        ),
        (
            ("--bug", "KAFKA-1053"),
            (
                f"Error: no bug is called KAFKA-1053; did you mean {NEAR}? `kraftsim list bugs` "
                f"names all {len(BUGS.names())}"
            ),
        ),
        (("--controllers", "10"), "Error: a quorum has 1 to 9 controllers, not 10"),
        (("--brokers", "0"), "Error: a cluster has 1 to 100 brokers, not 0"),
        (
            ("--host", "192.0.2.1"),
            (
                "Error: controller-101 cannot listen on 192.0.2.1:{controller}: Cannot assign "
                "requested address; choose another --host"
            ),
        ),
    ],
)
def test_an_impossible_start_prints_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    line: str,
) -> None:
    """Nothing was started, so the command may run in this process."""
    port = free_port_range(1)
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "kraftsim",
            "up",
            "--brokers",
            "1",
            "--port",
            str(port),
            "--data",
            str(tmp_path / "run"),
            *options,
        ],
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == FAILED
    assert capsys.readouterr() == ("", line.format(controller=port + 100) + "\n")


@pytest.mark.parametrize(
    "release, first_answer",
    [("3.9", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), ("3.5", ErrorCode.NONE)],
)
def test_the_first_producer_id_request_waits_depending_on_the_release(
    tmp_path: Path, release: str, first_answer: ErrorCode
) -> None:
    """Before 3.6 a broker without a producer-id block waits for one; since then it returns a
    retriable error (KAFKA-14694).
    """
    with (
        up(tmp_path / "run", "--release", release) as running,
        broker_client(f"127.0.0.1:{running.port}") as broker,
    ):
        assert broker.init_producer_id().error_code == first_answer
        assert broker.fresh_producer_id() < 1000
    assert [
        event["release"] for event in logged_events(running.directory, "NodeStarted", "broker-1")
    ] == [release]


def test_a_node_reads_kafka_environment_variables(tmp_path: Path) -> None:
    """As the image of Apache Kafka does (KIP-975); --set takes precedence, and variables that are
    not node configs are ignored.
    """
    port = free_port_range(1)
    environment = {
        "KAFKA_NODE_ID": "101",
        "KAFKA_PROCESS_ROLES": "controller",
        "KAFKA_LISTENERS": "CONTROLLER://127.0.0.1:1",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"101@127.0.0.1:{port}",
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "CLUSTER_ID": "b3RoZXItY2x1c3Rlci1pZA",
    }
    words = ["node", "--environment", "--set", f"listeners=CONTROLLER://127.0.0.1:{port}"]
    node = subprocess.Popen([*KRAFTSIM, *words], env={**os.environ, **environment})
    try:
        deadline = time.monotonic() + SECONDS
        while kraftsim("doctor", "--node", f"127.0.0.1:{port}").returncode != 0:
            assert node.poll() is None and time.monotonic() < deadline
    finally:
        node.terminate()
        assert node.wait(SECONDS) == 0
    assert (
        "cluster.id=b3RoZXItY2x1c3Rlci1pZA" in (tmp_path / "data" / "meta.properties").read_text()
    )
    wrong = kraftsim(*words, environment={**environment, "KAFKA_BROKER_RACKS": "a"})
    assert (
        one_line_of(wrong)
        == "Error: environment: broker.racks is not a known setting; did you mean broker.rack?"
    )
    assert one_line_of(kraftsim("node")).startswith("Error: no properties are given: name a FILE")


def test_join_prints_the_configuration_for_an_apache_kafka_broker(cluster: Foreground) -> None:
    """The quorum, an unused id and port, and the two commands that use the file."""
    data = ["--data", str(cluster.directory.root)]
    printed = kraftsim("join", *data, "--node-id", "9", "--port", str(cluster.port + 5)).stdout
    assert f"\ncontroller.quorum.voters=101@127.0.0.1:{cluster.port + 100}\n" in printed
    assert f"\nlisteners=PLAINTEXT://127.0.0.1:{cluster.port + 5}\n" in printed
    assert printed.startswith(
        "# kafka-storage.sh format --config THIS_FILE --cluster-id a3JhZnRzaW0tY2x1c3RlcQ\n"
    )
    taken = one_line_of(kraftsim("join", *data, "--node-id", "2"))
    assert taken == "Error: node 2 is there already (nodes: 1, 2, 101); choose another --node-id"
    listening = one_line_of(kraftsim("join", *data, "--port", str(cluster.port + 100)))
    assert listening == (
        f"Error: 127.0.0.1:{cluster.port + 100} is where a node of the cluster listens; "
        "choose another --port"
    )


def test_join_without_a_cluster_prints_one_line(tmp_path: Path) -> None:
    assert (
        one_line_of(kraftsim("join", "--data", str(tmp_path)))
        == "Error: there is no cluster: `kraftsim up` writes the properties of its nodes"
    )


def test_an_interrupted_start_in_the_background_leaves_nothing_running(tmp_path: Path) -> None:
    data = tmp_path / "run"
    directory = RunDirectory(data)
    words = [
        "up",
        "--brokers",
        "1",
        "--port",
        str(free_port_range(1)),
        "--data",
        str(data),
        "--detach",
    ]
    starting = subprocess.Popen(
        [*KRAFTSIM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + SECONDS
    while not directory.human_log("broker-1").exists():
        assert time.monotonic() < deadline and starting.poll() is None
        time.sleep(0.01)
    starting.send_signal(signal.SIGINT)
    out, _ = starting.communicate(timeout=SECONDS)
    assert (starting.returncode, out) == (130, "")
    names = [directory.root, directory.data("broker-1"), directory.data("controller-101")]
    assert not [name for name in names if is_locked(name)]


def test_down_stops_a_starting_cluster_and_ignores_a_stale_state_file(tmp_path: Path) -> None:
    """Process ids in the state file of a killed supervisor may belong to other programs now."""
    data = tmp_path / "run"
    directory = RunDirectory(data)
    directory.create()
    with subprocess.Popen(["sleep", "60"]) as other:
        write_state(
            directory,
            ClusterState(supervisor=other.pid, bootstrap="", nodes={"broker-1": other.pid}),
        )
        words = [
            "up",
            "--brokers",
            "1",
            "--port",
            str(free_port_range(1)),
            "--data",
            str(data),
            "--detach",
        ]
        starting = subprocess.Popen(
            [*KRAFTSIM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + SECONDS
        while not directory.human_log("controller-101").exists():
            assert time.monotonic() < deadline and starting.poll() is None
            time.sleep(0.01)
        down(data)  # a separate process would take as long to start as the cluster
        was_alive = other.poll() is None
        other.terminate()
    _, said = starting.communicate(timeout=SECONDS)
    assert was_alive
    assert (starting.returncode, said) == (
        FAILED,
        "Error: the cluster was stopped before it was ready\n",
    )
    assert not [
        name
        for name in (directory.root, directory.data("broker-1"), directory.data("controller-101"))
        if is_locked(name)
    ]

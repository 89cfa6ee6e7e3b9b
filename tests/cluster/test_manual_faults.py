"""`kraftsim kill`, `restart`, `pause`, `resume`, `isolate`, `slow` and `heal` on a detached
cluster, used as a user would.
"""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from kraftsim.cluster.directories import RunDirectory, read_state
from kraftsim.cluster.manual_faults import FaultRequest
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.proxy.control_messages import ControlEnvelope, LiftAll, ProxyState
from protocol.errors import ErrorCode
from tests.cluster.broker_client import broker_client
from tests.cluster.running import logged_events
from tests.cluster.test_up import kraftsim, one_line_of

SECONDS = 30.0
BROKER, OTHER, CONTROLLER = "broker-1", "broker-2", "controller-101"
PASSWORD = "correct-horse-battery"
QUICK = ("--set", "broker.session.timeout.ms=1000", "--set", "broker.heartbeat.interval.ms=200")


class Detached:
    """A cluster of `up --detach`."""

    def __init__(self, data: Path, *options: str, brokers: int = 2) -> None:
        self.data = data
        self.directory = RunDirectory(data)
        self.port = free_port_range(brokers)
        words = [
            "up",
            "--brokers",
            str(brokers),
            "--port",
            str(self.port),
            "--data",
            str(data),
            "--detach",
            *QUICK,
            *options,
        ]
        done = kraftsim(*words)
        assert done.returncode == 0, done.stderr

    def pid(self, name: str) -> int:
        """Process id of a node, from `cluster.json`."""
        state = read_state(self.directory)
        assert state is not None
        return state.nodes[name]

    def do(self, *words: str) -> str:
        """Run a command that must succeed; return its output."""
        done = self.run(*words)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return kraftsim(*words, "--data", str(self.data))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Detached]:
    data = tmp_path_factory.mktemp("manual faults") / "run"
    try:
        yield Detached(data, "--proxy")
    finally:
        kraftsim("down", "--data", str(data))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Detached]:
    data = tmp_path_factory.mktemp("plain") / "run"
    try:
        yield Detached(data, "--set", f"ssl.key.password={PASSWORD}", brokers=1)
    finally:
        kraftsim("down", "--data", str(data))


def fenced(cluster: Detached, broker_id: int, kind: str = "BrokerFenced") -> int:
    return sum(
        event["broker_id"] == broker_id
        for event in logged_events(cluster.directory, kind, CONTROLLER)
    )


def test_a_killed_node_stays_down_until_it_is_restarted(cluster: Detached) -> None:
    """The cluster continues: the kill was requested."""
    with broker_client(f"127.0.0.1:{cluster.port}") as broker:
        broker.create_topic("t", 2)
    before = psutil.Process(cluster.pid(BROKER))
    assert cluster.do("kill", BROKER) == "broker-1 killed\n"
    wait_until(lambda: not before.is_running() or before.status() == psutil.STATUS_ZOMBIE)
    assert cluster.do("kill", BROKER) == "broker-1 was down already\n"
    assert (
        one_line_of(cluster.run("pause", BROKER))
        == f"Error: broker-1 is down; start it by: kraftsim restart broker-1 --data {cluster.data}"
    )
    assert cluster.do("restart", BROKER) == "broker-1 started again\n"
    assert cluster.pid(BROKER) != before.pid and psutil.pid_exists(cluster.pid(BROKER))
    assert cluster.do("restart", OTHER) == "broker-2 stopped and started again\n"
    assert len(logged_events(cluster.directory, "NodeStopped", OTHER)) == 1
    with broker_client(f"127.0.0.1:{cluster.port}") as broker:
        broker.wait_for_leaders("t", 2)


def test_a_paused_node_makes_no_progress_until_resumed(cluster: Detached) -> None:
    assert cluster.do("pause", BROKER) == "broker-1 paused\n"
    wait_until(lambda: psutil.Process(cluster.pid(BROKER)).status() == psutil.STATUS_STOPPED)
    assert cluster.do("pause", BROKER) == "broker-1 was paused already\n"
    assert cluster.do("resume") == "broker-1 resumed\n"
    wait_until(lambda: psutil.Process(cluster.pid(BROKER)).status() != psutil.STATUS_STOPPED)
    assert cluster.do("resume") == "no node was paused\n"
    assert cluster.do("resume", BROKER) == "broker-1 was not paused\n"


def test_a_partitioned_node_is_fenced_and_recovers_after_heal(cluster: Detached) -> None:
    """Only one of the two brokers; requests sent to it in the meantime are answered after
    `heal`.
    """
    times, other = fenced(cluster, 2), fenced(cluster, 1)
    assert cluster.do("isolate", OTHER) == "broker-2 isolated until `kraftsim heal`\n"
    wait_until(lambda: fenced(cluster, 2) > times)
    back = fenced(cluster, 2, "BrokerUnfenced")
    assert cluster.do("heal", OTHER) == "1 fault of the network healed\n"
    wait_until(lambda: fenced(cluster, 2, "BrokerUnfenced") > back)
    assert fenced(cluster, 1) == other
    assert cluster.do("heal") == "0 faults of the network healed\n"


def test_connections_can_be_reset_without_a_partition(cluster: Detached) -> None:
    said = cluster.do("isolate", "--reset", "broker-*")
    count = int(said.split()[0])
    assert count >= 2 and said.endswith("of them with something under way\n")
    with broker_client(f"127.0.0.1:{cluster.port + 1}") as broker:
        assert broker.init_producer_id().error_code in (
            ErrorCode.NONE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )


def test_a_slow_link_has_the_requested_latency(cluster: Detached) -> None:
    """200 ms in each direction, for each of two requests; the other broker is as fast as before."""

    def seconds(port: int) -> float:
        began = time.monotonic()
        with broker_client(f"127.0.0.1:{port}") as broker:
            broker.metadata("t")
        return time.monotonic() - began

    assert (
        cluster.do("slow", "clients<>broker-1", "--latency", "200")
        == "clients<>broker-1 slowed until `kraftsim heal`\n"
    )
    assert seconds(cluster.port) >= 0.4
    assert seconds(cluster.port + 1) < 0.4
    assert cluster.do("heal") == "1 fault of the network healed\n"
    assert seconds(cluster.port) < 0.4


def test_requests_get_faults_until_they_are_used_up_or_ended(cluster: Detached) -> None:
    fault = "InitProducerId error=COORDINATOR_LOAD_IN_PROGRESS"
    assert cluster.do("inject", "--list") == "no fault of requests was injected\n"
    assert cluster.do("inject", *fault.split(), "times=2") == f"fault 1: {fault} times=2\n"
    assert cluster.do("inject", f"{fault} client_id='no client' times=all") == (
        f"fault 2: {fault} client_id='no client' times=all\n"
    )
    with broker_client(f"127.0.0.1:{cluster.port}") as broker:
        broker.fresh_producer_id()
    first, state, *hits, second, other = cluster.do("inject", "--list").splitlines()
    assert (first, state) == (
        f"fault 1: {fault} times=2",
        "  over; 2 requests matched, it took effect on 2",
    )
    assert len(hits) == 2 and all(hit.endswith("at broker-1") for hit in hits)
    assert second.startswith("fault 2: ")
    assert other == "  no request has matched yet; 0 requests matched, it took effect on 0"
    found = msgspec.json.decode(cluster.do("inject", "--list", "--json", "-"))
    assert [(each["number"], each["effects"], each["is_over"]) for each in found] == [
        (1, 2, True),
        (2, 0, False),
    ]
    assert cluster.do("inject", "--end", "2", "--end", "2") == (
        "fault 2 ended\nfault 2 had ended already\n"
    )
    assert cluster.do("inject", "--end", "all") == "fault 1 ended\n"
    assert cluster.do("inject", "--end", "all") == "there was no fault of requests to end\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("EndTx", "drop"), "EndTx is no API of Kafka: did you mean EndTxn?"),
        (("--end", "77"), "77 is not the number of a fault of requests (faults: "),
        ((), "give a fault, or --list, or --end; see kraftsim inject --help"),
        (("--list", "--end", "1"), "give a fault, or --list, or --end; see kraftsim inject --help"),
        (("EndTxn", "drop", "--json", "-"), "--json has the result of --list"),
    ],
)
def test_bad_faults_of_requests_are_one_line(
    cluster: Detached, words: tuple[str, ...], line: str
) -> None:
    assert one_line_of(cluster.run("inject", *words)).startswith(f"Error: {line}")


def test_the_leader_can_be_targeted_without_its_name(cluster: Detached) -> None:
    assert cluster.do("pause", "leader") == "controller-101 paused\n"
    assert cluster.do("resume", "controller-*") == "controller-101 resumed\n"


@pytest.mark.parametrize(
    "words, line",
    [
        (
            ("kill", "broker-9"),
            (
                "no node is called broker-9 (nodes: controller-101, broker-1, broker-2, and "
                "`leader`; clients are `clients`)"
            ),
        ),
        (
            ("isolate", "broker-1>broker-9"),
            (
                "no node is called broker-1>broker-9 (nodes: controller-101, broker-1, broker-2, "
                "and `leader`; clients are"
            ),
        ),
        (("slow", "broker-1"), "give --latency, --jitter or --bandwidth"),
        (("kill",), "Missing argument 'NODE...'."),
    ],
)
def test_impossible_fault_commands_print_one_line(
    cluster: Detached, words: tuple[str, ...], line: str
) -> None:
    done = cluster.run(*words)
    assert done.returncode == 3 and f"Error: {line}" in done.stderr and not done.stdout


@pytest.mark.parametrize(
    "words", [("isolate", "broker-1"), ("slow", "broker-1", "--latency", "5"), ("heal",)]
)
def test_without_a_proxy_the_error_names_the_option(
    plain: Detached, words: tuple[str, ...]
) -> None:
    wanted = (
        "there is no proxy in front of the nodes of this cluster; start one by: kraftsim up "
        f"--proxy --data {plain.data}"
    )
    assert one_line_of(plain.run(*words)) == f"Error: {wanted}"


def test_nodes_can_be_killed_and_restarted_without_a_proxy(plain: Detached) -> None:
    assert plain.do("kill", BROKER) == "broker-1 killed\n"
    assert plain.do("restart", BROKER) == "broker-1 started again\n"


def test_a_node_restarts_with_another_release_and_other_settings(plain: Detached) -> None:
    shown = plain.do("restart", BROKER, "--release", "4.1", "--set", "num.partitions=5")
    assert shown == f"{BROKER} stopped and started again as 4.1, was 3.9\n"
    started = logged_events(plain.directory, "NodeStarted", BROKER)
    assert started[-1]["release"] == "4.1"
    with broker_client(f"127.0.0.1:{plain.port}") as broker:
        broker.metadata("automatic", create=True)
        broker.wait_for_leaders("automatic", 5)
    shown = plain.do("restart", BROKER)
    assert (
        "was" not in shown
        and logged_events(plain.directory, "NodeStarted", BROKER)[-1]["release"] == "4.1"
    ), "it keeps the release"


def test_an_upgrade_restarts_brokers_then_controllers(plain: Detached) -> None:
    lines = plain.do("upgrade", "--to", "4.2").splitlines()
    assert [line.split()[1] for line in lines[:-1]] == [BROKER, CONTROLLER]
    assert all("as 4.2, was" in line for line in lines[:-1]), lines
    assert lines[-1].startswith("2 nodes run 4.2 after ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("restart", BROKER, "--release", "9.9"), "no release is called 9.9"),
        (("restart", BROKER, "--set", "num.partition=5"), "num.partition"),
        (("restart", BROKER, "--set", "num.partitions=many"), "num.partitions"),
        (("upgrade", "--to", "9.9"), "no release is called 9.9"),
    ],
)
def test_a_restart_that_would_fail_is_refused_before_the_node_stops(
    plain: Detached, words: tuple[str, ...], message: str
) -> None:
    before = plain.pid(BROKER)
    done = plain.run(*words)
    assert done.returncode == 3 and message in one_line_of(done)
    assert plain.pid(BROKER) == before


def test_down_stops_a_cluster_with_dead_and_paused_nodes(tmp_path: Path) -> None:
    """No process remains: nodes, proxy, supervisor."""
    cluster = Detached(tmp_path / "run", "--proxy")
    state = read_state(cluster.directory)
    assert state is not None
    family = psutil.Process(state.supervisor).children(recursive=True)
    assert len(family) == 5
    cluster.do("kill", BROKER)
    cluster.do("pause", OTHER)
    assert kraftsim("down", "--data", str(cluster.data)).stdout == "2 nodes stopped\n"
    wait_until(
        lambda: (
            not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family)
        )
    )
    wanted = (
        f"Error: no cluster runs on {cluster.data}; start one by: kraftsim up --detach --data "
        f"{cluster.data}"
    )
    assert one_line_of(cluster.run("kill", BROKER)) == wanted


def test_files_with_passwords_are_readable_by_their_owner_only(plain: Detached) -> None:
    holders = [
        path
        for path in plain.data.rglob("*")
        if path.is_file() and PASSWORD.encode() in path.read_bytes()
    ]
    assert {path.name for path in holders} == {
        "cluster.json",
        f"{BROKER}.properties",
        f"{CONTROLLER}.properties",
    }
    assert not [
        path for path in [*holders, plain.directory.state_file] if path.stat().st_mode & 0o077
    ]


def test_a_fault_command_without_the_secret_is_refused(plain: Detached) -> None:
    """A loopback socket is reachable for every user of the machine."""
    state = read_state(plain.directory)
    assert state is not None
    for secret in ("", "0" * len(state.secret)):
        with socket.create_connection(("127.0.0.1", state.door), timeout=SECONDS) as connection:
            connection.sendall(
                msgspec.json.encode(FaultRequest(verb="kill", targets=(BROKER,), secret=secret))
                + b"\n"
            )
            assert connection.makefile("rb").readline() == b""
    assert psutil.pid_exists(state.nodes[BROKER]) and plain.pid(BROKER) == state.nodes[BROKER]


def test_the_proxy_serves_only_clients_that_know_its_secret(cluster: Detached) -> None:
    state = msgspec.json.decode((cluster.data / "proxy.json").read_bytes(), type=ProxyState)
    assert (cluster.data / "proxy.json").stat().st_mode & 0o077 == 0
    order = msgspec.json.encode(ControlEnvelope(id=1, order=LiftAll())) + b"\n"
    answers = []
    for first in (b"", b"0" * len(state.secret) + b"\n", state.secret.encode() + b"\n"):
        with socket.create_connection(("127.0.0.1", state.door), timeout=SECONDS) as connection:
            connection.sendall(first + order)
            answers.append(bool(connection.makefile("rb").readline()))
    assert answers == [False, False, True]

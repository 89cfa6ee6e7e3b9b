"""Nodes that are forked from one process: what they share, how they end, and what happens without
that process.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kraftsim.cluster.fork_server import UNKNOWN_STATUS, ForkServer
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.readiness import ClusterFailed
from kraftsim.cluster.rehearsal import rehearse
from kraftsim.cluster.spec import ClusterSpec, Role
from kraftsim.releases.release import Release, releases
from tests.cluster.broker_client import batch_of, broker_client
from tests.cluster.running import restart_and_wait, running_processes

BROKER, CONTROLLER = "broker-1", "controller-101"
SECONDS = 30.0
SECRET = "rack-that-only-nodes-know"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    """One controller and one broker, with a setting that stands for a password."""
    with running_processes(tmp_path / "run", node_settings={BROKER: {"broker.rack": SECRET}}) as it:
        yield it


@pytest.fixture
def server() -> Iterator[ForkServer]:
    """A fork server without a cluster."""
    found = ForkServer(os.environ, "title")
    yield found
    found.close()


def fork_server_of(cluster: ProcessCluster) -> psutil.Process:
    """Return the parent of the nodes."""
    (parent,) = {psutil.Process(cluster.pid(name)).ppid() for name in cluster.nodes}
    return psutil.Process(parent)


def open_files(pid: int) -> dict[int, str]:
    """Return what each descriptor of a process is."""
    place = Path(f"/proc/{pid}/fd")
    return {int(each.name): os.readlink(each) for each in place.iterdir()}


def own_files(pid: int) -> list[str]:
    """Return what the descriptors of a process are, without standard input, output and error."""
    return [each for number, each in open_files(pid).items() if number > 2]


def holds(pid: int, text: str) -> bool:
    """Return whether the memory of a process has a text."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if found is not None:
                start, end = int(found[1], 16), int(found[2], 16)
                memory.seek(start)
                if text.encode() in memory.read(end - start):
                    return True
    return False


def test_the_parent_of_the_nodes_has_nothing_open_but_its_channels(cluster: ProcessCluster) -> None:
    """No thread, no event loop, no file, no socket to anyone else: a fork copies all of these."""
    parent = fork_server_of(cluster)
    assert parent.ppid() == os.getpid() and parent.num_threads() == 1
    kinds = sorted(each.rstrip("[]0123456789") for each in own_files(parent.pid))
    assert kinds == ["anon_inode:[pidfd", "anon_inode:[pidfd", "pipe:", "socket:"]


def test_a_node_inherits_only_its_output(cluster: ProcessCluster) -> None:
    """Else the end of a channel could not be seen while a node has it, and nodes could signal each
    other.
    """
    channels = set(own_files(fork_server_of(cluster).pid))
    for name in cluster.nodes:
        found = open_files(cluster.pid(name))
        log = str(cluster.directory.human_log(name))
        assert [found[0], found[1], found[2]] == ["/dev/null", log, log]
        assert not channels.intersection(own_files(cluster.pid(name)))
        assert os.getsid(cluster.pid(name)) == cluster.pid(name)


def test_the_parent_of_the_nodes_never_sees_their_settings(cluster: ProcessCluster) -> None:
    assert holds(cluster.pid(BROKER), SECRET)
    assert not holds(fork_server_of(cluster).pid, SECRET)


def test_the_command_line_of_a_node_is_its_own(cluster: ProcessCluster) -> None:
    for name in cluster.nodes:
        command = " ".join(psutil.Process(cluster.pid(name)).cmdline())
        assert command.split()[1:] == [
            *("-m", "kraftsim", "node"),
            str(cluster.directory.properties(name)),
        ]


def test_what_two_forked_processes_draw_differs(server: ForkServer, tmp_path: Path) -> None:
    """The state of Python's generator is copied by a fork; a process draws a seed of its own."""
    program = tmp_path / "drawing.py"
    program.write_text("import random, uuid\nprint(random.random(), uuid.uuid4())\n")
    drawn = []
    for number in range(2):
        path = tmp_path / f"output-{number}"
        with open(path, "wb") as output:
            words = ["list", "traits", "--extension", str(program)]
            server.fork(words, output.fileno()).wait(SECONDS)  # it says that nothing is exported
        drawn.append(path.read_text().split()[:2])
    assert len({*drawn[0], *drawn[1]}) == 4


def test_the_exit_status_of_a_command_is_reported(server: ForkServer, tmp_path: Path) -> None:
    statuses = []
    with open(tmp_path / "output", "wb") as output:
        for words in (["--version"], ["node", "/nowhere.properties"]):
            statuses.append(server.fork(words, output.fileno()).wait(SECONDS))
    assert statuses == [0, 3]
    assert "nowhere.properties" in (tmp_path / "output").read_text()


def test_a_wait_for_a_process_has_a_limit(server: ForkServer, tmp_path: Path) -> None:
    words = ["zookeeper", "--data", str(tmp_path / "data"), "--set", "clientPort=0"]
    with open(tmp_path / "output", "wb") as output:
        process = server.fork(words, output.fileno())
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    process.kill()
    assert process.wait(SECONDS) == -signal.SIGKILL
    process.send_signal(signal.SIGTERM)
    assert process.returncode == -signal.SIGKILL


def test_kills_pauses_and_clean_ends_are_as_of_any_process(cluster: ProcessCluster) -> None:
    """SIGKILL, restart, SIGSTOP, SIGCONT, SIGTERM, and the statuses that they lead to."""
    first = cluster.nodes[BROKER].process
    cluster.kill(BROKER)
    assert first.returncode == -signal.SIGKILL
    assert not psutil.pid_exists(first.pid)
    restart_and_wait(cluster, BROKER)
    second = cluster.nodes[BROKER].process
    assert psutil.Process(second.pid).ppid() == fork_server_of(cluster).pid
    cluster.signal(BROKER, signal.SIGSTOP)
    until(lambda: psutil.Process(second.pid).status() == psutil.STATUS_STOPPED)
    assert cluster.nodes[BROKER].is_running
    cluster.signal(BROKER, signal.SIGCONT)
    with broker_client(cluster.bootstrap) as broker:
        broker.create_topic("t")
    asyncio.run(cluster.stop_node(BROKER))
    assert second.returncode == 0


def test_a_node_killed_by_another_process_is_noticed(cluster: ProcessCluster) -> None:
    os.kill(cluster.pid(BROKER), signal.SIGKILL)
    until(lambda: not cluster.nodes[BROKER].is_running)
    with pytest.raises(ClusterFailed, match=f"{BROKER} went down with status -9"):
        cluster.require_running()
    cluster.nodes.pop(BROKER)


def test_nodes_outlive_their_parent_and_can_be_restarted(cluster: ProcessCluster) -> None:
    """The next start makes a new parent; only the status of a former node is unknown."""
    parent = fork_server_of(cluster)
    broker, controller = (cluster.nodes[name].process for name in (BROKER, CONTROLLER))
    parent.kill()
    until(lambda: psutil.Process(broker.pid).ppid() != parent.pid)
    assert cluster.nodes[BROKER].is_running
    with broker_client(cluster.bootstrap) as client:
        client.create_topic("t")
        assert client.produce("t", batch_of([b"value"])).base_offset == 0
    cluster.kill(BROKER)
    assert broker.returncode == UNKNOWN_STATUS
    restart_and_wait(cluster, BROKER)
    assert psutil.Process(cluster.pid(BROKER)).ppid() not in (parent.pid, os.getpid(), 1)
    with broker_client(cluster.bootstrap) as client:
        assert client.values("t") == [b"value"]
    asyncio.run(cluster.stop())
    assert controller.returncode == UNKNOWN_STATUS


def test_without_a_parent_that_can_start_nodes_start_on_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftsim.cluster.fork_server.MODULE", "kraftsim.there_is_no_such_module")
    with running_processes(tmp_path / "run") as cluster:
        assert psutil.Process(cluster.pid(BROKER)).ppid() == os.getpid()
        with broker_client(cluster.bootstrap) as client:
            client.create_topic("t")


def test_the_parent_ends_with_the_process_that_runs_the_cluster(tmp_path: Path) -> None:
    """However that ends: the operating system closes its end of the channel."""
    program = (
        "import os, signal\n"
        "from kraftsim.cluster.fork_server import ForkServer\n"
        "print(ForkServer(os.environ, 'title').pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, check=False, timeout=SECONDS
    )
    assert done.returncode == -signal.SIGKILL
    until(lambda: has_ended(int(done.stdout)))


def test_a_parent_that_does_not_answer_is_given_up(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftsim.cluster.fork_server.ANSWER_SECONDS", 0.2)
    os.kill(server.pid, signal.SIGSTOP)
    asyncio.run(server.prepare(ClusterSpec(), Role.BROKER))
    assert not server.is_running


@pytest.mark.parametrize("release", releases(), ids=lambda release: release.name)
def test_nodes_of_every_release_can_be_rehearsed(release: Release) -> None:
    """In each mode that the release has, from the specification without any setting."""
    name, rehearsed = release.name, []
    for is_possible, spec, roles in (
        (release.has_kraft, ClusterSpec(release=name), (Role.CONTROLLER, Role.BROKER)),
        (release.has_kraft, ClusterSpec(release=name, combined=1), (Role.COMBINED,)),
        (
            release.has_zookeeper_mode,
            ClusterSpec(release=name, controllers=0, zookeeper=True),
            (Role.ZOOKEEPER, Role.BROKER),
        ),
    ):
        for role in roles if is_possible else ():
            rehearse(spec, role)
            rehearsed.append(role)
    assert rehearsed


def has_ended(pid: int) -> bool:
    """Return whether a process that is not ours has ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    give_up_at = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)

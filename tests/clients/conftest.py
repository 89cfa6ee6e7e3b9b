"""One cluster of three brokers for all real clients; each test has topics of its own, and whoever kills a broker brings it back."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftsim.cluster.processes import ProcessCluster
from tests.clients.copying.clusters import Brokers, OurBrokers, our_brokers, their_brokers
from tests.clients.copying.noting import note_copies
from tests.clients.copying.story import Copying
from tests.cluster.running import come_back, running_processes

GO_SOURCE = Path(__file__).parent / "franz_go"
GO_SECONDS = 240


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """One controller and three brokers as processes."""
    with running_processes(tmp_path_factory.mktemp("clients") / "run", brokers=3) as running:
        yield running
        running.require_running()


@pytest.fixture(autouse=True)
def no_broker_stays_down(request: pytest.FixtureRequest) -> Iterator[None]:
    """Restart what a failed test has killed, so that the tests behind it are judged by themselves."""
    yield
    if "cluster" in request.fixturenames:
        running: ProcessCluster = request.getfixturevalue("cluster")
        for name in running.spec.node_names:
            if running.is_down(name):
                come_back(running, name)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that belongs to one test."""
    words = f"{request.module.__name__.rpartition('.')[2]}-{request.node.name}".replace("test_", "")
    return "".join(letter if letter.isalnum() else "-" for letter in words)[:200]


@pytest.fixture(scope="session")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Go program, built; skips where there is no Go, one that is too old, or no way to the modules."""
    if shutil.which("go") is None:
        pytest.skip("no go on the search path")
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    quiet: dict[str, Any] = {"cwd": GO_SOURCE, "env": environment, "capture_output": True, "text": True, "timeout": GO_SECONDS, "check": False}
    brought = subprocess.run(["go", "mod", "download"], **quiet)
    if brought.returncode != 0:
        pytest.skip(f"go cannot bring the modules: {brought.stderr.strip().splitlines()[-1]}")
    program = tmp_path_factory.mktemp("franz_go") / "interop"
    built = subprocess.run(["go", "build", "-o", str(program), "."], **quiet)
    assert built.returncode == 0, built.stderr
    return program


@pytest.fixture(scope="session", params=["kraftsim", "apache-kafka-3.9.1"])
def three_brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three brokers that keep everything three times: ours and, by `make exactly-once`, Apache Kafka's, which want a machine of their own."""
    if request.param == "kraftsim":
        with our_brokers(tmp_path_factory.mktemp("exactly-once") / "run") as ours:
            yield ours
        return
    if not os.environ.get("KRAFTSIM_EXACTLY_ONCE"):
        pytest.skip("Apache Kafka is put to the same by `make exactly-once`")
    with their_brokers() as theirs:
        yield theirs


@pytest.fixture(scope="session")
def copied() -> dict[Path, int]:
    """How many records were copied in the runs of this session, by the directory of the run."""
    return {}


@pytest.fixture
def keep_copies(three_brokers: Brokers, copied: dict[Path, int]) -> Callable[[Copying], None]:
    """Write down what was copied into the event log of our run, for Spark; of Apache Kafka there is none."""

    def keep(copying: Copying) -> None:
        if isinstance(three_brokers, OurBrokers):
            note_copies(three_brokers.cluster, copying)
            run = three_brokers.cluster.directory.root
            copied[run] = copied.get(run, 0) + len(copying.writer.acknowledged)

    return keep

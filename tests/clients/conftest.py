"""One cluster of three brokers for all real clients; each test has its own topics, and a test that
kills a broker restarts it.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftsim.cluster.processes import ProcessCluster
from tests.clients.transform_app.clusters import Brokers, OurBrokers, our_brokers, their_brokers
from tests.clients.transform_app.event_log import log_outputs
from tests.clients.transform_app.scenario import TransformApp
from tests.cluster.running import restart_and_wait, running_processes

GO_SOURCE = Path(__file__).parent / "franz_go"
GO_SECONDS = 240


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """One controller and three brokers as processes."""
    with running_processes(tmp_path_factory.mktemp("clients") / "run", brokers=3) as running:
        yield running
        running.require_running()


@pytest.fixture(autouse=True)
def restart_dead_brokers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Restart brokers that a failed test has killed, so that the following tests are not
    affected.
    """
    yield
    if "cluster" in request.fixturenames:
        running: ProcessCluster = request.getfixturevalue("cluster")
        for name in running.spec.node_names:
            if running.is_down(name):
                restart_and_wait(running, name)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that belongs to one test."""
    words = f"{request.module.__name__.rpartition('.')[2]}-{request.node.name}".replace("test_", "")
    return "".join(letter if letter.isalnum() else "-" for letter in words)[:200]


@pytest.fixture(scope="session")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Go program, built; skips without Go, with an old Go, or without access to the modules."""
    if shutil.which("go") is None:
        pytest.skip("Go is not on the search path")
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    quiet: dict[str, Any] = {
        "cwd": GO_SOURCE,
        "env": environment,
        "capture_output": True,
        "text": True,
        "timeout": GO_SECONDS,
        "check": False,
    }
    brought = subprocess.run(["go", "mod", "download"], **quiet)
    if brought.returncode != 0:
        pytest.skip(f"go cannot bring the modules: {brought.stderr.strip().splitlines()[-1]}")
    program = tmp_path_factory.mktemp("franz_go") / "interop"
    built = subprocess.run(["go", "build", "-o", str(program), "."], **quiet)
    assert built.returncode == 0, built.stderr
    return program


@pytest.fixture(scope="session", params=["kraftsim", "apache-kafka-3.9.1"])
def three_brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Brokers]:
    """Three brokers with three replicas of everything: ours and, with `make exactly-once`, Apache
    Kafka's, which need a machine of their own.
    """
    if request.param == "kraftsim":
        with our_brokers(tmp_path_factory.mktemp("exactly-once") / "run") as ours:
            yield ours
        return
    if not os.environ.get("KRAFTSIM_EXACTLY_ONCE"):
        pytest.skip("`make exactly-once` runs the same test on Apache Kafka")
    with their_brokers() as theirs:
        yield theirs


@pytest.fixture(scope="session")
def copied() -> dict[Path, int]:
    """The number of output records in the runs of this session, by run directory."""
    return {}


@pytest.fixture
def keep_outputs(three_brokers: Brokers, copied: dict[Path, int]) -> Callable[[TransformApp], None]:
    """Log the inputs and outputs in the event log of our run, for Spark; Apache Kafka has no event
    log.
    """

    def keep(transform_app: TransformApp) -> None:
        if isinstance(three_brokers, OurBrokers):
            log_outputs(three_brokers.cluster, transform_app)
            run = three_brokers.cluster.directory.root
            copied[run] = copied.get(run, 0) + len(transform_app.writer.acknowledged)

    return keep

"""One cluster of three brokers for all real clients; each test has topics of its own, and whoever kills a broker brings it back."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftsim.cluster.processes import ProcessCluster
from tests.cluster.running import running_processes

GO_SOURCE = Path(__file__).parent / "franz_go"
GO_SECONDS = 240


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """One controller and three brokers as processes."""
    with running_processes(tmp_path_factory.mktemp("clients") / "run", brokers=3) as running:
        yield running
        running.require_running()


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
    quiet = {"cwd": GO_SOURCE, "env": environment, "capture_output": True, "text": True, "timeout": GO_SECONDS, "check": False}
    brought = subprocess.run(["go", "mod", "download"], **quiet)
    if brought.returncode != 0:
        pytest.skip(f"go cannot bring the modules: {brought.stderr.strip().splitlines()[-1]}")
    program = tmp_path_factory.mktemp("franz_go") / "interop"
    built = subprocess.run(["go", "build", "-o", str(program), "."], **quiet)
    assert built.returncode == 0, built.stderr
    return program

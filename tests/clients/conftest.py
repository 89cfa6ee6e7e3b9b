"""One cluster of three brokers for all real clients; each test has topics of its own, and whoever kills a broker brings it back."""

from collections.abc import Iterator

import pytest

from kraftsim.cluster.processes import ProcessCluster
from tests.cluster.running import running_processes


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

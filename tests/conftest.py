"""Fixtures and options of all tests: Spark tests run last, and a real Apache Kafka is started on
request.
"""

import gc
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kraftsim.cluster.embedded import EmbeddedCluster
    from tests.apache_kafka.harness import ApacheKafka
    from tools.claims.recording import Figures

ClusterFactory = Callable[..., "EmbeddedCluster"]
COLLECTED_AT_OBJECTS = 100_000


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that rewrite recorded scripts, run more seeds, and write figures."""
    words = (
        "write the current behaviour to the scripts of tests/core/scripts; review the difference "
        "before you commit it"
    )
    parser.addoption("--rewrite-scripts", action="store_true", help=words)
    parser.addoption(
        "--more-seeds",
        type=int,
        default=0,
        metavar="N",
        help="run the N seeds after the usual ones of every test over a range of seeds",
    )
    parser.addoption(
        "--write-figures",
        type=Path,
        metavar="FILE",
        help="write the figures that tests record for `make claims`",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Store the figures that tests record, or compare them with docs/claims.json. Let property
    tests take their time: on a shared machine a slow example says nothing about the code.
    """
    from hypothesis import HealthCheck, settings

    from tools.claims.recording import Recorder

    settings.register_profile(
        "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("patient")
    config.pluginmanager.register(Recorder(config.getoption("write_figures")), "figures-of-claims")


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what stays until the end (modules, classes, collected
    tests), and run more rarely: it took a tenth of the CPU time of many tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTED_AT_OBJECTS)


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> "Figures":
    """Record figures for docs/claims.json: `figures(batches_read=4)`.

    In a normal run they must equal those in the file.
    """
    from tools.claims.recording import Recorder

    recorder = request.config.pluginmanager.get_plugin("figures-of-claims")
    assert isinstance(recorder, Recorder)
    return partial(recorder.record, request.node.nodeid)


@pytest.fixture
def embedded_cluster_factory() -> Iterator[ClusterFactory]:
    """A function that starts an embedded cluster, without the public plug-in around it; its
    keywords are the fields of ClusterSpec. All are stopped after the test.
    """
    from kraftsim.cluster.embedded import EmbeddedCluster
    from kraftsim.testing.cluster import specification

    with ExitStack() as running:

        def start(**options: object) -> "EmbeddedCluster":
            cluster = running.enter_context(EmbeddedCluster(specification(options)))
            cluster.fetch_producer_ids()
            return cluster

        yield start


@pytest.fixture
def embedded_cluster(
    request: pytest.FixtureRequest, embedded_cluster_factory: ClusterFactory
) -> "EmbeddedCluster":
    """An embedded cluster of one broker and one controller, or of what the `kraftsim` marker
    says.
    """
    marker = request.node.get_closest_marker("kraftsim")
    return embedded_cluster_factory(**(marker.kwargs if marker is not None else {}))


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With --more-seeds: replace ranges of seeds.

    Seeds that are listed one by one were chosen deliberately, and stay.
    """
    count = metafunc.config.getoption("more_seeds")
    own = metafunc.definition.own_markers
    for place, mark in enumerate(own):
        if count and _is_over_seeds(mark):
            first = mark.args[1].stop
            own[place] = pytest.mark.parametrize("seed", range(first, first + count)).mark


def _is_over_seeds(mark: pytest.Mark) -> bool:
    return mark.name == "parametrize" and mark.args[0] == "seed" and isinstance(mark.args[1], range)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the Spark tests after all others, so that their Java is started once and runs only for
    them; the rest keeps its order. With --more-seeds: deselect tests without a range of seeds.
    """
    if config.getoption("more_seeds"):
        items[:] = [
            item for item in items if any(map(_is_over_seeds, item.iter_markers("parametrize")))
        ]
    items.sort(key=lambda item: item.get_closest_marker("spark") is not None)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, object, object]:
    """Skip tests that need a program that is not installed, whether detected in a fixture ..."""
    with _skipping_what_is_missing():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """... or in the test itself."""
    with _skipping_what_is_missing():
        return (yield)


@contextmanager
def _skipping_what_is_missing() -> Iterator[None]:
    try:
        yield
    except RuntimeError as lack:
        from tests.apache_kafka.class_path import Missing

        if not isinstance(lack, Missing):
            raise
        pytest.skip(str(lack))


@pytest.fixture(scope="session")
def apache_kafka() -> "Iterator[ApacheKafka]":
    """One running node of Apache Kafka 3.9.1, the same for all tests of the session; skips without
    Java or Maven.
    """
    from tests.apache_kafka.class_path import DEFAULT_RELEASE

    yield from _running(DEFAULT_RELEASE)


@pytest.fixture(scope="session")
def apache_kafka_3_3() -> "Iterator[ApacheKafka]":
    """One running node of Apache Kafka 3.3.2, as `apache_kafka`."""
    yield from _running("3.3.2")


@pytest.fixture(scope="session")
def apache_kafka_3_5() -> "Iterator[ApacheKafka]":
    """One running node of Apache Kafka 3.5.2, as `apache_kafka`."""
    yield from _running("3.5.2")


@pytest.fixture(scope="session")
def apache_kafka_4() -> "Iterator[ApacheKafka]":
    """One running node of Apache Kafka 4.1.2, as `apache_kafka`."""
    yield from _running("4.1.2")


@pytest.fixture(scope="session")
def apache_kafka_newest() -> "Iterator[ApacheKafka]":
    """One running node of the newest Apache Kafka in use, as `apache_kafka`."""
    from tests.apache_kafka.class_path import NEWEST_RELEASE

    yield from _running(NEWEST_RELEASE)


QUICK = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
}
"""Settings of the shared nodes: by default a test would wait up to 10 s for a transaction to time
out, and 15 s for the shortest lock of a share group. Releases without share groups ignore the
second one.
"""


def _running(release: str) -> "Iterator[ApacheKafka]":
    from tests.apache_kafka.harness import ApacheKafka, archive_classes

    archive_classes(release)
    node = ApacheKafka(release, QUICK)
    node.start()
    try:
        yield node
    finally:
        node.remove()

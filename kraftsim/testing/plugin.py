"""The pytest plug-in: clusters as fixtures.

    def test_mine(kraftsim_cluster, kraftsim_topic):
        producer = confluent_kafka.Producer(kraftsim_cluster.client_settings())
        producer.produce(kraftsim_topic, b"hello")

    @pytest.mark.kraftsim(brokers=3, settings={"num.partitions": "4"}, check=True)
    async def test_other(kraftsim_cluster):
        await kraftsim_cluster.aio.kill("broker-1")

`kraftsim_cluster` runs for one test, `kraftsim_module_cluster` and `kraftsim_session_cluster` for a
module and for all tests. `--kraftsim-release 3.9,4.4` runs every test that uses one of them once
per release. See docs/in-your-tests.md.

The plug-in is loaded in every run of pytest where kraftsim is installed: what it needs is imported
when a test asks for it.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from kraftsim.control.client import ControlClient
    from kraftsim.testing.cluster import Cluster

pytest_plugins = ("kraftsim.testing.simulation_tests",)
ClusterFactory = Callable[..., "Cluster"]
CLUSTERS: Final = ("kraftsim_cluster", "kraftsim_module_cluster", "kraftsim_session_cluster")
RELEASE: Final = "kraftsim_release"
EVENTS_SHOWN: Final = 20
"""The last events of each node that a failed test shows, without those that repeat others."""
REPORT_NEEDS: Final = ("duckdb", "pyarrow", "numpy")
INSTALL_ANALYSIS: Final = "pip install 'kraftsim[analysis]'"
FACTORY: Final = "kraftsim_cluster_factory"


@dataclass(slots=True, eq=False)
class RunningCluster:
    """A cluster, the fixture that started it, and whether a test that used it has failed."""

    cluster: "Cluster"
    fixture: str
    has_failed: bool = False


RUNNING: Final = pytest.StashKey[list[RunningCluster]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("kraftsim", "clusters of kraftsim")
    group.addoption(
        "--kraftsim-release",
        metavar="RELEASE[,RELEASE]",
        default="",
        help="the release that clusters run; with several, each test runs once per release",
    )
    group.addoption(
        "--kraftsim-check",
        action="store_true",
        help="check all invariants when a cluster stops, in every test",
    )
    group.addoption(
        "--kraftsim-keep",
        action="store_true",
        help="keep disks and logs of passing tests, too (below pytest's --basetemp)",
    )
    group.addoption(
        "--kraftsim-extension",
        metavar="PATH",
        action="append",
        default=[],
        help="a file, directory or module with scenarios, invariants, faults, bugs or releases of "
        "your own; repeatable, and kraftsim_extensions in the configuration file",
    )
    parser.addini(
        "kraftsim_extensions",
        "files, directories and modules with scenarios, invariants, faults, bugs or releases of "
        "your own, relative to the root directory of the tests",
        type="linelist",
        default=[],
    )
    group.addoption(
        "--kraftsim-report",
        action="store_true",
        help="write report.html beside the logs of a cluster whose test failed "
        "(needs kraftsim[analysis])",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Announce the marker, and load extensions."""
    config.addinivalue_line(
        "markers",
        "kraftsim(*, check=False, **options): options of the cluster that the kraftsim_cluster "
        "fixtures start, as arguments of kraftsim.Cluster; `check` asks all invariants at the end",
    )
    config.stash[RUNNING] = []
    _leave_unwritten(config)
    named = [*config.getini("kraftsim_extensions"), *config.getoption("--kraftsim-extension")]
    if named:
        from kraftsim.extensions import ExtensionError, is_path, load

        try:
            for name in named:
                load(config.rootpath / name if is_path(name) else name)
        except ExtensionError as trouble:
            raise pytest.UsageError(str(trouble)) from trouble


def _leave_unwritten(config: pytest.Config) -> None:
    """Import kraftsim as it is: pytest rewrites the assertions of all modules of a distribution
    that has a plug-in, and that takes longer than all else of the first test (480 modules).

    pytest has no public way to say so; without its attribute nothing changes.
    """
    marked = getattr(config.pluginmanager.rewrite_hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.difference_update([name for name in marked if name.split(".")[0] == "kraftsim"])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with a cluster once per release that was asked for."""
    asked = metafunc.config.getoption("--kraftsim-release")
    releases = [release for release in str(asked).split(",") if release]
    if len(releases) > 1 and RELEASE in metafunc.fixturenames:
        metafunc.parametrize(RELEASE, releases, indirect=True, scope="session")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the clusters of a failed test did to its report."""
    report = yield
    if report.failed:
        used = getattr(item, "fixturenames", ())
        for running in item.config.stash[RUNNING]:
            if running.fixture in used:
                running.has_failed = True
                report.sections.append(
                    ("kraftsim cluster", _last_events(running.cluster, item.config))
                )
    return report


@pytest.fixture(scope="session")
def kraftsim_release(request: pytest.FixtureRequest) -> str | None:
    """The release that clusters run unless they name one; None is kraftsim's default."""
    chosen = getattr(request, "param", None) or request.config.getoption("--kraftsim-release")
    return str(chosen) if chosen else None


@pytest.fixture(scope="session")
def kraftsim_options() -> Mapping[str, object]:
    """Options of all clusters, as arguments of kraftsim.Cluster: redefine it in conftest.py."""
    return {}


@pytest.fixture
def kraftsim_cluster_factory(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kraftsim_release: str | None,
    kraftsim_options: Mapping[str, object],
) -> Iterator[ClusterFactory]:
    """A function that starts a cluster; its keywords are those of kraftsim.Cluster. All are stopped
    after the test.
    """
    from contextlib import ExitStack

    with ExitStack() as running:

        def start(**options: object) -> "Cluster":
            chosen = {**_of_release(kraftsim_release), **kraftsim_options, **options}
            return running.enter_context(
                _running(request.config, tmp_path_factory, FACTORY, chosen)
            )

        yield start


@pytest.fixture
def kraftsim_cluster(
    request: pytest.FixtureRequest, kraftsim_cluster_factory: ClusterFactory
) -> "Cluster":
    """A running cluster of one broker and one controller, or of what the `kraftsim` marker says."""
    return kraftsim_cluster_factory(**_marked(request))


@pytest.fixture(scope="module")
def kraftsim_module_cluster(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kraftsim_release: str | None,
    kraftsim_options: Mapping[str, object],
) -> Iterator["Cluster"]:
    """A cluster for all tests of a module; its options are those of the module's `pytestmark`."""
    chosen = {**_of_release(kraftsim_release), **kraftsim_options, **_marked(request)}
    name = "kraftsim_module_cluster"
    with _running(request.config, tmp_path_factory, name, chosen) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kraftsim_session_cluster(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kraftsim_release: str | None,
    kraftsim_options: Mapping[str, object],
) -> Iterator["Cluster"]:
    """A cluster for all tests; with xdist, for those of a worker."""
    chosen = {**_of_release(kraftsim_release), **kraftsim_options}
    name = "kraftsim_session_cluster"
    with _running(request.config, tmp_path_factory, name, chosen) as cluster:
        yield cluster


@pytest.fixture
def kraftsim_topic(request: pytest.FixtureRequest) -> str:
    """A new topic of one partition on the cluster that the test uses."""
    name = next((name for name in CLUSTERS if name in request.fixturenames), CLUSTERS[0])
    cluster: Cluster = request.getfixturevalue(name)
    return cluster.create_topic()


@pytest.fixture
def kraftsim_http(request: pytest.FixtureRequest) -> "Iterator[ControlClient]":
    """A client of the HTTP control of the cluster that the test uses: `url`, `token`, and verbs.

    Needs the extra `http`.
    """
    name = next((name for name in CLUSTERS if name in request.fixturenames), CLUSTERS[0])
    cluster: Cluster = request.getfixturevalue(name)
    with cluster.serve_http() as client:
        yield client


def _of_release(release: str | None) -> dict[str, object]:
    return {} if release is None else {"release": release}


def _marked(request: pytest.FixtureRequest) -> dict[str, object]:
    marker = request.node.get_closest_marker("kraftsim")
    return dict(marker.kwargs) if marker is not None else {}


@contextmanager
def _running(
    config: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
    fixture: str,
    options: Mapping[str, object],
) -> Iterator["Cluster"]:
    """Run a cluster; check it and delete its files afterwards, unless a test with it failed."""
    import shutil

    from kraftsim.testing.cluster import Cluster

    chosen = dict(options)
    is_checked = bool(chosen.pop("check", False)) or config.getoption("--kraftsim-check")
    directory = tmp_path_factory.mktemp("kraftsim")
    # arg-type: a dict of values of several types
    cluster = Cluster(directory=directory, **chosen)  # type: ignore[arg-type]
    running = RunningCluster(cluster, fixture)
    config.stash[RUNNING].append(running)
    try:
        with cluster:
            yield cluster
        if is_checked:
            cluster.check()
    except BaseException as error:
        running.has_failed = True
        error.add_note(_last_events(cluster, config))
        raise
    finally:
        config.stash[RUNNING].remove(running)
        if running.has_failed and config.getoption("--kraftsim-report"):
            _write_report(directory)
        if not running.has_failed and not config.getoption("--kraftsim-keep"):
            shutil.rmtree(directory, ignore_errors=True)


def _missing() -> str:
    """Return what is not installed of that which a report needs; empty if nothing is missing."""
    from importlib.util import find_spec

    return ", ".join(name for name in REPORT_NEEDS if find_spec(name) is None)


def _write_report(directory: Path) -> None:
    """Write the report of a cluster that has stopped. A test that failed fails for its own reason:
    trouble with the report is a warning.
    """
    import warnings

    if _missing():
        return  # the failed test says so
    from kraftsim.analysis.report import write_report

    try:
        write_report(directory)
    except (OSError, ValueError, RuntimeError) as trouble:
        warnings.warn(f"no report of {directory}: {trouble}", stacklevel=2)


def _last_events(cluster: "Cluster", config: pytest.Config) -> str:
    """Return the last events of each node, and where everything is."""
    from kraftsim.lab.explore.divergence import Happening
    from kraftsim.lab.explore.trace import columns_of, read_trace, select

    where = f"kept in {cluster.directory}; all events: kraftsim trace {cluster.directory}"
    if config.getoption("--kraftsim-report"):
        where += f"\nreport: {cluster.directory / 'report.html'}, when the cluster has stopped"
        if missing := _missing():
            where += f"; none, because of missing packages ({missing}): {INSTALL_ANALYSIS}"
    try:
        entries = select(read_trace(Path(cluster.directory)))
    except (OSError, ValueError) as unreadable:
        return f"{where}\n{unreadable}"
    shown = [where]
    for node in columns_of(entries):
        own = [entry for entry in entries if entry.node == node][-EVENTS_SHOWN:]
        shown.append(f"{node}:")
        shown += [
            f"  {Happening(at_ns=entry.at_ns, kind=entry.kind, fields=entry.fields)}"
            for entry in own
        ]
    return "\n".join(shown)

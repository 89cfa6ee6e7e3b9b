"""kraftsim as a user installs it: a wheel, in an environment with only its core dependencies."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from kraftsim import __version__
from kraftsim.cluster.ports import free_port_range

pytestmark = pytest.mark.interop
PROJECT_ROOT = Path(__file__).parents[2]
SOURCES = (
    "MANIFEST.in",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "NOTICE",
    "kraftsim",
    "protocol",
    "pyspark_kafka_log",
    "scenarios",
    "tools/__init__.py",
    "tools/wheel.py",
)
PYTEST = (
    "iniconfig",
    "packaging",
    "pluggy",
    "pygments",
    "pytest",
    "pytest-asyncio",
    "typing-extensions",
)
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
HINT = "which is not installed: pip install 'kraftsim[analysis]'"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a wheel is built from: setuptools writes files beside the sources."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        place = PROJECT_ROOT / name
        if place.is_dir():
            shutil.copytree(place, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (source / name).parent.mkdir(exist_ok=True)
            shutil.copy(place, source / name)
    return source


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel."""
    return _wheel_of(sources, tmp_path_factory.mktemp("wheel"))


def _wheel_of(source: Path, target: Path) -> Path:
    _run(
        *PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(target), str(source)
    )
    return next(target.glob("kraftsim-*.whl"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment with the wheel and the core dependencies."""
    home = tmp_path_factory.mktemp("bare")
    _run(sys.executable, "-m", "venv", "--without-pip", str(home))
    into = (*PIP, "--python", str(home / "bin" / "python"), "install", "--no-compile")
    _run(*into, "--require-hashes", "-r", str(PROJECT_ROOT / "requirements-core.lock"))
    _run(*into, "--no-deps", str(wheel))
    return home / "bin"


def _run(
    *command: str,
    cwd: Path | None = None,
    status: int = 0,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    cleaned = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**cleaned, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_a_wheel_has_no_common_names_at_the_top(wheel: Path) -> None:
    """`protocol` and `scenarios` would collide with packages of the projects that install it; Spark
    finds a data source by a package of its own.
    """
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0].removesuffix(".dist-info") for name in names} == {
        "kraftsim",
        "pyspark_kafka_log",
        f"kraftsim-{__version__}",
    }
    assert {
        "kraftsim/py.typed",
        "kraftsim/protocol/py.typed",
        "kraftsim/scenarios/py.typed",
        "kraftsim/analysis/page/style.css",
    } <= names


def test_a_wheel_from_the_source_distribution_is_the_same(
    sources: Path, wheel: Path, tmp_path: Path
) -> None:
    program = "import setuptools.build_meta as backend, sys; backend.build_sdist(sys.argv[1])"
    _run(sys.executable, "-c", program, str(tmp_path), cwd=sources)
    shutil.unpack_archive(next(tmp_path.glob("kraftsim-*.tar.gz")), tmp_path, filter="data")
    unpacked = next(place for place in tmp_path.glob("kraftsim-*") if place.is_dir())
    again = zipfile.ZipFile(_wheel_of(unpacked, tmp_path / "wheel"))
    first = zipfile.ZipFile(wheel)
    assert {name: first.read(name) for name in first.namelist()} == {
        name: again.read(name) for name in again.namelist()
    }


def test_a_project_may_have_packages_of_the_same_names(bare: Path, tmp_path: Path) -> None:
    """The fixture runs beside them, and a scenario leaves the events of the source tree."""
    project = tmp_path / "project"
    for name in ("protocol", "scenarios"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text("OWN = True\n")
    (project / "test_mine.py").write_text(
        "import protocol, scenarios\n\n"
        "def test_mine(kraftsim_cluster):\n"
        "    assert protocol.OWN and scenarios.OWN\n"
        "    assert kraftsim_cluster.bootstrap\n"
    )
    _install_pytest(bare, tmp_path)
    passed = _run(str(bare / "python"), "-m", "pytest", "-q", cwd=project)
    assert "1 passed" in passed.stdout
    played = ("scenario", "producer_ids_survive_failover", "--seed", "3", "--out")
    _run(str(bare / "python"), "-m", "kraftsim", *played, "here", cwd=project)
    _run(sys.executable, "-m", "kraftsim", *played, str(tmp_path / "source"), cwd=PROJECT_ROOT)
    logs = {
        place: {log.name: log.read_bytes() for log in (place / "events").iterdir()}
        for place in (project / "here", tmp_path / "source")
    }
    first, second = logs.values()
    assert first and first == second


def _install_pytest(bare: Path, tmp_path: Path) -> None:
    lines = tmp_path / "requirements.txt"
    lines.write_text(_locked(PYTEST))
    into = (*PIP, "--python", str(bare / "python"), "install", "--no-compile", "--no-deps")
    _run(*into, "--require-hashes", "-r", str(lines))


def test_extensions_written_by_the_command_work_beside_the_wheel(
    bare: Path, tmp_path: Path
) -> None:
    """Their imports are the same as in a source tree; without the extra for SQL its tests are
    skipped.
    """
    _install_pytest(bare, tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    kraftsim = str(bare / "kraftsim")
    for kind in ("scenario", "invariant", "fault", "bug", "release"):
        _run(kraftsim, "new", kind, f"own-{kind}", cwd=project)
    passed = _run(str(bare / "python"), "-m", "pytest", "-q", cwd=project)
    assert "15 passed, 3 skipped" in passed.stdout
    listed = _run(kraftsim, "list", "scenarios", "--extension", ".", cwd=project).stdout
    assert "[./own_scenario.py]" in listed
    program = (
        "from kraftsim.extend import ApiKey, ErrorCode, protocol_module as module; "
        "print(ApiKey.__module__, module('errors').ErrorCode is ErrorCode)"
    )
    shown = _run(str(bare / "python"), "-c", program, cwd=project).stdout
    assert shown.split() == ["kraftsim.protocol.api_keys", "True"]


def test_nodes_run_on_the_loop_of_asyncio_where_uvloop_is_not_installed(
    bare: Path, tmp_path: Path
) -> None:
    """As on Windows, or on a Python that is newer than the newest uvloop."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "uvloop.py").write_text("raise ModuleNotFoundError('uvloop')\n")
    port = free_port_range(1)
    environment = {"PYTHONPATH": str(hidden)}
    kraftsim = str(bare / "kraftsim")
    _run(
        *(kraftsim, "up", "--brokers", "1", "--port", str(port), "--data", "up", "--detach"),
        cwd=tmp_path,
        environment=environment,
    )
    try:
        done = _run(kraftsim, "doctor", "--node", f"127.0.0.1:{port}", cwd=tmp_path)
        assert "APIs" in done.stdout
    finally:
        _run(kraftsim, "down", "--data", "up", cwd=tmp_path)


def _locked(names: Sequence[str]) -> str:
    """Return the lines of the lock file about some packages, with their hashes."""
    text = (PROJECT_ROOT / "requirements.lock").read_text()
    entries = re.findall(r"^[^\s#].*(?:\n .*)*", text, re.MULTILINE)
    found = [entry for entry in entries if re.split(r"[=\[ ]", entry)[0] in names]
    assert len(found) == len(names), found
    return "\n".join(found)


def test_commands_without_their_extra_name_it_and_others_work(bare: Path, tmp_path: Path) -> None:
    kraftsim = str(bare / "kraftsim")
    run = str(tmp_path / "run")
    simulated = _run(
        kraftsim,
        "scenario",
        "producer_ids_survive_failover",
        "--seed",
        "7",
        "--out",
        run,
        cwd=tmp_path,
    )
    assert "producer_ids_survive_failover (sim, seed 7): ok" in simulated.stdout
    for verb in ("ingest", "analyze", "report", "trail"):
        done = _run(kraftsim, verb, run, cwd=tmp_path, status=3)
        assert done.stderr.count("\n") == 1 and HINT in done.stderr, done.stderr
    assert (
        _run(kraftsim, "doctor", "--require", "pyspark", cwd=tmp_path, status=3).stdout.count(
            "kraftsim[analysis]"
        )
        == 1
    )

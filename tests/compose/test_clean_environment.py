"""kraftsim as a user installs it: a wheel, in an environment with only its core dependencies."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop
PROJECT_ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "kraftsim", "protocol", "scenarios")
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
HINT = "which is not installed: pip install 'kraftsim[analysis]'"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from a copy: setuptools writes files beside the sources."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        place = PROJECT_ROOT / name
        if place.is_dir():
            shutil.copytree(place, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(place, source / name)
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
    *command: str, cwd: Path | None = None, status: int = 0
) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_a_wheel_contains_py_typed_and_the_report_page(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "kraftsim/py.typed",
        "protocol/py.typed",
        "scenarios/py.typed",
        "kraftsim/analysis/page/style.css",
    } <= names


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

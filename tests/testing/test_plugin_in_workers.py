"""The plug-in with pytest-xdist, and the report of a failed test."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = "pytester"

pytestmark = pytest.mark.interop
"""Each test starts other Python processes, and the report needs DuckDB."""
MODULE = """
import os, pathlib, pytest
from tests_of_workers import note

@pytest.mark.parametrize("number", range(4))
def test_own(kraftsim_cluster, kraftsim_topic, number):
    note("own", kraftsim_cluster)

def test_shared(kraftsim_session_cluster, kraftsim_topic):
    note("session", kraftsim_session_cluster)

def test_fails(kraftsim_cluster, kraftsim_topic):
    if os.environ["FAILS"] in kraftsim_cluster.spec.release:
        raise RuntimeError("the application broke")
"""
NOTES = """
import os, pathlib

def note(scope, cluster):
    worker = os.environ["PYTEST_XDIST_WORKER"]
    line = f"{scope} {worker} {cluster.spec.release} {cluster.bootstrap}\\\\n"
    with open(os.environ["NOTES"], "a") as file:
        file.write(line)
"""


WORKERS = ("pytest-xdist==3.8.0", "execnet==2.1.1")


@pytest.fixture(scope="module")
def xdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with pytest-xdist, which kraftsim's own tests do not use."""
    place = tmp_path_factory.mktemp("xdist")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(place), *WORKERS], check=True)
    return place


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Run pytest in a process of its own."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    return pytester.run(*(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *options))


def test_a_suite_runs_in_two_workers_and_on_two_releases(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, xdist: Path
) -> None:
    """Nothing collides, a session is one of a worker, and a failure says where everything is."""
    notes, base = pytester.path / "notes", pytester.path / "base"
    monkeypatch.setenv("NOTES", str(notes))
    monkeypatch.setenv("FAILS", "4.1")
    pytester.makepyfile(tests_of_workers=NOTES.replace("\\\\n", "\\n"))
    pytester.makepyfile(test_one=MODULE, test_two=MODULE)
    places = (xdist, pytester.path, Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, places)))
    found = run(pytester, "-n", "2", f"--basetemp={base}", "--kraftsim-release", "3.9,4.1")
    found.assert_outcomes(passed=22, failed=2)
    lines = [line.split() for line in notes.read_text().splitlines()]
    assert {worker for _, worker, _, _ in lines} == {"gw0", "gw1"}
    own = [address for scope, _, _, address in lines if scope == "own"]
    assert len(own) == len(set(own)) == 16
    shared: dict[tuple[str, str], set[str]] = {}
    for scope, worker, release, address in lines:
        if scope == "session":
            shared.setdefault((worker, release), set()).add(address)
    assert all(len(addresses) == 1 for addresses in shared.values())
    found.stdout.fnmatch_lines(["*kraftsim cluster*", "kept in *; all events: kraftsim trace *"])
    kept = re.findall(r"kept in (\S+);", found.stdout.str())
    assert len(kept) == 2
    assert all((Path(place) / "events" / "broker-1.1.jsonl").exists() for place in kept)
    assert len(list(base.glob("**/broker-1.1.jsonl"))) == 2


def test_a_failed_test_leaves_a_report(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_fails(kraftsim_cluster, kraftsim_topic):
            kraftsim_cluster.inject_error("Produce", "NOT_LEADER_OR_FOLLOWER")
            raise RuntimeError("the application broke")

        def test_passes(kraftsim_cluster):
            pass
        """
    )
    base = pytester.path / "base"
    found = run(pytester, f"--basetemp={base}", "--kraftsim-report")
    found.assert_outcomes(failed=1, passed=1)
    found.stdout.fnmatch_lines(["report: */report.html, when the cluster has stopped"])
    (page,) = base.glob("**/report.html")
    assert "error NOT_LEADER_OR_FOLLOWER for Produce" in page.read_text()


def test_kraftsim_is_imported_without_rewritten_assertions(pytester: pytest.Pytester) -> None:
    """pytest would rewrite 480 modules in the first test of a project."""
    pytester.makepyfile(
        """
        def test_plain(kraftsim_cluster):
            import kraftsim.testing.cluster as module
            assert type(module.__loader__).__name__ == "SourceFileLoader"
        """
    )
    run(pytester).assert_outcomes(passed=1)

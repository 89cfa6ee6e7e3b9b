"""What `kraftsim new` writes outside the source tree works as it is: the file and its test; and the
plug-in loads extensions for the tests of a project.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraftsim.analysis.analyze import analyze_run
from kraftsim.cli.main import kraftsim
from kraftsim.cli.own_files import OWN_KINDS
from kraftsim.cluster.scenario import SCENARIOS
from kraftsim.extensions import apart
from kraftsim.lab.bugs.bug import BUGS
from kraftsim.lab.explore.run import run_scenario
from kraftsim.lab.faults.fault import FAULTS
from kraftsim.releases.release import RELEASES

pytest_plugins = "pytester"
NAMES = {
    "scenario": "OrdersDuringRestart",
    "invariant": "ids-given-once",
    "fault": "short-stop",
    "bug": "appends_again",
    "release": "acme",
}
TESTS = 18
IN_PROCESSES = """
import kraftsim
from kraftsim.extend import load
from kraftsim.server.events import NodeStarted

load("./own.py")

def test_nodes_are_of_an_own_release():
    with kraftsim.Cluster(mode="processes", release="3.9-own", bugs=("own-bug",)) as cluster:
        started = [event for _, event in cluster.events(NodeStarted)]
    assert {event.release for event in started} == {"3.9-own"}
"""
OWN = """
from dataclasses import replace
from kraftsim.extend import Bug, release

RELEASE = replace(release("3.9"), name="3.9-own", about="One of ours.")
BUG = Bug(name="own-bug", title="none", fixed_in=(), swap=lambda parts: parts,
          scenario="rolling_upgrade", caught_by=(), about="Ours.")
"""
CONFIGURED = """
from kraftsim.extend import bug, release

def test_loaded():
    assert release("3.9-own").about == "One of ours."
    assert bug("own-bug").title == "none"
"""


@pytest.fixture(autouse=True, scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """pytester forgets what its runs import: without this each would import all of it again, and
    Arrow does not survive that.
    """
    run = tmp_path_factory.mktemp("imported") / "run"
    run_scenario("producer_ids_survive_failover", out=run)
    analyze_run(run, ["producer-id-unique"])
    for catalogue in (SCENARIOS, FAULTS, BUGS, RELEASES):
        catalogue.all()


@pytest.fixture(autouse=True)
def nothing_loaded() -> Iterator[None]:
    """A process that has loaded nothing."""
    with apart():
        yield


def new(*arguments: str) -> str:
    """Run `kraftsim new` in this process, and return what it prints."""
    shown = CliRunner().invoke(kraftsim, ["new", *arguments])
    assert shown.exit_code == 0, shown.output
    return shown.output


def run(pytester: pytest.Pytester, *options: str, ini: str = "") -> pytest.RunResult:
    """Run pytest in the project that the test wrote."""
    pytester.makeini(f"[pytest]\nasyncio_default_fixture_loop_scope = function\n{ini}")
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)


@pytest.mark.interop
def test_new_files_and_their_tests_work_as_they_are(pytester: pytest.Pytester) -> None:
    for number, kind in enumerate(OWN_KINDS, start=1):
        shown = new(kind, NAMES[kind])
        stems = [file.stem for file in pytester.path.glob("*.py")]
        tested = [stem for stem in stems if f"test_{stem}" in stems]
        assert len(stems) == 2 * number and len(tested) == number, stems
        assert any(f"python -m pytest test_{stem}.py" in shown for stem in tested)
    run(pytester).assert_outcomes(passed=TESTS)


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_the_listings_that_are_named_exist(kind: str) -> None:
    for shown in OWN_KINDS[kind].shows:
        listed = CliRunner().invoke(kraftsim, ["list", *shown.split()])
        assert listed.exit_code == 0 and listed.output, listed.output


def test_nodes_of_processes_have_own_releases_and_bugs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(own=OWN, test_own=IN_PROCESSES)
    run(pytester).assert_outcomes(passed=1)


def test_the_plug_in_loads_extensions(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(own=OWN, test_own=CONFIGURED)
    run(pytester, ini="kraftsim_extensions = ./own.py\n").assert_outcomes(passed=1)


def test_the_plug_in_loads_those_of_its_option(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(own=OWN, test_own=CONFIGURED)
    run(pytester, "--kraftsim-extension", "./own.py").assert_outcomes(passed=1)


def test_an_extension_that_fails_ends_pytest_with_one_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(own="VALUE = (", test_own=CONFIGURED)
    failed = run(pytester, "--kraftsim-extension", "./own.py")
    assert failed.ret == pytest.ExitCode.USAGE_ERROR
    failed.stderr.fnmatch_lines(["ERROR: ./own.py, line 1: SyntaxError: '(' was never closed"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("bug", "json"), "json.py would hide the Python module json: choose another name"),
        (("api", "DescribeThing"), "api is a part of kraftsim's sources: run this in a source "),
        (("bug", "a b"), "'a b' is no name: use letters, digits, and - or _ between words"),
        (("bug", "taken"), "taken.py exists: choose another name, or remove it"),
        (("bug", "a", "--dir", ".", "--root", "."), "give --dir for an extension of your own, or"),
        (("bug", "a", "--root", "."), ". has no protocol/api_keys.py: run this in the source "),
    ],
)
def test_what_cannot_be_written_is_refused(
    arguments: tuple[str, ...], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken.py").touch()
    shown = CliRunner().invoke(kraftsim, ["new", *arguments])
    assert shown.exit_code == 3 and shown.output.startswith(f"Error: {complaint}"), shown.output
    assert os.listdir() == ["taken.py"]


def test_files_can_be_written_into_a_directory_that_does_not_exist_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = new("fault", "short-stop", "--dir", "faults/mine")
    assert "--extension ./faults/mine/short_stop.py" in shown
    assert Path("faults/mine/test_short_stop.py").is_file()


def test_a_release_is_not_written_into_the_source_tree(tmp_path: Path) -> None:
    (tmp_path / "protocol").mkdir()
    (tmp_path / "protocol" / "api_keys.py").touch()
    shown = CliRunner().invoke(kraftsim, ["new", "release", "a", "--root", str(tmp_path)])
    assert shown.exit_code == 3 and "use --dir for one of your own" in shown.output

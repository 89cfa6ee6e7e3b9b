"""Scenarios, invariants, faults, bugs and releases of files outside of kraftsim: found, run,
repeated, and refused with one line.
"""

import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftsim import extensions
from kraftsim.cli.main import kraftsim
from kraftsim.cluster.scenario import SCENARIOS, Mode, scenario
from kraftsim.extensions import ExtensionError, apart, exporting, for_child, load, load_file
from kraftsim.invariants.invariant import INVARIANTS
from kraftsim.lab.bugs.bug import BUGS
from kraftsim.lab.campaign.sweep import sweep
from kraftsim.lab.explore.replay import read_replay
from kraftsim.lab.explore.request import faults_of
from kraftsim.lab.explore.run import run_scenario
from kraftsim.lab.faults.fault import FAULTS
from kraftsim.releases.release import RELEASES, release, releases

SCENARIO = '''
"""Clients request producer ids."""

from kraftsim.extend import Mode, Scenario, ScenarioEnvironment


async def run(stage: ScenarioEnvironment) -> None:
    client = stage.producer_id_client("client-1")
    await client.ask(stage.workload("ids"))
    await client.close()


SCENARIO = Scenario(
    name="own_ids",
    summary="Clients request producer ids.",
    must_exercise=("producer-id-unique",),
    run=run,
    faults=lambda random, mode: (),
    brokers=1,
    workload={"ids": 5},
)
'''
INVARIANT = '''
from kraftsim.extend import Findings, Invariant
from kraftsim.producer_ids.events import ProducerIdReturned

class Check:
    """No producer id is above 3."""
    def __init__(self):
        self._findings = Findings("few-ids")
    def examine(self, envelope, event):
        self._findings.examined += 1
        if event.producer_id > 3:
            return self._findings.violation("4", "a producer id is above 3", envelope.event_id)
    def finish(self):
        return self._findings.verdict()

INVARIANT = Invariant(
    name="few-ids",
    rule="No producer id is above 3.",
    source="none",
    watches=(ProducerIdReturned,),
    check=Check,
    examined="SELECT run, count(*) FROM producer_id_returned GROUP BY run",
    violations="SELECT run, '4' AS key, 'a producer id is above 3' AS message, min(position) AS "
    "first_witness, CAST(NULL AS BIGINT) AS second_witness FROM producer_id_returned "
    "WHERE producer_id > 3 GROUP BY run",
)
'''
FAULT = '''
from kraftsim.extend import Family, FaultKind

def inject(injection):
    """A process ends."""
    injection.simulation.kill(injection.host())
    injection.record_effect("it ended")

FAULT = FaultKind(name="own-end", title="an end", family=Family.PROCESS, inject=inject)
'''
RELEASE = """
from dataclasses import replace
from kraftsim.extend import release

RELEASE = replace(release("3.9"), name="3.9-own", about="One of ours.")
"""
BUG = """
from kraftsim.extend import Bug

BUG = Bug(name="own-bug", title="none", fixed_in=(), swap=lambda parts: parts,
          scenario="own_ids", caught_by=(), about="Ours.")
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current directory, and a process that has loaded nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(extensions.VARIABLE, raising=False)
    with apart():
        yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def write(**texts: str) -> None:
    """Write NAME.py for each text into the current directory."""
    for name, text in texts.items():
        Path(f"{name}.py").write_text(text)


def run(*arguments: str) -> Result:
    """Run a command line in this process."""
    return CliRunner().invoke(kraftsim, arguments)


def test_a_file_is_one_module_that_its_neighbours_import_by_name() -> None:
    """Its directory is on the path, as for a script."""
    write(own_a="import own_b\nVALUE = own_b.VALUE", own_b="VALUE = 7")
    module = load_file(Path("own_a.py"))
    assert module.VALUE == 7 and load_file(Path("../") / Path.cwd().name / "own_a.py") is module
    assert importlib.import_module("own_a") is module


def test_a_file_of_a_package_has_relative_imports() -> None:
    Path("own_pack").mkdir()
    write(
        **{"own_pack/__init__": "", "own_pack/a": "from .b import VALUE", "own_pack/b": "VALUE = 1"}
    )
    assert load_file(Path("own_pack/a.py")).__name__ == "own_pack.a"


def test_a_file_may_have_the_name_of_another_module() -> None:
    """And that module stays what it was."""
    write(json="VALUE = 1")
    module = load_file(Path("json.py"))
    assert module.VALUE == 1 and sys.modules["json"] is json
    assert load_file(Path("json.py")) is module


def test_entries_of_extensions_follow_the_built_in_ones() -> None:
    """The order of the others is that of a process without extensions: seeds draw from it."""
    catalogues = (SCENARIOS, INVARIANTS, FAULTS, BUGS, RELEASES)
    before = [catalogue.names() for catalogue in catalogues]
    write(own_a=SCENARIO + INVARIANT, own_b=FAULT + BUG, own_c=RELEASE)
    for file in ("./own_a.py", "./own_b.py", "./own_c.py"):
        load(file)
    after = [catalogue.names() for catalogue in catalogues]
    own = ("own_ids", "few-ids", "own-end", "own-bug", "3.9-own")
    assert after == [(*names, name) for names, name in zip(before, own, strict=True)]
    assert SCENARIOS.named("own-ids").brokers == 1
    assert [each.name for each in releases() if each.name.startswith("3.9")] == ["3.9", "3.9-own"]


def test_only_an_own_fault_changes_what_seeds_draw() -> None:
    named, seeds = scenario("quorum_under_faults"), range(60)
    before = [faults_of(named, seed, Mode.SIM) for seed in seeds]
    write(own_a=SCENARIO + INVARIANT + BUG + RELEASE, own_b=FAULT)
    load("./own_a.py")
    assert [faults_of(named, seed, Mode.SIM) for seed in seeds] == before
    load("./own_b.py")
    after = [faults_of(named, seed, Mode.SIM) for seed in seeds]
    assert "own-end" in {fault.kind for faults in after for fault in faults}


def test_a_scenario_runs_and_repeats_by_its_path() -> None:
    write(own_a=SCENARIO)
    first = run("scenario", "./own_a.py", "--seed", "3", "--out", "runs/3")
    assert first.exit_code == 0 and "./own_a.py (sim, seed 3): ok" in first.output, first.output
    again = run("replay", "runs/3", "--check")
    assert again.exit_code == 0 and "the same, byte for byte" in again.output, again.output
    assert list(read_replay(Path("runs/3")).extensions) == ["./own_a.py"]
    assert "--extension ./own_a.py" in json.loads(Path("runs/3/run.json").read_text())["command"]


def test_help_of_a_path_shows_the_scenario() -> None:
    write(own_a=SCENARIO)
    shown = run("scenario", "./own_a.py", "--help")
    assert shown.exit_code == 0, shown.output
    assert "scenario ./own_a.py --out" in shown.output and "ids=5" in shown.output


@pytest.mark.interop
def test_an_own_invariant_stops_a_run_and_a_shrunk_one() -> None:
    """In worker processes, too: they load what this process has loaded."""
    write(own_a=SCENARIO, own_b=INVARIANT)
    load("./own_b.py")
    found = sweep("./own_a.py", seeds=(1, 2), workers=2, keep_going=True)
    assert [each.invariants_violated for each in found.found] == [("few-ids",)] * 2
    out = ("--out", "runs/small", "--jobs", "2")
    small = run("shrink", "--scenario", "./own_a.py", "--extension", "./own_b.py", *out)
    assert small.exit_code == 0 and "few-ids" in small.output, small.output
    assert set(read_replay(Path("runs/small")).extensions) == {"./own_a.py", "./own_b.py"}


@pytest.mark.interop
def test_identity_is_checked_in_processes_that_load_the_file() -> None:
    write(own_a=SCENARIO)
    done = run("sweep", "./own_a.py", "--seeds", "1", "--check-identity")
    assert done.exit_code == 0 and "./own_a.py: 0 of 1 seeds differ" in done.output, done.output


def test_all_scenarios_of_a_sweep_include_those_of_extensions() -> None:
    write(own_a=SCENARIO)
    load("./own_a.py")
    assert SCENARIOS.all()[-1].name == "own_ids"


@pytest.mark.interop
def test_a_bug_and_a_release_are_handed_on_to_nodes_and_a_scenario_is_not() -> None:
    """A node imports no more than it needs."""
    write(own_a=SCENARIO, own_b=BUG, own_c=RELEASE)
    for file in ("./own_a.py", "./own_b.py", "./own_c.py"):
        load(file)
    named = for_child(*extensions.EXPORTS_FOR_NODES)[extensions.VARIABLE].split(":")
    assert [Path(name).name for name in named] == ["own_b.py", "own_c.py"]
    result = run_scenario("own_ids", release="3.9-own", bugs=("own-bug",))
    assert result.outcome == "ok" and "--release 3.9-own" in result.command


def test_the_variable_names_files_and_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    write(own_a=SCENARIO, own_mod=BUG)
    monkeypatch.syspath_prepend(Path.cwd())
    monkeypatch.setenv(extensions.VARIABLE, "./own_a.py:own_mod")
    extensions._Process.loaded.has_read_variable = False
    assert SCENARIOS.named("own_ids").brokers == 1 and BUGS.named("own-bug").about == "Ours."


def test_entry_points_are_read_where_no_built_in_entry_has_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node asks for its release by name, and does not pay for them."""
    about = Path("own_dist-1.0.dist-info")
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-dist\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{extensions.GROUP}]\nown = own_mod\n")
    write(own_mod=RELEASE)
    monkeypatch.syspath_prepend(Path.cwd())
    extensions._Process.loaded.has_read_entry_points = False
    assert release("3.9").name == "3.9"
    assert not extensions._Process.loaded.has_read_entry_points
    assert release("3.9-own").about == "One of ours."
    (found,) = exporting("RELEASE", installed=True)
    assert (found.name, found.distribution) == ("own_mod", "own-dist")
    assert extensions.VARIABLE not in for_child("RELEASE")  # a node finds it itself


def test_listings_show_the_file_of_an_entry() -> None:
    write(own_a=SCENARIO + INVARIANT + FAULT + BUG + RELEASE)
    for kind, name in (
        ("scenarios", "own_ids"),
        ("invariants", "few-ids"),
        ("faults", "own-end"),
        ("bugs", "own-bug"),
        ("releases", "3.9-own"),
    ):
        shown = run("list", kind, "--extension", "./own_a.py", "--json", "rows.json")
        lines = [line for line in shown.output.splitlines() if "[./own_a.py]" in line]
        assert len(lines) == 1 and lines[0].startswith(name), shown.output
        rows = json.loads(Path("rows.json").read_text())
        assert [row["name"] for row in rows if row["extension"] == "./own_a.py"] == [name]


def test_a_directory_is_all_its_files_with_exports() -> None:
    write(own_a=SCENARIO, own_b=BUG, own_c="VALUE = 1", test_own_a="raise RuntimeError")
    assert [each.place for each in load(".")] == ["./own_a.py", "./own_b.py"]


TWO = f"{SCENARIO}\nfrom dataclasses import replace\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("VALUE = (1,\n", "./own_a.py, line 1: SyntaxError: '(' was never closed"),
        ("\n\nraise RuntimeError('no')\n", "./own_a.py, line 3: RuntimeError: no"),
        ("import no_such\n", "./own_a.py, line 1: ModuleNotFoundError: No module named 'no_such'"),
        ("import sys\nsys.exit(1)\n", "./own_a.py, line 2: SystemExit: 1"),
        ("VALUE = 1\n", "./own_a.py exports no SCENARIO"),
        ("SCENARIO = 1\n", "./own_a.py must export a Scenario as SCENARIO"),
        (
            f"{TWO}SCENARIOS = (SCENARIO, replace(SCENARIO, brokers=2))\n",
            "./own_a.py has two scenarios called own_ids: rename one",
        ),
        (
            f"{TWO}SCENARIOS = (SCENARIO, replace(SCENARIO, name='other'))\n",
            "./own_a.py has several scenarios: name one of own_ids, other, with --extension",
        ),
        (
            f"{TWO}SCENARIO = replace(SCENARIO, name='rolling-upgrade')\n",
            "./own_a.py: there is a built-in scenario rolling-upgrade: choose another name",
        ),
    ],
)
def test_a_scenario_that_cannot_be_used_is_refused_with_one_line(text: str, complaint: str) -> None:
    write(own_a=text)
    for verb in (("scenario",), ("sweep", "--seeds", "1"), ("shrink", "--scenario")):
        done = run(*verb, "./own_a.py", "--out", "runs/a")
        assert done.exit_code == 3, done.output
        assert done.output.startswith(f"Error: {complaint}"), done.output
        assert len(done.output.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("scenario", "./no.py", "--out", "a"), "./no.py does not exist: name a Python file"),
        (("--extension", "./own_a.py", "list", "bugs"), "./own_a.py exports none of SCENARIO, "),
        (("list", "bugs", "--extension", "no_such"), "there is no module no_such: name an "),
        (("list", "bugs", "--extension", "./empty"), "./empty: no file in this directory exports"),
        (("list", "bugs", "--extension", "own.txt"), "there is no module own.txt: name an "),
        (("list", "bugs", "--extension", "./own.txt"), "./own.txt is no Python file: its name "),
        (("up", "--extension", "./bad.py"), "./bad.py, line 5: ValueError: a release cannot be "),
        (
            ("scenario", "rolling_upgrade", "--release", "9.9", "--out", "a"),
            "no release is called 9.9 (there are: 3.9, ",
        ),
        (("sweep", "all", "--bug", "own", "--extension", "./twice.py"), "./twice.py and ./bug.py "),
    ],
)
def test_other_mistakes_are_refused_with_one_line(arguments: Sequence[str], complaint: str) -> None:
    write(own_a="VALUE = 1", bad=RELEASE.replace("3.9-own", "own"), bug=BUG, twice=BUG)
    Path("own.txt").touch()
    Path("empty").mkdir()
    load("./bug.py")
    done = run(*arguments)
    assert done.exit_code == 3, done.output
    assert done.output.startswith(f"Error: {complaint}"), done.output
    assert len(done.output.splitlines()) == 1


@pytest.mark.interop
def test_a_replay_that_differs_names_the_extension_that_has_changed() -> None:
    write(own_a=SCENARIO)
    run("scenario", "./own_a.py", "--out", "runs/1")
    write(own_a=SCENARIO.replace("await client.ask(", "await client.ask(3 + "))
    with apart():
        del sys.modules["own_a"]
        done = run("replay", "runs/1", "--check")
    assert "not the same" in done.output and "./own_a.py has changed since the run" in done.output


def test_a_replay_names_the_extension_that_is_missing() -> None:
    write(own_a=SCENARIO)
    run("scenario", "./own_a.py", "--out", "runs/1")
    Path("own_a.py").rename("moved.py")
    done = run("replay", "runs/1")
    assert done.exit_code == 3
    assert done.output.startswith("Error: the run needs the extension ./own_a.py, which does not ")


def test_a_campaign_on_a_cluster_refuses_a_file() -> None:
    """Its workers do not have it; they may have a module."""
    write(own_a=SCENARIO)
    spark = ("--spark", "spark://127.0.0.1:7077", "--out", "runs/s")
    done = run("sweep", "./own_a.py", "--seeds", "1", *spark)
    assert done.exit_code == 3 and "install it there as a module" in done.output, done.output


def test_an_extension_that_fails_later_is_one_of_the_catalogue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file of the variable is read at the first look, by whatever command looks."""
    write(own_a="raise RuntimeError('late')")
    monkeypatch.setenv(extensions.VARIABLE, "./own_a.py")
    extensions._Process.loaded.has_read_variable = False
    with pytest.raises(ExtensionError, match=r"\./own_a\.py, line 1: RuntimeError: late"):
        SCENARIOS.all()

"""Deliberately wrong rules: they apply to the code, are detected by their first seeds, leave no
trace, and the seeds are clean without them.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypedDict, get_args

import pytest
from msgspec.structs import replace

from kraftsim.lab.explore.run import run_scenario
from kraftsim.raft import rules_elections
from kraftsim.raft.rules_roles import Leadership
from tools.docs.mutants_page import HOW
from tools.mutants.campaign import Budget, failing_controls, is_open, run_mutants, unclean_controls
from tools.mutants.catalogue import mutant_named, mutants
from tools.mutants.generator import generated
from tools.mutants.mutant import BY_HAND, Mutant
from tools.mutants.mutation_run import Finding, How
from tools.mutants.patching import PatchMissed, applied, function_of, mutated_code
from tools.mutants.reach import PROMISES, REACH
from tools.mutants.reached import noting
from tools.mutants.results import read
from tools.mutants.rooms import ROOMS, Room, files_of, shares
from tools.mutants.search_stage import (
    CleanRuns,
    is_judged,
    record_clean_runs,
    search_for_mutant,
    search_terms,
)
from tools.mutants.unit_stage import ENDLESS, PROJECT_ROOT, TESTS

QUICK = ("any-log-may-lead", "counts-what-it-sent", "id-handed-out-twice", "remembers-nothing")
CHEAP = "idempotent_producers_under_kill"
QUICK_BY_SEARCH = "rules_following._truncate/negated-2"
FEWEST = 40
FEWEST_OF_ALL = 400
SURVIVORS_MAX = 0
"""The number of survivors without a reason. It may only decrease."""
NOT_HUNTED_MAX = 4
"""The number of mutants that no test has run, because they are declared equivalent.

It may only decrease.
"""
NOT_JUDGED_OF_ROOMS_MAX = 124
"""The number of mutants drawn for rooms that nothing has judged yet. It may only decrease."""


class Patch(TypedDict):
    """Where a mutant changes what into what."""

    module: str
    function: str
    old: str
    new: str


class PartOfAPatch(TypedDict, total=False):
    """The differences of one patch from another."""

    module: str
    function: str
    old: str
    new: str


def test_every_mutant_applies_to_the_current_code() -> None:
    """A patch whose text is gone would test nothing and count as a survivor."""
    assert len(mutants()) >= FEWEST_OF_ALL
    for mutant in mutants():
        assert mutated_code(mutant) != function_of(mutant).__code__, mutant.name
        assert mutant.core in REACH, mutant.name


@pytest.mark.parametrize(
    "wrong",
    [
        {"old": "text that is not there"},
        {"old": "self"},
        {"new": "ends[len(ends) // 2]"},
        {"function": "Leadership.no_such_method"},
        {"module": "kraftsim.core.raft.no_such_module"},
    ],
)
def test_patch_that_does_not_apply_fails_loudly(wrong: PartOfAPatch) -> None:
    """The text is missing, occurs twice, or would not change; the function or its module is
    missing.
    """
    right = Patch(
        module="kraftsim.raft.rules_roles",
        function="Leadership.high_watermark",
        old="ends[len(ends) // 2]",
        new="ends[0]",
    )
    patch: Patch = {**right, **wrong}
    with pytest.raises(PatchMissed):
        mutated_code(Mutant(name="wrong", core="raft", breaks="", **patch))


def test_mutant_applies_for_all_importers_and_leaves_no_trace() -> None:
    """The function keeps its identity; its code is exchanged and restored."""
    mutant = mutant_named("counts-refusals")
    known_before, right = rules_elections._count, rules_elections._count.__code__
    with applied(mutant):
        assert rules_elections._count is known_before
        assert known_before.__code__ is not right
    assert known_before.__code__ is right


def test_failure_inside_leaves_no_trace_either() -> None:
    """Whatever a run does, the next one has the original code."""
    right = Leadership.high_watermark.__code__
    with pytest.raises(ZeroDivisionError), applied(mutant_named("commits-what-one-has")):
        raise ZeroDivisionError
    assert Leadership.high_watermark.__code__ is right


@pytest.mark.interop
def test_mutants_are_detected_by_seeds_that_are_clean_without_them() -> None:
    """These cost a second or two each; `make mutants` runs all of them."""
    found: list[Finding] = []
    run_mutants(
        [mutant_named(name) for name in QUICK],
        Budget(runs=6, cpu_seconds=30.0, asks_tests=False),
        jobs=2,
        done=found.append,
    )
    assert [each.name for each in found if not each.how] == []
    assert unclean_controls(found, dict.fromkeys(QUICK, ""), jobs=1) == [], (
        "the check that detected them finds something without them, too"
    )


@pytest.mark.interop
def test_unit_tests_run_first_and_scenarios_only_for_survivors(tmp_path: Path) -> None:
    """No scenario runs for a mutant that a test detects, unless requested; the detecting test
    passes without the mutant.
    """
    found: list[Finding] = []
    chosen = [mutant_named(name) for name in ("sequence-may-jump", "sequence-may-stay")]
    run_mutants(chosen, Budget(runs=1, cpu_seconds=30.0), jobs=1, done=found.append)
    noticed = {each.name: each for each in found}
    assert noticed["sequence-may-jump"].test.startswith("tests/core/test_sequence.py::")
    assert noticed["sequence-may-jump"].runs == 0
    assert failing_controls(found, jobs=1) == []
    (tmp_path / "test_failing.py").write_text("def test_it():\n    assert False\n")
    assert (
        failing_controls(
            [replace(found[0], test=f"{tmp_path / 'test_failing.py'}::test_it")], jobs=1
        )
        != []
    )


def test_test_that_never_ends_counts_as_detection(tmp_path: Path) -> None:
    """A mutant may loop for ever; the test that hangs is named."""
    (tmp_path / "test_round.py").write_text(
        "from kraftsim.raft import rules_elections\n\n"
        "def test_it():\n    while rules_elections._count: pass\n"
    )
    look = f"""
from tools.mutants import catalogue, unit_stage
unit_stage.TESTS["raft"] = ({str(tmp_path / "test_round.py")!r},)
mutants = [catalogue.mutant_named("counts-refusals")]
print("\\n", unit_stage.run_unit_stage(mutants, cpu_seconds_max=0.5))
"""
    done = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True, cwd=PROJECT_ROOT
    )
    assert f"::test_it', said='{ENDLESS}'" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "known, is_left",
    [
        ({}, True),
        ({"test_cpu_seconds": 1.0}, True),
        ({"test_cpu_seconds": 1.0, "test": "t"}, False),
        ({"test_cpu_seconds": 1.0, "how": "scenario"}, False),
        ({"how": "scenario"}, True),
        ({"test_cpu_seconds": 1.0, "runs": 9}, True),
        ({"test_cpu_seconds": 1.0, "runs": 10}, False),
        ({"test_cpu_seconds": 1.0, "runs": 9, "cpu_seconds": 30.0}, False),
    ],
)
def test_mutation_run_resumes_with_the_remaining_checks(
    known: Mapping[str, str | float], is_left: bool
) -> None:
    """All tests once; scenarios for undetected mutants, until the budget ends."""
    assert (
        is_open(
            replace(Finding(name="", digest="", runs=0, cpu_seconds=0.0), **known),
            Budget(runs=10, cpu_seconds=30.0),
        )
        is is_left
    )


def test_every_core_has_its_tests_and_scenarios() -> None:
    """A missing file would check nothing."""
    assert TESTS.keys() == REACH.keys()
    assert [
        file
        for files in TESTS.values()
        for file in files
        if not (PROJECT_ROOT / "tests" / file).is_file()
    ] == []


def test_results_belong_to_existing_mutants() -> None:
    """Results of removed mutants are meaningless; survivors without a reason may only become
    fewer.
    """
    known = read()
    assert not known.keys() - {mutant.name for mutant in mutants()}, (
        "results of removed mutants: make mutants"
    )
    assert sum(bool(finding.how) for finding in known.values()) >= FEWEST
    unexplained = [
        mutant.name
        for mutant in mutants()
        if mutant.name in known and not known[mutant.name].is_found and not mutant.equivalent
    ]
    assert len(unexplained) <= SURVIVORS_MAX, unexplained
    not_judged = [mutant for mutant in mutants() if mutant.name not in known]
    of_rooms = [mutant for mutant in not_judged if mutant.core in shares() and is_drawn(mutant)]
    assert len(of_rooms) <= NOT_JUDGED_OF_ROOMS_MAX
    assert len(not_judged) - len(of_rooms) <= NOT_HUNTED_MAX


def is_drawn(mutant: Mutant) -> bool:
    """Whether the generator drew a mutant for a room."""
    return any(mutant.module == f"kraftsim.{each}" for each in modules_of_rooms())


@cache
def modules_of_rooms() -> frozenset[str]:
    """The modules of all rooms, without the package."""
    return frozenset(f"{file.parent.name}.{file.stem}" for room in ROOMS for file in files_of(room))


def test_rooms_get_mutants_in_proportion_to_their_lines_of_rules() -> None:
    """Most rules are not Raft's; a pattern that matches no file would leave a room without any."""
    drawn = [mutant for mutant in generated() if is_drawn(mutant)]
    assert Counter(mutant.core for mutant in drawn) == shares()
    places = [(mutant.module, mutant.function) for mutant in drawn]
    assert len(set(places)) == len(places)
    assert len({mutant.made for mutant in drawn}) >= 10
    for room in ROOMS:
        for pattern in room.modules:
            assert files_of(Room(room.core, (pattern,))), pattern
    assert drawn == [mutant for mutant in mutants() if is_drawn(mutant) and mutant.made != BY_HAND]


def test_functions_that_a_run_calls_are_noted_and_the_run_is_the_same() -> None:
    """A search skips a mutant's runs that do not call its function: they must not differ."""
    plain = run_scenario(CHEAP, seed=2)
    chosen = [mutant for mutant in mutants() if mutant.core in ("producer state", "quotas")]
    with noting(chosen) as reached:
        noted = run_scenario(CHEAP, seed=2)
    assert noted.events_sha256 == plain.events_sha256
    assert "producer_state.rules_manager.ProducerStateManager._check_sequence" in reached
    assert reached < {mutant.place for mutant in chosen}
    uncalled = next(mutant for mutant in chosen if mutant.place not in reached)
    with applied(uncalled):
        assert run_scenario(CHEAP, seed=2).events_sha256 == plain.events_sha256


def test_campaign_judges_a_mutant_like_a_whole_search(tmp_path: Path) -> None:
    """With the runs of a search without the mutant, only those that call its function are made, and
    the result is the same.
    """
    mutant = mutant_named(QUICK_BY_SEARCH)
    terms = replace(search_terms(1, is_guided=False), scenarios=(CHEAP, PROMISES))
    runs = CleanRuns(tmp_path / "runs.jsonl")
    assert record_clean_runs(terms, [mutant], cpu_seconds=1.0, runs=runs) == ()
    whole = search_for_mutant(mutant, terms, cpu_seconds=1.0, runs=CleanRuns(tmp_path / "none"))
    quick = search_for_mutant(
        mutant, terms, cpu_seconds=1.0, runs=CleanRuns(tmp_path / "runs.jsonl")
    )
    assert whole.finding
    assert (quick.finding, quick.scenario, quick.run_seed, quick.runs) == (
        whole.finding,
        whole.scenario,
        whole.run_seed,
        whole.runs,
    )
    assert quick.made < whole.made == whole.runs
    assert is_judged(mutant, quick, 1.0)
    assert not is_judged(mutant, replace(quick, digest="other"), 1.0)


def test_mutants_are_both_manual_and_generated() -> None:
    """People think of likely errors, generators of unlikely ones."""
    assert {mutant.made == BY_HAND for mutant in mutants()} == {True, False}


def test_the_page_names_every_way_to_detect_a_mutant() -> None:
    """Results with a way that the page does not know could not be shown."""
    assert set(HOW) | {""} == set(get_args(How))
    assert {finding.how for finding in read().values()} <= set(get_args(How))

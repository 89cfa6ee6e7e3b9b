"""The comparison of guided and plain search: its sets of mutants, its record, and its page."""

from pathlib import Path

from kraftsim.lab.bugs.bug import bugs
from tools.docs.search_trial_page import search_trial_page
from tools.mutants.catalogue import mutants
from tools.mutants.search_stage import GUIDED, PLAIN, SearchFinding
from tools.mutants.search_trial import (
    HELD_OUT,
    TUNING,
    SearchTrial,
    bugs_of,
    read_trial,
    visible_mutants,
    write_trial,
)


def finding(name: str, way: str, cpu_seconds: float) -> SearchFinding:
    """A search that found something."""
    return SearchFinding(
        name=name,
        way=way,
        seed=1,
        budget_cpu_seconds=100.0,
        finding="an-invariant",
        scenario="a_scenario",
        run_seed=4,
        is_variation=way == GUIDED,
        cpu_seconds=cpu_seconds,
        runs=3,
        made=1,
        made_cpu_seconds=0.5,
    )


def test_names_alone_divide_mutants_and_bugs_into_two_sets() -> None:
    """About half of them each, in an order that is none of the alphabet."""
    for of_set, least in ((visible_mutants, 60), (bugs_of, 5)):
        held_out, tuning = of_set(HELD_OUT), of_set(TUNING)
        assert min(len(held_out), len(tuning)) >= least
        assert not {*held_out} & {*tuning}
        assert held_out != sorted(held_out)


def test_record_keeps_both_ways_and_results_belong_to_existing_mutants(tmp_path: Path) -> None:
    name = visible_mutants(HELD_OUT)[0]
    trial = SearchTrial(
        measured="2026-11-27, 1234567",
        found=(finding(name, PLAIN, 9.0), finding(name, GUIDED, 4.0)),
        clean_findings={"plain 1": ("another-invariant",)},
    )
    write_trial(trial, tmp_path / "record.json")
    assert {each.way for each in read_trial(tmp_path / "record.json").found} == {GUIDED, PLAIN}
    assert read_trial(tmp_path / "none.json").found == ()
    known = {each.name for each in mutants()} | {each.name for each in bugs()}
    assert {each.name for each in read_trial().found} <= known


def test_page_counts_what_each_way_found_and_says_where_its_figures_are_from() -> None:
    page = search_trial_page()
    trial = read_trial()
    if trial.found:
        assert "Guided search finds" in page and "Plain search finds" in page
        assert f"Measured: `python -m tools.mutants.search_trial`, {trial.measured}" in page

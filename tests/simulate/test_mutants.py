"""Wrong rules put in on purpose: they fit the code, are found by their first seeds, leave no trace, and what is clean stays clean without them."""

import pytest

from kraftsim.core.raft import elections
from kraftsim.core.raft.leadership import Leadership
from mutants.campaign import Budget, hunt_all, unclean_controls
from mutants.catalogue import mutant_named, mutants
from mutants.hunt import Finding
from mutants.mutant import BY_HAND, Mutant
from mutants.patching import PatchMissed, applied, function_of, mutated_code
from mutants.reach import REACH
from mutants.results import read

QUICK = ("any-log-may-lead", "counts-what-it-sent", "id-handed-out-twice", "remembers-nothing")
FEWEST = 40
SURVIVORS_MAX = 50
"""How many survive without a reason so far. This number only goes down."""


def test_every_mutant_fits_the_code_as_it_is():
    """A patch whose text is gone would hunt nothing and call it a survivor."""
    assert len(mutants()) >= FEWEST
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
def test_a_patch_that_does_not_fit_fails_loudly(wrong):
    """The text is gone, stands there twice, or would change nothing; the function or its module is gone."""
    right = {"module": "kraftsim.core.raft.leadership", "function": "Leadership.high_watermark", "old": "ends[len(ends) // 2]", "new": "ends[0]"}
    with pytest.raises(PatchMissed):
        mutated_code(Mutant(name="wrong", core="raft", breaks="", **(right | wrong)))


def test_a_mutant_is_in_place_for_everybody_who_imported_the_function_and_leaves_no_trace():
    """The function keeps its identity; its code is exchanged and comes back."""
    mutant = mutant_named("counts-refusals")
    known_before, right = elections._count, elections._count.__code__
    with applied(mutant):
        assert elections._count is known_before
        assert known_before.__code__ is not right
    assert known_before.__code__ is right


def test_a_failure_inside_leaves_no_trace_either():
    """Whatever a run does, the next one has the right rules."""
    right = Leadership.high_watermark.__code__
    with pytest.raises(ZeroDivisionError), applied(mutant_named("commits-what-one-has")):
        raise ZeroDivisionError
    assert Leadership.high_watermark.__code__ is right


def test_mutants_are_found_by_their_first_seeds_which_are_clean_without_them():
    """These cost a second or two each; all of them are hunted by `make mutants`."""
    found: list[Finding] = []
    hunt_all([mutant_named(name) for name in QUICK], Budget(runs=6, cpu_seconds=30.0), jobs=2, done=found.append)
    assert [each.name for each in found if not each.is_found] == []
    assert unclean_controls(found, dict.fromkeys(QUICK, ""), jobs=1) == [], "what found them finds something without them, too"


def test_results_are_those_of_the_mutants_that_there_are():
    """Results of mutants that are gone say nothing; those that survive without a reason only become fewer."""
    known = read()
    assert not known.keys() - {mutant.name for mutant in mutants()}, "results of mutants that are gone: make mutants"
    assert sum(finding.is_found for finding in known.values()) >= FEWEST
    unexplained = [mutant.name for mutant in mutants() if mutant.name in known and not known[mutant.name].is_found and not mutant.equivalent]
    assert len(unexplained) <= SURVIVORS_MAX, unexplained


def test_hands_and_rules_both_made_some():
    """People think of what is likely, rules of what nobody thinks of."""
    assert {mutant.made == BY_HAND for mutant in mutants()} == {True, False}

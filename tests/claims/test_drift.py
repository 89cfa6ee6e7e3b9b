"""What docs/claims.json says is measured again where it follows from a seed: another figure fails, and says what to run.

Figures of tests are compared in these tests themselves (the fixture `figures`); here are stories and benches.
"""

import pytest

from claims.play import CLAIMS, INTEROP, PLAYS, TEST
from claims.record import drift, read_record
from claims.rows import ROWS

RECORD = read_record()


def drift_of(name: str) -> list[str]:
    """Play it, and return a line for each figure that is another one."""
    rows = [row.id for row in ROWS if name in row.checks]
    return drift(name, PLAYS[name].measure(), RECORD["checks"][name]["figures"], rows)


def named(again: str) -> list[str]:
    """Plays that a verb repeats."""
    return [name for name, play in PLAYS.items() if play.again == again]


@pytest.mark.parametrize("name", named(TEST))
def test_a_figure_that_follows_from_a_seed_stands(name):
    assert not (lines := drift_of(name)), "\n".join(lines)


@pytest.mark.interop
@pytest.mark.parametrize("name", named(INTEROP))
def test_a_figure_of_a_longer_play_stands(name):
    assert not (lines := drift_of(name)), "\n".join(lines)


def test_drift_names_the_figure_and_what_to_run():
    (line,) = drift("kraftsim scenario x", {"refused": 116, "stays": True}, {"refused": 73, "stays": True}, ["730-08"])
    assert "refused is 116, docs/claims.json says 73" in line and 'make claims ARGS="--only 730-08"' in line


def test_what_is_not_played_again_takes_minutes_or_a_clock():
    """Few of all: what a clock measures, what needs minutes, and bytes that the interpreter's version decides."""
    assert len(named(CLAIMS)) <= 8 < len(named(TEST))

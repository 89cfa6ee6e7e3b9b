"""KIP-758 beside the shipped rule: what the comparison found, as far as it depends on no clock. Numbers may move, the verdicts may not."""

from functools import cache

import pytest

from bench.bench_variants import DUPLICATE, KINDS, OUT_OF_ORDER, bytes_each
from bench.variants.workload import STORIES, Findings, play
from kraftsim.events.partitions import ProduceRefused
from kraftsim.explore.run import run_scenario
from protocol.errors import ErrorCode

FIVE, LATEST = KINDS
NOTHING, DOUBLED, LOST = "nothing", "doubled", "lost"
VERDICTS = {
    "nothing is lost": (NOTHING, NOTHING),
    "answers are lost": (NOTHING, NOTHING),
    "late copies arrive": (NOTHING, NOTHING),
    "across the end of the numbers": (NOTHING, NOTHING),
    "the broker starts again": (DOUBLED, NOTHING),
    "20 in flight": (DOUBLED, NOTHING),
    "20 in flight, the broker starts again": (DOUBLED, NOTHING),
    "a producer goes astray": (NOTHING, LOST),
}
"""What each kind does to records: five batches, latest batch."""


@cache
def found(story: str, kind: str, seed: int = 1) -> Findings:
    """Play a story with a hundred producers."""
    return play(KINDS[kind], next(each for each in STORIES if each.name == story), 100, 30, seed)[0]


def harm(findings: Findings) -> str:
    """Name what was done to records."""
    if findings.lost:
        return LOST
    return DOUBLED if findings.doubled else NOTHING


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("story", VERDICTS)
def test_each_kind_does_the_harm_that_the_page_says(story, seed):
    """docs/producer-variants.md; nobody is ever told that a record is there which is not, but by KIP-758's range."""
    five, latest = found(story, FIVE, seed), found(story, LATEST, seed)
    assert (harm(five), harm(latest)) == VERDICTS[story]
    assert five.false_duplicates == 0 == five.misplaced
    assert bool(latest.false_duplicates) is (harm(latest) is LOST)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_producer_that_counts_from_0_again_loses_far_more_by_the_range(seed):
    """Both are deceived by a batch with the same ends as one that they remember; the range is deceived by all others, too."""
    five, latest = (found("a producer forgets its sequence", kind, seed) for kind in KINDS)
    assert latest.lost > 20 * max(five.lost, 1) and latest.lost > 100


def test_the_range_answers_46_where_the_five_answer_45_or_an_offset():
    """No answer of the shipped rule is without an offset, and none is 46."""
    for story in VERDICTS:
        five, latest = found(story, FIVE), found(story, LATEST)
        assert five.answers[DUPLICATE] == 0 == five.without_offset
        if story not in ("nothing is lost", "a producer goes astray"):
            assert latest.answers[DUPLICATE] > 0 == latest.answers[OUT_OF_ORDER]


def test_memory_is_saved_where_producers_write_often():
    """One batch costs the same either way; five cost half as much again as one, as long as the broker stays up."""
    once, often = ([bytes_each(kind, 2000, batches) for kind in KINDS] for batches in (1, 5))
    assert once[0] == pytest.approx(once[1], rel=0.02)
    assert often[1] == pytest.approx(once[1], rel=0.02)
    assert 1.3 < often[0] / often[1] < 1.8


@pytest.mark.parametrize("seed", [1, 40])
def test_two_brokers_of_different_kinds_have_the_same_records(seed, tmp_path):
    """The range is asked in these runs, and answers 46; a broker with five batches never does.

    With seed 40 the first batches of a producer overtake each other, and the range loses them: KIP-758 as written, and told from any other loss.
    """
    result = run_scenario("producer_state_variants", seed=seed, out=tmp_path)
    assert (result.outcome, result.violations, result.trouble) == ("ok", (), None), "\n".join(result.lines())
    lines = [line for file in sorted((tmp_path / "events").iterdir()) for line in file.read_text().splitlines() if ProduceRefused.__name__ in line]
    somewhere = f'"error_code":{int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)},'
    assert {line.partition('"node":"')[2].partition('"')[0] for line in lines if somewhere in line} == {"broker-2"}

"""Comparisons of two trees: regressions are found, equal trees raise no alarm, and what cannot be
compared is named.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.bench import compare as compare_module
from tools.bench.compare import Comparison, Series, commit_of, compare, one_sided, sentences, table
from tools.bench.paired import (
    LEAST_PAIRS,
    SURE_CHANCE,
    Change,
    chance_of_mean,
    change_of,
    effect_of,
)
from tools.bench.result import Basis, Better, Figure
from tools.bench.running import ROOT, BenchResult, Status

PAIRS = 8
SEEDS = 100
FIGURES_IN_A_COMPARISON = 40


def change_by_pairs(
    source: random.Random, factor: float, noise: float, better: Better = Better.LOWER
) -> Change:
    """Compare made-up pairs: equal figures with noise, times a factor on the side of now."""

    def pairs() -> tuple[list[float], list[float]]:
        before = [source.lognormvariate(0, noise) for _ in range(PAIRS)]
        return before, [factor * source.lognormvariate(0, noise) for _ in range(PAIRS)]

    first = effect_of(*pairs(), better)
    return change_of(first, effect_of(*pairs(), better) if first.is_suspicious else None)


@pytest.mark.parametrize("seed", range(20))
def test_a_regression_of_ten_percent_is_found_under_noise_of_two(seed: int) -> None:
    assert change_by_pairs(random.Random(seed), 1.10, 0.02) is Change.WORSE
    rate = change_by_pairs(random.Random(seed), 1 / 1.10, 0.02, Better.HIGHER)
    assert rate is Change.WORSE, "of a rate, less is worse"


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.1, 0.4])
def test_equal_samples_raise_no_alarm(noise: float) -> None:
    """In 99 of 100 comparisons of forty figures at least."""
    alarms = 0
    for seed in range(SEEDS):
        source = random.Random(f"{seed} {noise}")
        found = [change_by_pairs(source, 1.0, noise) for _ in range(FIGURES_IN_A_COMPARISON)]
        alarms += Change.WORSE in found
    assert alarms <= SEEDS // 100


def test_a_drift_of_the_machine_is_no_regression() -> None:
    """Both runs of a pair see it."""
    source = random.Random(1)
    before = [(1 + 0.3 * number) * source.lognormvariate(0, 0.01) for number in range(PAIRS)]
    after = [(1 + 0.3 * number) * source.lognormvariate(0, 0.01) for number in range(PAIRS)]
    assert not effect_of(before, after, Better.LOWER).is_suspicious


def test_a_gain_is_reported_and_fails_nothing() -> None:
    assert change_by_pairs(random.Random(1), 0.8, 0.02) is Change.BETTER


def test_a_sure_effect_of_two_percent_is_no_regression() -> None:
    assert change_by_pairs(random.Random(1), 1.02, 0.001) is Change.UNCHANGED


def test_the_chance_counts_sign_patterns() -> None:
    assert chance_of_mean([1.0, 2.0, 3.0]) == 1 / 8
    assert chance_of_mean([-1.0, 2.0, 3.0]) == 2 / 8
    assert chance_of_mean([0.0, 0.0]) == 1
    assert (
        chance_of_mean([1.0] * (LEAST_PAIRS - 1))
        > SURE_CHANCE
        > chance_of_mean([1.0] * LEAST_PAIRS)
    )


def test_the_interval_contains_the_effect_and_repeats() -> None:
    source = random.Random(3)
    before = [source.lognormvariate(0, 0.02) for _ in range(PAIRS)]
    effect = effect_of(before, [1.1 * each for each in before], Better.LOWER)
    assert list(effect.interval) == pytest.approx([1.1, 1.1])
    after = [1.1 * source.lognormvariate(0, 0.02) for _ in range(PAIRS)]
    noisy = effect_of(before, after, Better.LOWER)
    assert noisy.interval == effect_of(before, after, Better.LOWER).interval
    assert noisy.interval[0] < noisy.worsening < noisy.interval[1]


Trees = Callable[[Callable[[Path, int], dict[str, float]]], None]


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Trees:
    """Benches that return made-up values: tree, number of the run -> figures."""

    def install(values: Callable[[Path, int], dict[str, float]]) -> None:
        runs: list[Path] = []

        def run(name: str, options: object, *, tree: Path, **_: object) -> BenchResult:
            runs.append(tree)
            found = values(tree, len(runs))
            if not found:
                return BenchResult(status=Status.FAILED, reason="exit code 1: no such option")
            figures = tuple(
                Figure(
                    name=f"{name}.{figure}",
                    title=figure,
                    unit="s",
                    better=Better.LOWER,
                    basis=Basis.CPU,
                    values=(value,),
                )
                for figure, value in found.items()
            )
            return BenchResult(status=Status.OK, figures=figures)

        monkeypatch.setattr(compare_module, "run_bench", run)

    return install


def found_by(rounds: int = PAIRS) -> Comparison:
    """Compare this tree with another one by one bench."""
    return compare(Path("before"), ["ids"], rounds)


def test_a_regression_is_named_with_its_size_and_its_chance(made_up: Trees) -> None:
    made_up(lambda tree, run: {"x": 1.2 if tree == ROOT else 1.0, "y": 1.0})
    found = found_by()
    assert [each.figure.name for each in found.regressions()] == ["ids.x"]
    (sentence,) = sentences(found, "v1")
    assert sentence.startswith("REGRESSION: ids.x (x) is 20.0 % worse than v1 (95 % interval")
    assert "chance of 0.0039" in sentence
    assert [line.split(" | ")[-1] for line in table(found)[2:]] == [
        "worse |",
        "no difference beyond noise |",
    ]


def test_a_suspicion_that_new_pairs_do_not_confirm_is_dropped(made_up: Trees) -> None:
    first = 2 + 2 * PAIRS
    made_up(lambda tree, run: {"x": 1.5 if tree == ROOT and run <= first else 1.0})
    found = found_by()
    assert found.series["ids.x"].second and not found.regressions()
    assert sentences(found, "v1") == ["No figure of 1 is worse beyond noise than v1."]


def test_pairs_alternate_their_order(made_up: Trees) -> None:
    order: list[bool] = []

    def values(tree: Path, run: int) -> dict[str, float]:
        order.append(tree == ROOT)
        return {"x": 1.0}

    made_up(values)
    found_by(LEAST_PAIRS)
    assert order[2:10] == [False, True, True, False, False, True, True, False]


def test_new_and_missing_figures_are_named(made_up: Trees) -> None:
    made_up(lambda tree, run: {"x": 1.0, ("new" if tree == ROOT else "old"): 1.0})
    assert found_by().left_out == ["ids.new is new.", "ids.old is missing now."]
    assert one_sided({"a": 1.0}, {"a": 2.0}) == []


def test_a_bench_that_fails_on_one_side_is_named(made_up: Trees) -> None:
    made_up(lambda tree, run: {"x": 1.0} if tree == ROOT else {})
    found = found_by()
    assert found.left_out == ["ids: before it failed: exit code 1: no such option"]
    assert not found.series and sentences(found, "v1") == [
        "Not compared: ids: before it failed: exit code 1: no such option",
        "NOTHING WAS COMPARED with v1.",
    ]


def test_a_figure_of_few_pairs_is_named_and_not_compared(made_up: Trees) -> None:
    made_up(lambda tree, run: {"x": 1.0, **({"y": 1.0} if run < 11 else {})})
    found = found_by()
    assert list(found.series) == ["ids.x"] and found.left_out == ["ids.y is in 4 pairs only."]


def test_the_last_release_is_a_commit_of_this_repository() -> None:
    assert len(commit_of("last-release")) == 40
    with pytest.raises(LookupError, match="no revision"):
        commit_of("no-such-revision")


def test_a_comparison_without_regressions_has_no_second_series() -> None:
    figure = Figure(
        name="ids.x",
        title="x",
        unit="s",
        better=Better.LOWER,
        basis=Basis.CPU,
        values=(1.0,),
    )
    series = Series(figure, first=[(1.0, 1.0)] * PAIRS)
    assert series.effects()[1] is None and not Comparison({"ids.x": series}).regressions()

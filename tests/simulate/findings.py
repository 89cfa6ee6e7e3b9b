"""The checks of a findings table: a few seeds find the injected bug, and are clean without it."""

from collections.abc import Mapping
from itertools import islice

from kraftsim.cluster.scenario import scenario as scenario_named
from kraftsim.lab.bugs.bug import bug
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.request import has_random_faults
from kraftsim.lab.explore.run import run_scenario

SEEDS = 40
"""So many seeds may be needed from the one that a row names: what a seed draws changes with every
new kind of fault, what a scenario finds within some seeds does not.
"""


def finds(
    name: str,
    scenario: str,
    first_seed: int,
    invariant: str,
    work: Mapping[str, int] | None = None,
) -> None:
    """Fail unless the bug violates the invariant within SEEDS seeds, and declares that it does.

    `first_seed` is one that found it: it saves runs and proves nothing.
    """
    assert invariant in bug(name).caught_by
    release = bug(name).release
    found_at(scenario, first_seed, invariant, bugs=(name,), release=release, work=work)


def found_at(
    scenario: str,
    first_seed: int,
    invariant: str,
    *,
    bugs: tuple[str, ...] = (),
    release: str = "",
    work: Mapping[str, int] | None = None,
) -> int:
    """Return the first of SEEDS seeds that violates the invariant; fail if none does."""
    runs: list[RunResult] = []
    for seed in range(first_seed, first_seed + SEEDS):
        runs.append(run_scenario(scenario, seed=seed, bugs=bugs, release=release, work=work))
        if invariant in runs[-1].invariants_violated:
            return seed
    raise AssertionError("\n".join(run.lines()[0] for run in runs))


def directed_seeds(scenario: str, count: int) -> list[int]:
    """Return the first seeds that have the scenario's own schedule and no other faults."""
    named = scenario_named(scenario)
    return list(
        islice((seed for seed in range(1, 1000) if not has_random_faults(named, seed)), count)
    )


def is_clean(
    scenario: str, seed: int, release: str = "", work: Mapping[str, int] | None = None
) -> None:
    """Fail unless the seed is clean: otherwise a finding would prove nothing about the bug."""
    result = run_scenario(scenario, seed=seed, release=release, work=work)
    assert (result.outcome, result.violations, result.trouble) == ("ok", (), None), "\n".join(
        result.lines()
    )

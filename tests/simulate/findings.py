"""The checks of a findings table: the listed seed finds the injected bug, and is clean without
it.
"""

from kraftsim.lab.bugs.bug import bug
from kraftsim.lab.explore.run import run_scenario


def finds(name: str, scenario: str, seed: int, invariant: str) -> None:
    """Fail unless the bug violates the invariant, and declares that it does."""
    result = run_scenario(scenario, seed=seed, bugs=(name,), release=bug(name).release)
    assert invariant in result.invariants_violated, "\n".join(result.lines())
    assert invariant in bug(name).caught_by


def is_clean(scenario: str, seed: int, release: str = "") -> None:
    """Fail unless the seed is clean: otherwise a finding would prove nothing about the bug."""
    result = run_scenario(scenario, seed=seed, release=release)
    assert (result.outcome, result.violations, result.trouble) == ("ok", (), None), "\n".join(
        result.lines()
    )

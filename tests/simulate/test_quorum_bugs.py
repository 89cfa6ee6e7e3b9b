"""The scenario of three controllers under faults finds each historical bug of the metadata quorum,
and the same seed is clean without it.
"""

import pytest

from kraftsim.lab.bugs.bug import bug
from kraftsim.lab.explore.run import run_scenario

NAME = "quorum_under_faults"


@pytest.mark.parametrize(
    "name, seed, invariant",
    [
        ("KAFKA-10527", 1, "quorum-state-restored"),
        ("KAFKA-10533", 1, "high-watermark-flushed"),
        ("KAFKA-12619", 7, "leader-completeness"),
        ("KAFKA-13357", 1, "snapshot-equals-log"),
        ("KAFKA-14618", 1, "snapshot-equals-log"),
    ],
)
def test_injected_bug_is_found(name: str, seed: int, invariant: str) -> None:
    """The seeds are the first of a sweep that find it; the bug declares which check detects it."""
    result = run_scenario(NAME, seed=seed, bugs=(name,))
    assert invariant in result.invariants_violated, "\n".join(result.lines())
    assert invariant in bug(name).caught_by


@pytest.mark.parametrize("seed", [1, 7, 14])
def test_without_the_bug_the_seeds_are_clean(seed: int) -> None:
    """Otherwise a finding would prove nothing about the bug."""
    result = run_scenario(NAME, seed=seed)
    assert (result.outcome, result.violations, result.trouble) == ("ok", (), None), "\n".join(
        result.lines()
    )

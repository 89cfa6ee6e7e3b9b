"""The scenario of three controllers under faults finds each historical bug of the metadata quorum,
and the same seeds are clean without it.
"""

import pytest

from tests.simulate.findings import finds, is_clean

NAME = "quorum_under_faults"
FEW_IDS = {"ids_per_requester": 250, "ids_after": 200}
"""A run takes less than half the CPU time, and has the same faults for as long."""


@pytest.mark.parametrize(
    "name, seed, invariant",
    [
        ("KAFKA-10527", 1, "quorum-state-restored"),
        ("KAFKA-10533", 1, "high-watermark-flushed"),
        ("KAFKA-12619", 37, "leader-completeness"),
        ("KAFKA-13357", 2, "snapshot-equals-log"),
        ("KAFKA-14618", 1, "snapshot-equals-log"),
    ],
)
def test_injected_bug_is_found(name: str, seed: int, invariant: str) -> None:
    """The bug declares which check detects it; the seed saves runs."""
    finds(name, NAME, seed, invariant, FEW_IDS)


@pytest.mark.parametrize("seed", [1, 2, 37])
def test_without_the_bug_the_seeds_are_clean(seed: int) -> None:
    """Otherwise a finding would prove nothing about the bug."""
    is_clean(NAME, seed, work=FEW_IDS)

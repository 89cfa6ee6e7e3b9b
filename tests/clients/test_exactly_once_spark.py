"""Spark checks the output of the real clients again, from the event logs of our runs: every input
has one committed output, and more.

It runs after all other tests of the session; alone it has nothing to check.
"""

from pathlib import Path

import pytest

from kraftsim.analysis.analyze import analyze_run
from kraftsim.invariants.verdict import Outcome

pytestmark = [pytest.mark.interop, pytest.mark.spark]
COPIED_ONCE = "each-input-processed-once"
ABOUT_NODES = ("one-append-per-sequence", "one-partition-leader-per-epoch")


def test_spark_finds_one_committed_output_of_every_input(copied: dict[Path, int]) -> None:
    """`copied` has the number of records that the harness has seen."""
    if not copied:
        pytest.skip("no real client has produced output in this run")
    for run, count in copied.items():
        analysis = analyze_run(run, [COPIED_ONCE, *ABOUT_NODES])
        results = {verdict.invariant: verdict for verdict in analysis.verdicts}
        assert {name: found.outcome for name, found in results.items()} == dict.fromkeys(
            [COPIED_ONCE, *ABOUT_NODES], Outcome.OK
        )
        assert results[COPIED_ONCE].examined == count

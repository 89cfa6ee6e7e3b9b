"""What the real clients copied is judged again by Spark, from the event logs of our runs: every input has one committed output, and more.

It comes after all other tests of the session; alone it has nothing to judge.
"""

from pathlib import Path

import pytest

from kraftsim.analysis.analyze import analyze_run
from kraftsim.invariants.verdict import Outcome

pytestmark = [pytest.mark.interop, pytest.mark.spark]
COPIED_ONCE = "every-input-copied-once"
ABOUT_NODES = ("one-append-per-sequence", "one-partition-leader-per-epoch")


def test_spark_finds_one_committed_output_of_every_input(copied: dict[Path, int]):
    """`copied` says how many records the harness itself has seen."""
    if not copied:
        pytest.skip("no real client has copied anything in this session")
    for run, count in copied.items():
        analysis = analyze_run(run, [COPIED_ONCE, *ABOUT_NODES])
        judged = {judgement.invariant: judgement for judgement in analysis.judgements}
        assert {name: found.outcome for name, found in judged.items()} == dict.fromkeys([COPIED_ONCE, *ABOUT_NODES], Outcome.OK)
        assert judged[COPIED_ONCE].examined == count

"""Faults at the brokers while the lines are written: every acknowledged line is in the log,
once.
"""

from collections.abc import Mapping

import pytest

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.virtual import run_in_virtual_time
from kraftsim.lab.faults.fault import Fault, FileClass, OnDisk, Value

ROWS = [
    ("disk-full", {"file_class": "partition-log", "after_bytes": 0}, 20, "after"),
    ("disk-full", {"file_class": "partition-log", "after_bytes": 61}, 20, "after"),
    ("disk-full", {"duration_ms": 500}, 7, "before"),
    ("stop", {"after_ms": 300}, 25, "before"),
    ("stop", {"after_ms": 300, "kill_after_ms": 1}, 25, "after"),
    ("zombie", {"after_ms": 100}, 15, "after"),
    ("half-open-restart", {"after_ms": 30}, 15, "after"),
    ("crash-loop", {"times": 4, "up_ms": 300, "down_ms": 30}, 15, "after"),
    ("clock-jump-forward", {"by_ms": 8 * 86_400_000}, 5, "after"),
    ("clock-jump-back", {"by_ms": 3_600_000}, 5, "after"),
    ("clock-drift", {"ppm": 1_000_000}, 5, "after"),
    ("slow-cpu", {"step_us": 10_000}, 5, "after"),
    ("loop-stalls", {"stall_ms": 400, "every_ms": 500}, 5, "after"),
]


@pytest.mark.parametrize(("kind", "params", "nth", "moment"), ROWS)
def test_every_line_is_in_the_log_once(
    kind: str, params: Mapping[str, Value], nth: int, moment: str
) -> None:
    """A disk that fails in the middle of a batch, producers that reach a broker twice, clocks that
    make batches older than earlier ones.
    """
    trigger = OnDisk(operation="write", file_class=FileClass.PARTITION_LOG, nth=nth, moment=moment)
    faults = (Fault(kind=kind, trigger=trigger, params=params),)
    run = run_in_virtual_time(
        RunRequest(
            scenario=scenario("idempotent_producers_under_kill"),
            mode=Mode.SIM,
            seed=3,
            faults=faults,
        ),
        None,
    )
    assert (run.outcome, run.violations, run.trouble) == ("ok", (), None)
    assert run.faults == {kind: (1, 1, 1)}, "it was armed, fired, and took effect"

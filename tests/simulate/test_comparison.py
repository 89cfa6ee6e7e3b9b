"""The comparison of designs: its oracle counts exactly, a run without faults is clean, and a zombie
separates designs with fencing from those without.
"""

from pathlib import Path

import pytest
from click.testing import CliRunner

from kraftsim.cli.compare import compare as verb
from kraftsim.lab.comparison.plan import (
    SYSTEMS,
    ComparisonPlan,
    LogCount,
    Mishap,
    MishapKind,
    System,
    count_logs,
    longest_silence_ms,
    system_named,
)
from kraftsim.lab.comparison.run import plan_of, run

QUIET = ComparisonPlan(seed=1, mishaps=(), records_each=20)
ZOMBIE = ComparisonPlan(
    seed=2,
    mishaps=(
        Mishap(kind=MishapKind.PAUSE, target=1, at_ms=300, duration_ms=500),
        Mishap(kind=MishapKind.PAUSE, target=2, at_ms=300, duration_ms=500),
        Mishap(kind=MishapKind.PAUSE, target=3, at_ms=300, duration_ms=500),
        Mishap(
            kind=MishapKind.ZOMBIE, target=0, at_ms=600, duration_ms=2500, successor_after_ms=1000
        ),
    ),
    bursts=(1, 1, 1),
)
"""A writer that is paused with records in flight, and resumes when a successor has written for a
second and a half.
"""


@pytest.mark.parametrize(
    "keys, acknowledged, counted",
    [
        (["0.0", "0.1", "0.2"], ["0.0"], LogCount(doubled=0, lost=0, missing=0, disordered=0)),
        (
            ["0.0", "0.1", "0.1", "0.2", "0.1"],
            [],
            LogCount(doubled=2, lost=0, missing=0, disordered=0),
        ),
        (["0.0", "0.2"], ["0.1"], LogCount(doubled=0, lost=1, missing=0, disordered=0)),
        (["0.0", "0.2"], ["0.0"], LogCount(doubled=0, lost=0, missing=1, disordered=0)),
        (["0.0", "0.2", "0.1"], [], LogCount(doubled=0, lost=0, missing=0, disordered=1)),
        ([], ["0.0", "0.1", "0.2"], LogCount(doubled=0, lost=3, missing=0, disordered=0)),
    ],
)
def test_oracle_counts_duplicates_and_gaps(
    keys: list[str], acknowledged: list[str], counted: LogCount
) -> None:
    assert count_logs({0: keys}, 3, acknowledged) == counted


def test_pause_is_measured_from_the_kill_to_the_next_acknowledgement() -> None:
    times = {0: [1_000_000, 50_000_000], 1: [1_000_000, 9_000_000]}
    assert longest_silence_ms([2_000_000], times, {0: 60_000_000, 1: 60_000_000}) == 48
    assert longest_silence_ms([2_000_000], times, {0: 1_500_000, 1: 60_000_000}) == 7
    assert longest_silence_ms([], times, {0: 60_000_000}) == -1


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_without_faults_every_design_writes_every_record_once(system: System) -> None:
    found = run(system, QUIET)
    assert (
        found.doubled,
        found.lost,
        found.missing,
        found.disordered,
        found.refusals,
        found.trouble,
    ) == (0, 0, 0, 0, 0, None)
    assert found.records == 60 and found.ids_used == 3


@pytest.mark.parametrize(
    "name, is_fenced",
    [
        *(("kafka-since-2.5", False), ("kip-758-phase-2", False), ("lease-pid", True)),
        *(
            ("kafka-transactions-3.9", True),
            ("kafka-transactions-1", True),
            ("kafka-transactions-2", True),
        ),
    ],
)
def test_zombie_duplicates_records_unless_it_is_fenced(name: str, is_fenced: bool) -> None:
    found = run(system_named(name), ZOMBIE)
    assert (found.doubled == 0) is is_fenced and (found.fenced > 0) is is_fenced
    assert (found.lost, found.trouble) == (0, None)


def test_transaction_version_2_saves_requests_against_version_1_and_3_9() -> None:
    requests = [
        run(system_named(f"kafka-transactions-{name}"), QUIET).requests
        for name in ("3.9", "1", "2")
    ]
    assert abs(requests[0] - requests[1]) <= 6 and requests[2] < requests[1] - 6


def test_same_seed_gives_the_same_outcome() -> None:
    for name in ("kafka-since-2.5", "lease-pid"):
        assert run(system_named(name), plan_of(3)) == run(system_named(name), plan_of(3))
    assert plan_of(3) == plan_of(3) != plan_of(4)


def test_one_command_writes_the_report(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        verb,
        ["--seeds", "1", "--system", "lease-pid", "--out", str(tmp_path)],
        standalone_mode=False,
    )
    assert done.exit_code == 0 and done.return_value == 0, done.output
    assert (
        "kraftsim compare --seeds 1 --first-seed 1 --system=lease-pid"
        in (tmp_path / "comparison.md").read_text()
    )
    html = (tmp_path / "comparison.html").read_text()
    assert (tmp_path / "comparison.svg").read_text().count("<svg") == 5
    assert html.count("<svg") == 6 and "lease_pid, strict interpretation" in html

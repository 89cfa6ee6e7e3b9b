"""Figures of benches: medians, ratios and goals, what a bench reports, and what is kept of a bench
that fails, takes too long, or cannot run.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.bench.catalogue import BENCHES, Bench, Java
from tools.bench.goals import goals
from tools.bench.record import (
    SCHEMA,
    SpeedRecord,
    outcome_lines,
    read_history,
    read_speed_record,
    this_machine,
    write_record,
)
from tools.bench.result import (
    FILE_VARIABLE,
    Basis,
    Better,
    Figure,
    read_reported,
    report_cost,
    report_rate,
    shown,
)
from tools.bench.running import BenchResult, Status, run_bench


def figure(
    name: str = "ids.16x8",
    values: Sequence[float] = (3.0, 1.0, 2.0),
    better: Better = Better.HIGHER,
    peer_values: Sequence[float] = (),
) -> Figure:
    """Return a figure."""
    return Figure(
        name=name,
        title="ids",
        unit="ids/s",
        better=better,
        basis=Basis.WALL,
        values=tuple(values),
        peer="Apache Kafka" if peer_values else "",
        peer_values=tuple(peer_values),
    )


def record(benches: dict[str, BenchResult]) -> SpeedRecord:
    """Return a record of this machine."""
    return SpeedRecord(
        schema=SCHEMA,
        commit="0123456789ab",
        commit_date="2026-11-27T10:00:00+00:00",
        is_dirty=False,
        is_quick=True,
        date="2026-11-27",
        machine=this_machine(),
        benches=benches,
    )


@pytest.mark.parametrize(
    ("better", "best", "worst"), [(Better.HIGHER, 3.0, 1.0), (Better.LOWER, 1.0, 3.0)]
)
def test_best_and_worst_follow_the_direction(better: Better, best: float, worst: float) -> None:
    found = figure(better=better)
    assert (found.median, found.best, found.worst) == (2.0, best, worst)


def test_a_ratio_above_one_is_better_whatever_the_unit() -> None:
    faster = figure(values=[20.0, 30.0], peer_values=[10.0, 10.0]).ratio
    sooner = figure(values=[1.0, 2.0], better=Better.LOWER, peer_values=[4.0, 4.0]).ratio
    assert faster is not None and sooner is not None
    assert (faster.median, faster.least, faster.most) == (2.5, 2.0, 3.0)
    assert (sooner.least, sooner.most) == (2.0, 4.0)


def test_unequal_rounds_give_the_extremes_of_any_two() -> None:
    found = figure(values=[10.0, 20.0, 30.0], peer_values=[10.0]).ratio
    assert found is not None and (found.least, found.most) == (1.0, 3.0)


def test_a_goal_is_met_by_the_median_or_by_the_ratio() -> None:
    limit = goals()["idle.3+3"].at_least
    ratio = goals()["ids.16x8"].ratio
    assert limit is not None and ratio is not None
    assert figure("idle.3+3", [limit]).meets_goal is True
    assert figure("idle.3+3", [limit - 1]).meets_goal is False
    assert figure("ids.16x8", [ratio], peer_values=[1.0]).meets_goal is True
    assert figure("ids.16x8", [ratio * 0.9], peer_values=[1.0]).meets_goal is False
    assert figure("ids.16x8", [ratio]).meets_goal is None, "without the peer it is not measured"
    assert figure("ids.99x9").meets_goal is None


def test_goals_are_of_benches_that_report_figures() -> None:
    names = {name.partition(".")[0] for name in goals()}
    assert names <= {name for name, bench in BENCHES.items() if not bench.prints_only}


def test_goals_are_of_figures_that_are_reported() -> None:
    """A goal of a figure that was renamed would never be missed."""
    reported = {each.name for kept in read_history() for each in kept.figures}
    measured = {
        name for kept in read_history() for name, each in kept.benches.items() if each.figures
    }
    assert not [
        name
        for name in goals()
        if name.partition(".")[0] in measured and name not in reported and "rf3" not in name
    ]


def test_numbers_have_three_digits_or_more() -> None:
    assert [shown(each) for each in (0.0, 0.0012345, 0.9, 47.13, 66520.4)] == [
        "0",
        "0.00123",
        "0.900",
        "47.1",
        "66,520",
    ]


def test_reported_figures_are_printed_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "figures"))
    report_rate("ids.16x8", "ids", "ids/s", [30.0], peer="Apache Kafka", peer_values=[10.0])
    report_cost("start.ready", "start", "s", [0.123456789, 0.2], peer="Apache Kafka")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == (
        "ids.16x8: ids: 30.0 ids/s; Apache Kafka 10.0 ids/s, ratio 3.00; goal ratio >= 1.5: met"
    )
    assert printed[1] == (
        "start.ready: start: 0.162 s (best 0.123, worst 0.200 of 2); goal <= 0.7 s: met"
    )
    rate, cost = read_reported(tmp_path / "figures")
    assert (rate.peer_values, cost.peer, cost.values) == ((10.0,), "", (0.12346, 0.2))


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    whole = record(
        {
            "ids": BenchResult(status=Status.OK, figures=(figure(), figure("ids.1x1"))),
            "upstream": BenchResult(status=Status.ABSENT, reason="needs Java with Maven"),
        }
    )
    for each in (whole, record({})):
        write_record(each, tmp_path / "a.json")
        assert read_speed_record(tmp_path / "a.json") == each
    write_record(whole, tmp_path / "a.json")
    assert read_history(tmp_path) == [whole]
    assert outcome_lines(whole)[0] == "upstream: absent: needs Java with Maven"


@pytest.fixture
def own_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with a bench of its own: what it does is written to the returned file."""
    package = tmp_path / "tools" / "bench"
    package.mkdir(parents=True)
    for each in (package, package.parent):
        (each / "__init__.py").touch()
    monkeypatch.setitem(BENCHES, "own", Bench(about="made up", limit_s=20))
    return package / "bench_own.py"


REPORT = """
import os, pathlib
line = b'{"name":"own.x","title":"x","unit":"s","better":"lower","basis":"wall","values":[1.5]}'
pathlib.Path(os.environ["KRAFTSIM_BENCH_FIGURES"]).write_bytes(line)
"""


def run_own(file: Path, program: str, limit_s: float = 20) -> BenchResult:
    """Run the made-up bench."""
    file.write_text(program)
    return run_bench("own", (), tree=file.parents[2], limit_s=limit_s, is_quiet=True)


def test_a_bench_that_fails_keeps_what_it_measured_before(own_bench: Path) -> None:
    found = run_own(own_bench, f"{REPORT}\nraise SystemExit('no port is free')")
    assert found.status is Status.FAILED and found.reason == "exit code 1: no port is free"
    assert [each.name for each in found.figures] == ["own.x"]


def test_a_bench_is_ended_with_its_children_at_its_limit(own_bench: Path, tmp_path: Path) -> None:
    child = f"open({str(tmp_path / 'child')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    program = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {f"import os, time; {child}"!r}])
time.sleep(60)
"""
    found = run_own(own_bench, program, limit_s=3)
    assert found.status is Status.FAILED and "longer than 3 s" in found.reason
    assert found.seconds < 15
    pid = (tmp_path / "child").read_text()
    status = Path(f"/proc/{pid}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_bench_without_figures_is_named_as_such(own_bench: Path) -> None:
    found = run_own(own_bench, "print('fast')")
    assert (found.status, found.reason) == (Status.TEXT_ONLY, "it reported no figures")


def test_a_figure_of_another_bench_is_an_error(own_bench: Path) -> None:
    found = run_own(own_bench, REPORT.replace("own.x", "ids.x"))
    assert found.status is Status.FAILED and "own.FIGURE" in found.reason


def test_a_bench_that_needs_java_is_absent_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.bench.catalogue.has_java", lambda: False)
    needy = [name for name, bench in BENCHES.items() if bench.java is Java.NEEDED]
    assert needy and all(run_bench(name, ()).status is Status.ABSENT for name in needy)


def test_benches_run_in_the_tree_they_are_given(own_bench: Path) -> None:
    """A comparison measures another tree."""
    check = f"import tools.bench\nassert list(tools.bench.__path__) == [{str(own_bench.parent)!r}]"
    found = run_own(own_bench, f"{REPORT}\n{check}")
    assert found.status is Status.OK, found.reason

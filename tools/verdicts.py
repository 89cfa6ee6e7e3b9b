"""Compares the verdicts of the checks that run with a simulation with those of the SQL afterwards,
over all scenarios, and with every historical bug in the scenario that shows it.

    python -m tools.verdicts --rounds 9 --out build/verdicts

A round is one seed of every scenario, and two of every bug: half of the runs have a bug. A
simulation stops at the first violation of most invariants, so a run with a bug ends in the middle
of what it did. The SQL is run by tasks of Spark with DuckDB and by Spark SQL, whose rows must be
equal, too. Fails if anything differs. With --resume the finished runs in OUT are not repeated.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from kraftsim.analysis.dataset import Dataset
from kraftsim.analysis.engines import Engine
from kraftsim.analysis.session import SparkOptions, spark_session
from kraftsim.analysis.verdicts import Row
from kraftsim.cluster.scenario import scenarios
from kraftsim.lab.bugs.bug import bugs
from kraftsim.lab.campaign.spark import CheckedInvariant, PlayedRun, compare, play, rows_by_run
from kraftsim.lab.campaign.spark_child import EVENTS, done_file
from kraftsim.lab.campaign.sweep import SweepProgress
from kraftsim.lab.campaign.worker_pool import CampaignJob, JobDone, Terms

FIRST_SEED = 1
SHOWN_MAX = 30


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The result: numbers of runs, of verdicts by the online checks, and of differences."""

    runs: int
    runs_with_bug: int
    scenarios: int
    bugs: int
    bugs_shown: int
    runs_violated: int
    runs_failed: int
    events: int
    verdicts: int
    online: Mapping[str, int]
    differ: Mapping[str, int]
    rows: int
    rows_differ: int
    seconds: Mapping[str, float]


def rounds(out: Path, count: int) -> Iterator[list[CampaignJob]]:
    """Yield the jobs of each round: every scenario with one seed, and every bug in its scenario
    with two.
    """
    place = str(out.absolute())
    for number in range(count):
        yield [
            *(
                CampaignJob(name=each.name, seed=FIRST_SEED + number, out=place)
                for each in scenarios()
            ),
            *(
                CampaignJob(
                    name=each.scenario,
                    seed=seed,
                    terms=Terms(bugs=(each.name,), release=each.release),
                    out=place,
                )
                for seed in range(FIRST_SEED + 2 * number, FIRST_SEED + 2 * number + 2)
                for each in bugs()
            ),
        ]


def finished(job: CampaignJob) -> PlayedRun | None:
    """Return the result of a job of a former call, if its events are there."""
    file = done_file(job)
    if not file.exists():
        return None
    done = msgspec.json.decode(file.read_bytes(), type=JobDone)
    assert job.out is not None
    known = Dataset(Path(job.out) / EVENTS)
    is_there = not done.result.event_count or known.has(job.run)
    return PlayedRun(job, done) if is_there else None


def shown(progress: SweepProgress) -> None:
    """Print how many runs have ended."""
    print(
        f"{progress.seeds} of {progress.total} runs, {progress.violated} violated, "
        f"{progress.failed} otherwise not clean",
        file=sys.stderr,
        flush=True,
    )


def differing_rows(
    first: Mapping[str, Sequence[Row]], second: Mapping[str, Sequence[Row]]
) -> list[tuple[str, Row]]:
    """Return the rows that only one of two engines found, each with its run."""
    found: list[tuple[str, Row]] = []
    for run in sorted(first.keys() | second.keys()):
        one, other = Counter(first.get(run, ())), Counter(second.get(run, ()))
        found += [(run, row) for row in (one - other) + (other - one)]
    return found


def figures(
    runs: Sequence[PlayedRun],
    rows: Mapping[Engine, Mapping[str, Sequence[Row]]],
    seconds: Mapping[str, float],
) -> tuple[Figures, list[str]]:
    """Return the result, and a line for each difference."""
    differ: dict[str, int] = {}
    lines: list[str] = []
    compared = 0
    for engine, found in rows.items():
        checked, compared = compare(runs, found)
        disputed = [each for each in checked if not each.is_agreed]
        differ[engine] = len(disputed)
        lines += [_line(engine, each) for each in disputed]
    tasks, sql = rows[Engine.SPARK], rows[Engine.SPARK_SQL]
    other = differing_rows(tasks, sql)
    lines += [f"{run}: only one engine has {row}" for run, row in other]
    online = Counter(outcome for run in runs for outcome in run.result.verdicts.values())
    found_bugs = {
        name for run in runs for name in run.job.terms.bugs if run.result.outcome == "violated"
    }
    return Figures(
        runs=len(runs),
        runs_with_bug=sum(bool(run.job.terms.bugs) for run in runs),
        scenarios=len({run.job.name for run in runs}),
        bugs=len({name for run in runs for name in run.job.terms.bugs}),
        bugs_shown=len(found_bugs),
        runs_violated=sum(run.result.outcome == "violated" for run in runs),
        runs_failed=sum(run.result.outcome == "failed" for run in runs),
        events=sum(run.result.event_count for run in runs),
        verdicts=compared,
        online=dict(sorted(online.items())),
        differ=differ,
        rows=sum(map(len, tasks.values())),
        rows_differ=len(other),
        seconds=seconds,
    ), lines


def _line(engine: Engine, each: CheckedInvariant) -> str:
    return (
        f"{each.scenario} seed {each.seed} {','.join(each.bugs)} {each.invariant}: "
        f"{each.online} online, {each.offline} by {engine}: {each.message}"
    )


def main() -> int:
    """Play the runs, judge them, and print the result as one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.verdicts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=9, help="default: 9, about 1,060 runs")
    parser.add_argument("--seconds", type=float, default=0, help="start no round after this time")
    parser.add_argument("--out", type=Path, default=Path("build/verdicts"))
    parser.add_argument("--master", default="local[2]", metavar="URL")
    parser.add_argument("--resume", action="store_true", help="keep the finished runs of OUT")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}
    rows: dict[Engine, Mapping[str, Sequence[Row]]] = {}
    with spark_session(SparkOptions(master=options.master), is_large=True) as spark:
        began = time.perf_counter()
        runs: list[PlayedRun] = []
        for every in rounds(options.out, options.rounds):
            if options.seconds and time.perf_counter() - began >= options.seconds:
                break
            known = [run for job in every if options.resume and (run := finished(job)) is not None]
            names = {run.job.run for run in known}
            pending = [job for job in every if job.run not in names]
            runs += known + (play(spark, pending, shown) if pending else [])
        seconds["play"] = round(time.perf_counter() - began, 1)
        for engine in (Engine.SPARK, Engine.SPARK_SQL):
            began = time.perf_counter()
            rows[engine] = rows_by_run(spark, options.out / EVENTS, engine)
            seconds[engine] = round(time.perf_counter() - began, 1)
            print(f"{engine}: {seconds[engine]} s", file=sys.stderr, flush=True)
    result, lines = figures(runs, rows, seconds)
    for line in lines[:SHOWN_MAX]:
        print(line, file=sys.stderr)
    if len(lines) > SHOWN_MAX:
        print(f"... and {len(lines) - SHOWN_MAX} more", file=sys.stderr)
    print(msgspec.json.encode(result).decode())
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

"""A campaign over Spark: the tasks simulate, the events of all runs become one Parquet data set,
and SQL queries check all of them.

Every invariant is evaluated twice, by the checks during a run and by SQL over its events; if the
results differ, one of them is wrong, and that is a finding like a violation.
"""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from kraftsim.analysis.campaign_tables import (
    CampaignRows,
    CodeRow,
    ExercisedRow,
    FaultRow,
    SeedRow,
    StepRow,
    UnexecutedRow,
    VerdictRow,
    never_exercised,
    write_page,
    write_tables,
)
from kraftsim.analysis.compaction import compact
from kraftsim.analysis.dataset import Dataset
from kraftsim.analysis.engines import Engine, on_spark
from kraftsim.analysis.session import SparkOptions, spark_session
from kraftsim.analysis.state_machines import Step, find_steps
from kraftsim.analysis.verdicts import Row, by_run, find_rows, verdicts_of
from kraftsim.analysis.views import all_runs
from kraftsim.cluster.scenario import scenario
from kraftsim.extensions import is_path, loadable
from kraftsim.invariants.invariant import INVARIANTS
from kraftsim.invariants.verdict import Verdict
from kraftsim.lab.campaign.code_paths import RunOfCode, code_rows, jumps_in
from kraftsim.lab.campaign.spark_child import CODE, DONE, EVENTS, code_file, done_file
from kraftsim.lab.campaign.spark_task import run_jobs
from kraftsim.lab.campaign.summary import SweepResult, idle_kinds, summary
from kraftsim.lab.campaign.sweep import REPORT_SECONDS, Report, SweepProgress
from kraftsim.lab.campaign.worker_pool import USUAL, CampaignJob, JobDone, Terms, jobs_of, names_of
from kraftsim.lab.explore.record import RunResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE: Final = 3
"""Seeds differ in cost: with several tasks per core none waits long for the last one."""


class PlayedRun(NamedTuple):
    """A job and its result."""

    job: CampaignJob
    done: JobDone

    @property
    def result(self) -> RunResult:
        """The result of the run."""
        return self.done.result


class CheckedInvariant(msgspec.Struct, frozen=True, kw_only=True):
    """One violated invariant of one run, or one on which check and SQL differ: a line of the
    result, with the outcomes of the two verdicts.
    """

    scenario: str
    seed: int
    bugs: tuple[str, ...]
    invariant: str
    online: str
    offline: str
    violations: int
    message: str

    @property
    def is_agreed(self) -> bool:
        """Return whether both forms of the invariant have the same result."""
        return self.online == self.offline


class SparkSweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of a campaign over Spark.

    `judged` lists violations and disputed results; `verdicts` counts all compared results.
    """

    master: str
    sweeps: tuple[SweepResult, ...]
    judged: tuple[CheckedInvariant, ...]
    verdicts: int
    events: int
    parquet: str | None
    tasks: int
    cpu_seconds: float
    jvm_cpu_seconds: float | None

    @property
    def has_violations(self) -> bool:
        """Return whether there is a violation, an aborted run, or a disputed result."""
        return bool(self.judged) or any(
            run.outcome in ("violated", "failed") for sweep in self.sweeps for run in sweep.found
        )

    @property
    def is_inconclusive(self) -> bool:
        """Return whether a part of the campaign was ineffective."""
        return bool(idle_kinds(sweep.faults for sweep in self.sweeps)) or any(
            sweep.unexercised or sweep.found for sweep in self.sweeps
        )

    def lines(self) -> list[str]:
        """Return the result as text for people."""
        disputed = sum(not each.is_agreed for each in self.judged)
        text = [line for sweep in self.sweeps for line in sweep.lines()]
        text.append(
            f"{self.master}: {self.tasks} tasks, {self.events} events, {self.verdicts} results "
            f"of the checks compared with those of SQL, {disputed} differ; "
            f"{self.cpu_seconds:.1f} CPU seconds of simulation"
            + (
                f", {self.jvm_cpu_seconds:.1f} of Spark's Java"
                if self.jvm_cpu_seconds is not None
                else ""
            )
        )
        if self.judged:
            text.append(f"  {'seed':>8}  {'invariant':<36}  {'check':<12}  {'SQL':<12}  bugs")
        for each in self.judged:
            text.append(
                f"  {each.seed:>8}  {each.invariant:<36}  {each.online:<12}  {each.offline:<12}  "
                f"{', '.join(each.bugs) or 'none'}"
            )
            text.append(f"            {each.message}")
        if self.parquet is not None:
            text.append(f"  events of all runs in {self.parquet}")
        return text


def sweep_on_spark(
    names: Sequence[str],
    *,
    seeds: Sequence[int],
    master: str,
    terms: Terms = USUAL,
    out: Path | None = None,
    conf: Mapping[str, str] | None = None,
    spark: "SparkSession | None" = None,
    report: Report | None = None,
) -> SparkSweepResult:
    """Run every seed of every scenario as Spark tasks and check all runs by SQL.

    `out` keeps events and findings; every worker must see it. `report` is called from time to time.

    Raises KeyError for an unknown scenario or bug, ValueError for an unknown workload parameter or
    a cluster without `out`, JavaMissing.
    """
    jobs_of(names, seeds[:1], terms)
    if out is None and not master.startswith("local"):
        raise ValueError(f"with {master} the workers need a shared directory: use --out")
    files = [] if master.startswith("local") else [each for each in loadable() if is_path(each)]
    if files:
        raise ValueError(
            f"with {master} the workers do not have the file {files[0]}: install it there as a "
            "module, and name that module with --extension"
        )
    with (
        _directory(out) as root,
        _session(spark, SparkOptions(master=master, conf=conf or {})) as session,
    ):
        pending_jobs = jobs_of(names, seeds, terms, root.absolute())
        tasks = tasks_for(session, pending_jobs)
        runs = play(session, pending_jobs, report)
        shutil.rmtree(root / DONE, ignore_errors=True)
        done = [each.done for each in runs]
        sweeps = summary(names_of(pending_jobs), done).sweeps
        events = sum(each.result.event_count for each in runs)
        rows = rows_by_run(session, root / EVENTS) if events else {}
        checked, verdicts = compare(runs, rows)
        if out is not None:
            steps = steps_in(session, root / EVENTS) if events else []
            _write_tables(out, runs, rows, steps)
            shutil.rmtree(root / CODE, ignore_errors=True)
        return SparkSweepResult(
            master=master,
            sweeps=sweeps,
            judged=checked,
            verdicts=verdicts,
            events=events,
            parquet=None if out is None else str(root / EVENTS),
            tasks=tasks,
            cpu_seconds=sum(each.cpu_seconds for each in done),
            jvm_cpu_seconds=_jvm_cpu_seconds(session),
        )


def tasks_for(session: "SparkSession", pending_jobs: Sequence[CampaignJob]) -> int:
    """Return the number of tasks among which jobs are distributed."""
    return max(1, min(len(pending_jobs), session.sparkContext.defaultParallelism * TASKS_PER_CORE))


def play(
    session: "SparkSession", pending_jobs: Sequence[CampaignJob], report: Report | None = None
) -> list[PlayedRun]:
    """Run jobs as tasks of Spark, and return them with their results, by seed and scenario. Their
    events are in the dataset of the campaign, and a file for each in its directory `done`.
    """
    for job in pending_jobs:
        done_file(job).unlink(missing_ok=True)
    encoded = [msgspec.json.encode(job) for job in pending_jobs]
    tasks = tasks_for(session, pending_jobs)
    with _watched(pending_jobs, report):
        answers = session.sparkContext.parallelize(encoded, tasks).mapPartitions(run_jobs).collect()
    runs = [
        PlayedRun(job, msgspec.json.decode(answer, type=JobDone))
        for job, answer in zip(pending_jobs, answers, strict=True)
    ]
    return sorted(runs, key=lambda run: (run.job.seed, run.result.scenario))


@contextmanager
def _watched(pending_jobs: Sequence[CampaignJob], report: Report | None) -> Iterator[None]:
    """Report which jobs have ended while the block runs: Spark says how many tasks have, which are
    of many seeds each, and each job leaves a file in the directory that all workers share.
    """
    if report is None:
        yield
        return
    is_over = threading.Event()
    progress = SweepProgress(total=len(pending_jobs))
    waiting = {done_file(job) for job in pending_jobs}

    def look() -> None:
        before = progress.seeds
        for file in sorted(waiting):
            with suppress(FileNotFoundError):
                progress.add(msgspec.json.decode(file.read_bytes(), type=JobDone))
                waiting.discard(file)
        if progress.seeds > before:
            report(progress)

    def watch() -> None:
        while not is_over.wait(REPORT_SECONDS):
            look()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        is_over.set()
        watching.join()
        look()


def rows_by_run(
    session: "SparkSession", events: Path, engine: Engine = Engine.SPARK
) -> Mapping[str, list[Row]]:
    """Return what SQL finds in the events of all runs, by run."""
    compact(Dataset(events))
    runs = all_runs(events)
    return by_run(find_rows(on_spark(session, runs, engine), runs, INVARIANTS.all()))


def steps_in(session: "SparkSession", events: Path) -> list[Step]:
    """Return the steps of state machines that the events of all runs show."""
    return find_steps(on_spark(session, all_runs(events), Engine.SPARK))


def _write_tables(
    out: Path,
    runs: Sequence[PlayedRun],
    rows: Mapping[str, Sequence[Row]],
    steps: Sequence[Step],
) -> None:
    """Add this campaign to the tables of its directory, and write its page."""
    began = datetime.now(UTC)  # noqa: TID251  (the time of the campaign, not of a run)
    commit = _commit()
    seeds, faults, verdicts, exercised = [], [], [], []
    for each in runs:
        result, terms, name = each.result, each.job.terms, each.job.run
        seeds.append(
            SeedRow(
                commit=commit,
                started=began.isoformat(timespec="seconds"),
                run=name,
                scenario=result.scenario,
                seed=result.seed,
                release=terms.release,
                bugs=",".join(terms.bugs),
                outcome=result.outcome,
                events=result.event_count,
                virtual_s=result.seconds,
                cpu_s=each.done.cpu_seconds,
            )
        )
        place = {"commit": commit, "run": name, "scenario": result.scenario}
        faults += [
            FaultRow(
                **place, seed=result.seed, fault=kind, armed=armed, fired=fired, effective=effective
            )
            for kind, (armed, fired, effective) in result.faults.items()
        ]
        offline = _offline(rows.get(name, ()), result)
        verdicts += [
            VerdictRow(
                **place,
                seed=result.seed,
                invariant=invariant,
                online=online,
                offline=offline[invariant].outcome.value,
                examined=offline[invariant].examined,
                violations=offline[invariant].violation_count,
            )
            for invariant, online in result.verdicts.items()
            if invariant in offline
        ]
    scenarios = {each.job.run: each.result.scenario for each in runs}
    kinds: dict[str, None] = {}
    dataset = Dataset(out / EVENTS)
    for each in runs:
        if not each.result.event_count:
            continue
        manifest = dataset.manifest(each.job.run)
        kinds |= dict.fromkeys(manifest.kinds)
        exercised += [
            ExercisedRow(
                commit=commit,
                run=manifest.run,
                scenario=each.result.scenario,
                kind=kind,
                events=events,
            )
            for kind, events in manifest.kinds.items()
        ]
    code, unexecuted = _code_rows(runs, commit)
    found = CampaignRows(
        seeds=tuple(seeds),
        faults=tuple(faults),
        verdicts=tuple(verdicts),
        exercised=(*exercised, *never_exercised(list(kinds), commit)),
        steps=tuple(
            StepRow(commit=commit, scenario=scenarios[each.run], **each._asdict())
            for each in steps
            if each.run in scenarios
        ),
        code=tuple(code),
        unexecuted=tuple(unexecuted),
    )
    write_tables(out, found, f"{began:%Y%m%dT%H%M%S.%f}")
    write_page(out, found)


def _code_rows(runs: Sequence[PlayedRun], commit: str) -> tuple[list[CodeRow], list[UnexecutedRow]]:
    """Return the rows of the code of the rules; none if the campaign did not record it."""
    if not any(each.job.terms.code_paths for each in runs):
        return [], []
    return code_rows(
        (
            RunOfCode(each.job.run, each.result.scenario, jumps_in(code_file(each.job)))
            for each in runs
        ),
        commit,
    )


def _commit() -> str:
    """Return the commit of the source tree that runs, '' outside of one."""
    place = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "-C", str(place), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def compare(
    runs: Sequence[PlayedRun], rows: Mapping[str, Sequence[Row]]
) -> tuple[tuple[CheckedInvariant, ...], int]:
    """Return violated and disputed results, and how many results were compared."""
    checked: list[CheckedInvariant] = []
    compared = 0
    for each in runs:
        if not each.result.event_count:
            continue
        offline = _offline(rows.get(each.job.run, ()), each.result)
        for name, online in each.result.verdicts.items():
            if name not in offline:
                continue
            compared += 1
            if online == offline[name].outcome and online != "violated":
                continue
            checked.append(_checked(each.result, each.job.terms.bugs, online, offline[name]))
    return tuple(checked), compared


def _offline(rows: Sequence[Row], result: RunResult) -> dict[str, Verdict]:
    """Return the verdicts of SQL for a run, by invariant; their violations have no evidence."""
    must_exercise = scenario(result.scenario).must_exercise
    found = verdicts_of(rows, INVARIANTS.all())
    return {
        invariant.name: invariant.for_run(
            found[invariant.name], must_exercise=invariant.name in must_exercise
        )
        for invariant in INVARIANTS.all()
    }


def _checked(
    result: RunResult, bugs: tuple[str, ...], online: str, offline: Verdict
) -> CheckedInvariant:
    name = offline.invariant
    message = next(
        (line for line in result.violations if line.startswith(f"{name}: ")),
        offline.violations[0].message if offline.violations else "",
    )
    return CheckedInvariant(
        scenario=result.scenario,
        seed=result.seed,
        bugs=bugs,
        invariant=name,
        online=online,
        offline=offline.outcome.value,
        violations=offline.violation_count,
        message=message.removeprefix(f"{name}: "),
    )


@contextmanager
def _directory(out: Path | None) -> Iterator[Path]:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="kraftsim-spark-sweep-") as scratch:
        yield Path(scratch)


@contextmanager
def _session(spark: "SparkSession | None", options: SparkOptions) -> "Iterator[SparkSession]":
    if spark is not None:
        yield spark
        return
    with spark_session(options) as session:
        yield session


def _jvm_cpu_seconds(session: "SparkSession") -> float | None:
    """Return the CPU seconds of the driver's Java process, if the system reports them; with a local
    master that is all of Spark.
    """
    gateway = session.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    status = Path(f"/proc/{process.pid}/stat") if process is not None else None
    if status is None or not status.exists():
        return None
    user_ticks, system_ticks = status.read_text().rpartition(")")[2].split()[11:13]
    return (int(user_ticks) + int(system_ticks)) / os.sysconf("SC_CLK_TCK")

"""The worker pool of a campaign: its jobs, one per seed, and the processes that run them, each
forked once and reused, so that a seed costs little.
"""

import multiprocessing
import time
import traceback
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.extensions import load, loadable
from kraftsim.lab.bugs.bug import bug
from kraftsim.lab.campaign.coverage import Coverage, run_with_coverage
from kraftsim.lab.campaign.cpu_limit import Endless, cpu_limit
from kraftsim.lab.campaign.variations import Variation
from kraftsim.lab.explore import isolated
from kraftsim.lab.explore.blocking import unblocked
from kraftsim.lab.explore.fork import BranchesRun, Fork
from kraftsim.lab.explore.record import RunResult, replay_command
from kraftsim.lab.explore.replay import replay_of
from kraftsim.lab.explore.request import ANY_PORT, RunRequest, settings_of_kinds
from kraftsim.lab.explore.run import run_request

# --------------------------------------------------------------------------------------------------
# One job of a campaign: a seed for a worker to run, the parameters that all seeds share, and the
# result

OK, VIOLATED, FAILED = "ok", "violated", "failed"
RUN_CPU_SECONDS: Final = 300.0
"""A run takes one or two, and the limit of its callbacks is reached before this one: it ends a
single callback that does not end.
"""
HANG: Final = "Endless"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that all seeds of a campaign share.

    Numbers of nodes that are None are those of each scenario.
    """

    release: str = ""
    bugs: tuple[str, ...] = ()
    settings: Mapping[str, str] = {}
    workload: Mapping[str, int] = {}
    controllers: int | None = None
    brokers: int | None = None
    injected: tuple[str, ...] = ()
    """Faults of requests, as texts."""
    code_paths: bool = False
    """Record which code of the rules each run executes; only for a campaign on Spark."""


USUAL = Terms()


class CampaignJob(msgspec.Struct, frozen=True, kw_only=True):
    """One seed of a scenario.

    The caller that runs it determines the content of the directory `out`. `extensions` are loaded
    by the process that runs it.
    """

    name: str
    seed: int
    terms: Terms = USUAL
    out: str | None = None
    extensions: tuple[str, ...] = ()
    variation: Variation | None = None
    """What the run has instead of what its seed draws."""
    number: int = 0
    """The number of the run in a guided search, from 1; its coverage is observed. 0: in none."""
    branches: tuple[Variation, ...] = ()
    """Runs that part from this one at one moment, to be run in its place; `number` is that of the
    first.
    """
    branches_after_ms: int = 0
    """The moment: virtual time from the arming of the schedule."""

    def each(self) -> list["CampaignJob"]:
        """Return the runs of a job: itself, or its branches."""
        if not self.branches:
            return [self]
        return [
            msgspec.structs.replace(
                self,
                variation=variation,
                number=self.number + index,
                branches=(),
                branches_after_ms=0,
            )
            for index, variation in enumerate(self.branches)
        ]

    @property
    def run(self) -> str:
        """The name of the run in a dataset: its scenario, seed and bugs."""
        return "-".join((self.short_name, str(self.seed), *self.terms.bugs))

    @property
    def short_name(self) -> str:
        """The name of the scenario in the names of directories: without the path of its file."""
        return self.name.rpartition("/")[2].replace(".py", "").replace("::", ".")

    def request(self) -> RunRequest:
        """Return the request for the run.

        Raises KeyError for an unknown scenario, ValueError for parameters that it does not support
        and for an extension that cannot be loaded.
        """
        for extension in self.extensions:
            load(extension)
        terms, variation = self.terms, self.variation
        request = RunRequest(
            scenario=scenario(self.name),
            mode=Mode.SIM,
            seed=self.seed,
            release=terms.release,
            bugs=terms.bugs,
            settings=dict(terms.settings),
            workload=dict(terms.workload),
            controllers=terms.controllers,
            brokers=terms.brokers,
            injected=terms.injected,
        )
        if variation is None:
            return request
        space = request.scenario.fault_space
        own = {fault.kind for fault in request.schedule()}  # for membership only
        added = [fault for fault in variation.faults if fault.kind not in own]
        needed = {} if space is None else settings_of_kinds(added, space)
        return replace(
            request,
            faults=variation.faults,
            settings={**variation.settings, **needed, **terms.settings},
            workload={**variation.workload, **terms.workload},
            surroundings=variation.surroundings,
        )

    def place(self, out: Path) -> Path:
        """Return the directory in which the run is kept: of a run of a guided search, which may be
        another one than that of an earlier search, one that does not exist.
        """
        place = out / f"{self.short_name}-{self.seed}"
        again = 1
        while self.number and place.exists():
            again += 1
            place = out / f"{self.short_name}-{self.seed}.{again}"
        return place


def jobs_of(
    names: Iterable[str], seeds: Iterable[int], terms: Terms, out: Path | None = None
) -> list[CampaignJob]:
    """Return the jobs for every seed of every scenario, seed by seed.

    Raises KeyError for an unknown scenario or bug, ValueError for parameters that a scenario does
    not support: before anything runs.
    """
    for name in terms.bugs:
        bug(name)
    chosen = [
        CampaignJob(name=name, seed=0, terms=terms).request().scenario.identifier for name in names
    ]
    place = None if out is None else str(out)
    extensions = loadable()
    return [
        CampaignJob(name=name, seed=seed, terms=terms, out=place, extensions=extensions)
        for seed in seeds
        for name in chosen
    ]


def names_of(pending_jobs: Sequence[CampaignJob]) -> tuple[str, ...]:
    """Return the scenarios of some jobs, in order."""
    return tuple(dict.fromkeys(job.name for job in pending_jobs))


class JobDone(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job, and its cost."""

    result: RunResult
    cpu_seconds: float
    coverage: Coverage | None = None
    """Of a run of a guided search."""
    shared_events: int = 0
    """Of the events of the run, those that cost nothing, because branches of one run share them."""

    @property
    def is_clean(self) -> bool:
        """Return whether there was no finding."""
        return self.result.outcome == OK

    @property
    def key(self) -> tuple[str, int]:
        """Scenario and seed."""
        return self.result.scenario, self.result.seed


def carry_out(job: CampaignJob, fork: Fork | None = None) -> JobDone:
    """Run a seed; with a `fork`, one of its branches. Raises BranchesRun.

    A run that is not clean is repeated, to be kept below `out`: runs are deterministic, and clean
    ones need no files.
    """
    began = time.process_time() + isolated.cpu_seconds()
    request = job.request()
    coverage = None
    if job.number:
        covered = run_with_coverage(request, fork)
        result, coverage = covered.result, covered.coverage
        if fork is not None:
            job, began = _own(job, fork), 0.0  # the CPU time of a child begins at 0
            request = job.request()
        is_found = result.outcome in (VIOLATED, FAILED)
    else:
        result = run_request(request)
        is_found = result.outcome != OK
    if job.out is not None and is_found:
        result = _kept(request, result, job.place(Path(job.out)))
    spent_seconds = time.process_time() + isolated.cpu_seconds() - began
    return JobDone(result=result, cpu_seconds=spent_seconds, coverage=coverage)


def run_each(job: CampaignJob) -> list[tuple[CampaignJob, JobDone]]:
    """Run a job, or each of its branches: their common beginning once, if that is possible."""
    jobs = job.each()
    fork = Fork(job.branches_after_ms, [each.request() for each in jobs])
    if not job.branches or not fork.is_possible:
        return [(each, run_job_safely(each)) for each in jobs]
    began = time.process_time()
    with suppress(BranchesRun):
        done = run_job_safely(job, fork)
        if fork.index is not None:
            fork.answer(msgspec.json.encode(done))
    share = (time.process_time() - began) / len(jobs)
    shared_events = fork.events_before - fork.events_before // len(jobs)
    found = []
    for each, answer in zip(jobs, fork.answers or [b""] * len(jobs), strict=True):
        if answer:
            done = msgspec.json.decode(answer, type=JobDone)
            cost = done.cpu_seconds + share
            done = msgspec.structs.replace(done, cpu_seconds=cost, shared_events=shared_events)
        else:  # the child ended without one, or there was none: the run from the beginning says why
            done = run_job_safely(each)
        found.append((each, done))
    return found


def run_job_safely(job: CampaignJob, fork: Fork | None = None) -> JobDone:
    """Run a seed; with a `fork`, one of its branches. Raises BranchesRun.

    An exception in the harness itself is a finding, too, and does not stop the other seeds; nor
    does code that ends the process, cancels the scenario, or never returns.
    """
    try:
        with cpu_limit(RUN_CPU_SECONDS) if job.number else unblocked() as limit:
            if fork is not None and limit is not None:
                fork.on_child = partial(limit.restart, RUN_CPU_SECONDS)
            return carry_out(job, fork)
    except BranchesRun:
        raise
    except Endless:
        return broken(_own(job, fork), f"{HANG}: still busy after {RUN_CPU_SECONDS:g} CPU seconds")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return broken(
            _own(job, fork),
            f"{type(error).__name__} in the harness: {error} ({place.name}, line {place.lineno} "
            f"of {place.filename})",
        )


def _own(job: CampaignJob, fork: Fork | None) -> CampaignJob:
    """Return the job that this process runs."""
    return job if fork is None or fork.index is None else job.each()[fork.index]


def broken(job: CampaignJob, trouble: str) -> JobDone:
    """Return the result of a seed that ended its worker or raised an exception in the harness; a
    variation is kept, because no seed repeats it.
    """
    request = job.request()
    is_kept = job.out is not None and job.variation is not None
    out = RunDirectory(job.place(Path(job.out or ""))) if is_kept else None
    result = RunResult(
        scenario=job.name,
        mode=Mode.SIM.value,
        seed=job.seed,
        outcome=FAILED,
        violations=(),
        invariants_violated=(),
        verdicts={},
        trouble=trouble,
        faults={},
        event_count=0,
        seconds=0.0,
        events_sha256=None,
        out=None if out is None else str(out.root),
        command=replay_command(request, out),
    )
    if out is not None:
        out.create()
        replay_of(request, request.spec(port=ANY_PORT), result).write(out.root)
    return JobDone(result=result, cpu_seconds=0.0)


def _kept(request: RunRequest, first: RunResult, out: Path) -> RunResult:
    if (out / "run.json").exists():
        return msgspec.structs.replace(first, out=str(out))
    again = run_request(request, out)
    if again.events_sha256 == first.events_sha256:
        return again
    return msgspec.structs.replace(
        again,
        trouble=f"the run is not deterministic: {first.events_sha256} and {again.events_sha256} "
        f"({again.trouble})",
    )


# --------------------------------------------------------------------------------------------------
# The worker pool: processes that run seeds, each forked once and reused, so that a seed costs no
# more than its simulation
#
# They are forked from a server process with all imports and without threads, so that the caller's
# process may have any.

AHEAD = 2
"""How many seeds are queued at a worker, so that it need not wait for the next one."""
PRELOADED = ["kraftsim.lab.campaign.worker_pool", "kraftsim.lab.explore.virtual"]


@dataclass(kw_only=True, slots=True)
class Worker:
    """One process, and the seeds in its queue."""

    process: ForkServerProcess
    connection: Connection
    pending_jobs: deque[CampaignJob] = field(default_factory=deque)


class WorkerPool:
    """Use as a context manager; call `give` while `has_room`, `take` while `is_busy`.

    With one worker everything runs in the caller's process.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._context = multiprocessing.get_context("forkserver")
        self._workers: list[Worker] = []
        self._inline: deque[CampaignJob] = deque()

    def __enter__(self) -> "WorkerPool":
        if self._size > 1:
            self._context.set_forkserver_preload(PRELOADED)
            self._workers = [self._start_worker() for _ in range(self._size)]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            if worker.pending_jobs:
                worker.process.kill()
            worker.connection.close()
        for worker in self._workers:
            worker.process.join()

    @property
    def has_room(self) -> bool:
        """Return whether a worker can queue another seed."""
        if not self._workers:
            return not self._inline
        return any(len(worker.pending_jobs) < AHEAD for worker in self._workers)

    @property
    def is_busy(self) -> bool:
        """Return whether a seed is outstanding."""
        return bool(self._inline) or any(worker.pending_jobs for worker in self._workers)

    def give(self, job: CampaignJob) -> None:
        """Send a seed to the worker with the shortest queue."""
        if not self._workers:
            self._inline.append(job)
            return
        worker = min(self._workers, key=lambda worker: len(worker.pending_jobs))
        worker.pending_jobs.append(job)
        worker.connection.send(job)

    def take(self, timeout_seconds: float | None = None) -> list[tuple[CampaignJob, JobDone]]:
        """Return the runs that finished since the last call; waits for at least one, at most so
        long.
        """
        if not self._workers:
            return run_each(self._inline.popleft()) if self._inline else []
        ready = wait(
            [worker.connection for worker in self._workers if worker.pending_jobs], timeout_seconds
        )
        return [
            pair
            for worker in self._workers
            if worker.connection in ready
            for pair in self._receive(worker)
        ]

    def _receive(self, worker: Worker) -> list[tuple[CampaignJob, JobDone]]:
        try:
            done = worker.connection.recv()
        except (EOFError, OSError):
            return self._replace(worker)
        assert isinstance(done, list), "a worker answers each job with its runs"
        worker.pending_jobs.popleft()
        return done

    def _replace(self, worker: Worker) -> list[tuple[CampaignJob, JobDone]]:
        """Replace a worker that died; its current seed is lost, its queued seeds are not."""
        worker.process.join()
        lost, *left = worker.pending_jobs
        exit_code = worker.process.exitcode
        worker.connection.close()
        successor = self._start_worker()
        self._workers[self._workers.index(worker)] = successor
        for job in left:
            successor.pending_jobs.append(job)
            successor.connection.send(job)
        trouble = f"its worker process died (exit code {exit_code})"
        return [(each, broken(each, trouble)) for each in lost.each()]

    def _start_worker(self) -> Worker:
        near, far = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(far,), daemon=True)
        process.start()
        far.close()
        return Worker(process=process, connection=near)


def _serve(connection: Connection) -> None:
    """Run one seed after the other until the other end is closed."""
    while True:
        try:
            job = connection.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        connection.send(run_each(job))

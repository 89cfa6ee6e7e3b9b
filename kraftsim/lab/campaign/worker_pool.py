"""The worker pool: processes that run seeds, each forked once and reused, so that a seed costs no
more than its simulation.

They are forked from a server process with all imports and without threads, so that the caller's
process may have any.
"""

import multiprocessing
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from types import TracebackType

from kraftsim.lab.campaign.campaign_job import CampaignJob, JobDone, broken, run_job_safely

AHEAD = 2
"""How many seeds are queued at a worker, so that it need not wait for the next one."""
PRELOADED = ["kraftsim.lab.campaign.campaign_job", "kraftsim.lab.explore.virtual"]


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
        """Return the jobs that finished since the last call; waits for at least one, at most so
        long.
        """
        if not self._workers:
            return (
                [(job, run_job_safely(job)) for job in [self._inline.popleft()]]
                if self._inline
                else []
            )
        ready = wait(
            [worker.connection for worker in self._workers if worker.pending_jobs], timeout_seconds
        )
        return [self._receive(worker) for worker in self._workers if worker.connection in ready]

    def _receive(self, worker: Worker) -> tuple[CampaignJob, JobDone]:
        try:
            done = worker.connection.recv()
        except (EOFError, OSError):
            return self._replace(worker)
        assert isinstance(done, JobDone), "a worker answers each job"
        return worker.pending_jobs.popleft(), done

    def _replace(self, worker: Worker) -> tuple[CampaignJob, JobDone]:
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
        return lost, broken(lost, f"its worker process died (exit code {exit_code})")

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
        connection.send(run_job_safely(job))

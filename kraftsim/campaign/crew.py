"""Workers that play seeds, each a process that is forked once and used again: a seed costs what its simulation costs, and nothing more.

They are forked from a server process that has everything imported and no threads, so it does not matter what the caller's process has running.
"""

import multiprocessing
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from types import TracebackType

from kraftsim.campaign.errand import Done, Errand, broken, carry_out_carefully

AHEAD = 2
"""How many seeds a worker is given at a time, so that it need not wait for the next one."""
PRELOADED = ["kraftsim.campaign.errand", "kraftsim.explore.virtual"]


@dataclass(kw_only=True, slots=True)
class Worker:
    """One process, and the seeds that it was given."""

    process: ForkServerProcess
    connection: Connection
    errands: deque[Errand] = field(default_factory=deque)


class Crew:
    """Use as a context manager; `give` while `has_room`, `take` while `is_busy`. With one worker everything is played in the caller's process."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._context = multiprocessing.get_context("forkserver")
        self._workers: list[Worker] = []
        self._inline: deque[Errand] = deque()

    def __enter__(self) -> "Crew":
        if self._size > 1:
            self._context.set_forkserver_preload(PRELOADED)
            self._workers = [self._hire() for _ in range(self._size)]
        return self

    def __exit__(self, kind: type[BaseException] | None, trouble: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._workers:
            if worker.errands:
                worker.process.kill()
            worker.connection.close()
        for worker in self._workers:
            worker.process.join()

    @property
    def has_room(self) -> bool:
        """Tell whether somebody could take another seed."""
        if not self._workers:
            return not self._inline
        return any(len(worker.errands) < AHEAD for worker in self._workers)

    @property
    def is_busy(self) -> bool:
        """Tell whether a seed is outstanding."""
        return bool(self._inline) or any(worker.errands for worker in self._workers)

    def give(self, errand: Errand) -> None:
        """Hand a seed to whoever has the least to do."""
        if not self._workers:
            self._inline.append(errand)
            return
        worker = min(self._workers, key=lambda worker: len(worker.errands))
        worker.errands.append(errand)
        worker.connection.send(errand)

    def take(self, timeout_seconds: float | None = None) -> list[tuple[Errand, Done]]:
        """Return what was done since the last call; waits for something, at most so long."""
        if not self._workers:
            return [(errand, carry_out_carefully(errand)) for errand in [self._inline.popleft()]] if self._inline else []
        ready = wait([worker.connection for worker in self._workers if worker.errands], timeout_seconds)
        return [self._receive(worker) for worker in self._workers if worker.connection in ready]

    def _receive(self, worker: Worker) -> tuple[Errand, Done]:
        try:
            done = worker.connection.recv()
        except (EOFError, OSError):
            return self._replace(worker)
        assert isinstance(done, Done), "a worker answers each errand"
        return worker.errands.popleft(), done

    def _replace(self, worker: Worker) -> tuple[Errand, Done]:
        """Put another worker in the place of one that died; the seed that it was at is lost, what waited behind it is not."""
        worker.process.join()
        lost, *left = worker.errands
        exit_code = worker.process.exitcode
        worker.connection.close()
        successor = self._hire()
        self._workers[self._workers.index(worker)] = successor
        for errand in left:
            successor.errands.append(errand)
            successor.connection.send(errand)
        return lost, broken(lost, f"the process that played it died (exit code {exit_code})")

    def _hire(self) -> Worker:
        near, far = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(far,), daemon=True)
        process.start()
        far.close()
        return Worker(process=process, connection=near)


def _serve(connection: Connection) -> None:
    """Play one seed after the other until the other end is closed."""
    while True:
        try:
            errand = connection.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        connection.send(carry_out_carefully(errand))

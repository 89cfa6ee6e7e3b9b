"""Runs scenarios over many seeds, on all processors, and collects the findings.

Without `keep_going` the first finding ends a campaign, and it is always the same one: that of the
lowest seed, however many workers there are.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec

from kraftsim.lab.campaign.summary import CampaignResult, SweepResult, add_faults, summary
from kraftsim.lab.campaign.worker_pool import (
    FAILED,
    USUAL,
    VIOLATED,
    CampaignJob,
    JobDone,
    Terms,
    WorkerPool,
    jobs_of,
    names_of,
)

# --------------------------------------------------------------------------------------------------
# A file of JSON lines with every finished seed of a campaign, so that an interrupted campaign can
# be resumed.


class SweepJournal:
    """The finished seeds, all with the same parameters.

    Use as a context manager; a torn last line of a killed campaign is truncated.
    """

    def __init__(self, path: Path, terms: Terms) -> None:
        """Open or create the file.

        Raises ValueError for a journal of another campaign, or for any other file; OSError if that
        fails.
        """
        self._path = path
        self.done: dict[tuple[str, int], JobDone] = {}
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        try:
            if lines and msgspec.json.decode(lines[0], type=Terms) != terms:
                raise ValueError(
                    f"{path} is the journal of a campaign with another release, other bugs, "
                    "other settings or other work"
                )
            for line in lines[1:]:
                done = msgspec.json.decode(line, type=JobDone)
                self.done[done.key] = done
        except msgspec.DecodeError as error:
            raise ValueError(f"{path} is not a journal of a campaign: {error}") from error
        path.write_bytes(whole or msgspec.json.encode(terms) + b"\n")
        self._file: IO[bytes] = path.open("ab")

    def __enter__(self) -> "SweepJournal":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, done: JobDone) -> None:
        """Append a finished seed."""
        self._file.write(msgspec.json.encode(done) + b"\n")
        self._file.flush()


REPORT_SECONDS = 0.5
Report = Callable[["SweepProgress"], None]


@dataclass(kw_only=True, slots=True)
class SweepProgress:
    """The progress of a campaign. `faults` sums armed, fired and effective by kind."""

    total: int
    seeds: int = 0
    resumed: int = 0
    cpu_seconds: float = 0.0
    simulated_seconds: float = 0.0
    violated: int = 0
    failed: int = 0
    faults: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def add(self, done: JobDone) -> None:
        """Count a seed."""
        self.seeds += 1
        self.cpu_seconds += done.cpu_seconds
        self.simulated_seconds += done.result.seconds
        self.violated += done.result.outcome == VIOLATED
        self.failed += done.result.outcome not in (VIOLATED, "ok")
        add_faults(self.faults, done.result.faults)


def sweep(
    name: str,
    *,
    seeds: Sequence[int],
    workers: int | None = None,
    keep_going: bool = False,
    out: Path | None = None,
    terms: Terms = USUAL,
) -> SweepResult:
    """Run every seed of one scenario; see `campaign`."""
    return campaign(
        (name,), seeds=seeds, terms=terms, jobs=workers, keep_going=keep_going, out=out
    ).sweeps[0]


def campaign(
    names: Sequence[str],
    *,
    seeds: Sequence[int],
    terms: Terms = USUAL,
    jobs: int | None = None,
    keep_going: bool = False,
    out: Path | None = None,
    journal: Path | None = None,
    is_over: Callable[[], bool] = lambda: False,
    report: Report | None = None,
) -> CampaignResult:
    """Run every seed of every scenario in simulation and return the findings.

    Without `keep_going` no new seed starts after the first violation or aborted run.

    With `out` the runs that were not clean are kept there, one directory per seed. With `journal`
    every seed is recorded, and those that the file has already are not repeated. `is_over` is
    called before each seed: once it is true, no other seed starts. `report` is called from time to
    time. Raises KeyError for an unknown scenario or bug, ValueError for a journal of another
    campaign or an unknown workload parameter.
    """
    pending_jobs = jobs_of(names, seeds, terms, out)
    course = _Course(pending_jobs, keep_going, report)
    count = min(jobs or os.cpu_count() or 1, max(len(pending_jobs), 1))
    if journal is None:
        course.run(count, is_over)
    else:
        with SweepJournal(journal, terms) as book:
            course.resume(book)
            course.run(count, is_over)
    return summary(names_of(pending_jobs), course.outcome())


Key = tuple[str, int]


class _Course:
    """A campaign in progress.

    Seeds are tracked by position, for without `keep_going` it ends after the first position with a
    violation.
    """

    def __init__(
        self, pending_jobs: Sequence[CampaignJob], keep_going: bool, report: Report | None
    ) -> None:
        self._jobs = pending_jobs
        self._places: dict[Key, int] = {
            (job.name, job.seed): place for place, job in enumerate(pending_jobs)
        }
        self._keep_going = keep_going
        self._report = report
        self._last_place = len(pending_jobs)
        self._done: dict[Key, JobDone] = {}
        self._book: SweepJournal | None = None
        self._progress = SweepProgress(total=len(pending_jobs))

    def resume(self, book: SweepJournal) -> None:
        """Take the results of a journal, and append new ones to it."""
        self._book = book
        for key, done in book.done.items():
            if key in self._places:
                self._add(key, done)
        self._progress.resumed = len(self._done)

    def run(self, jobs: int, is_over: Callable[[], bool]) -> None:
        """Run the remaining seeds. A seed starts only if it is still needed at that time."""
        with WorkerPool(jobs) as worker_pool:
            for job in [job for job in self._jobs if (job.name, job.seed) not in self._done]:
                while not worker_pool.has_room:
                    self._take(worker_pool)
                if is_over() or self._places[job.name, job.seed] > self._last_place:
                    break
                worker_pool.give(job)
            while worker_pool.is_busy:
                self._take(worker_pool)
        self._tell()

    def outcome(self) -> list[JobDone]:
        """Return the results in the order of the seeds, up to the end of the campaign."""
        return [
            self._done[key]
            for key, place in self._places.items()
            if key in self._done and place <= self._last_place
        ]

    def _take(self, worker_pool: WorkerPool) -> None:
        for job, done in worker_pool.take(REPORT_SECONDS):
            self._add((job.name, job.seed), done)
            if self._book is not None:
                self._book.add(done)
        self._tell()

    def _add(self, key: Key, done: JobDone) -> None:
        self._done[key] = done
        self._progress.add(done)
        if done.result.outcome in (VIOLATED, FAILED) and not self._keep_going:
            self._last_place = min(self._last_place, self._places[key])

    def _tell(self) -> None:
        if self._report is not None:
            self._report(self._progress)

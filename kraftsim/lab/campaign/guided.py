"""Carries out a guided search over all scenarios, until a budget of CPU seconds is spent or a run
violates an invariant, is aborted, or does not end.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec.structs import replace

from kraftsim.extensions import loadable
from kraftsim.lab.bugs.bug import bug
from kraftsim.lab.campaign.search import GuidedSearch, Learnt
from kraftsim.lab.campaign.summary import SweepResult, idle_kinds, summary
from kraftsim.lab.campaign.worker_pool import (
    FAILED,
    USUAL,
    VIOLATED,
    CampaignJob,
    JobDone,
    Terms,
    WorkerPool,
)
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.trials import without_numbers

EXERCISED_AFTER: Final = 5
"""A scenario that has had so many runs with new seeds must have exercised what it must exercise."""
SHOWN_MAX: Final = 20
RunJob = Callable[[CampaignJob], JobDone]


class SearchTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a search: those of all its runs, and those of its decisions."""

    terms: Terms = USUAL
    scenarios: tuple[str, ...]
    seed: int = 1
    is_guided: bool = True


class FinishedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run of a search, and what it has taught; its coverage is left out."""

    job: CampaignJob
    done: JobDone
    learnt: Learnt


class SearchJournal:
    """A file of JSON lines with every finished run of a search, so that an interrupted search can
    be resumed. A torn last line is truncated.
    """

    def __init__(self, path: Path, terms: SearchTerms) -> None:
        """Open or create the file.

        Raises ValueError for a journal of another search, or for any other file; OSError.
        """
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        try:
            if lines and msgspec.json.decode(lines[0], type=SearchTerms) != terms:
                raise ValueError(
                    f"{path} is the journal of a search with other scenarios, another release, "
                    "other bugs, other settings or another seed"
                )
            self.finished = [msgspec.json.decode(line, type=FinishedRun) for line in lines[1:]]
        except msgspec.DecodeError as error:
            raise ValueError(f"{path} is not a journal of a search: {error}") from error
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(whole or msgspec.json.encode(terms) + b"\n")
        self._file: IO[bytes] = path.open("ab")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def add(self, run: FinishedRun) -> None:
        """Append a finished run."""
        self._file.write(msgspec.json.encode(run) + b"\n")
        self._file.flush()


class SearchDiscovery(msgspec.Struct, frozen=True, kw_only=True):
    """What several runs have found in the same way: the first of them, and how many there are.

    `spent_cpu_seconds` and `spent_runs` are those of the search until then.
    """

    finding: str
    first: RunResult
    is_variation: bool
    count: int
    spent_cpu_seconds: float
    spent_runs: int

    def lines(self) -> Iterator[str]:
        """Yield the finding, and the commands to look into it."""
        run = self.first
        yield f"  {self.finding}: {self.count} run{'' if self.count == 1 else 's'}"
        yield (
            f"    first in run {self.spent_runs} after {self.spent_cpu_seconds:.1f} CPU seconds: "
            f"{run.scenario}, seed {run.seed}"
        )
        yield from (f"    {line}" for line in run.violations[:3])
        if run.trouble is not None:
            yield f"    {run.trouble}"
        yield f"    replay: {run.replay_line}"
        if run.out is not None:
            yield f"    shrink: kraftsim shrink {run.out}"
            yield f"    trace: kraftsim trace {run.out} --compact"


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search. `sweeps` are the results of each scenario."""

    sweeps: tuple[SweepResult, ...]
    found: tuple[SearchDiscovery, ...]
    runs: int
    variations: int
    features: int
    cpu_seconds: float
    unexercised: tuple[str, ...]
    """`SCENARIO: INVARIANT`, if no run of the scenario exercised it and there were enough."""

    @property
    def has_violations(self) -> bool:
        """Return whether an invariant was violated, or a run was aborted or did not end."""
        return bool(self.found)

    @property
    def idle_kinds(self) -> tuple[str, ...]:
        """The kinds of faults that were never effective, though armed or fired often enough."""
        return idle_kinds(sweep.faults for sweep in self.sweeps)

    @property
    def is_inconclusive(self) -> bool:
        """Return whether a part of the search was ineffective."""
        return bool(self.idle_kinds or self.unexercised)

    def lines(self) -> list[str]:
        """Return the result as text for people."""
        ran = [sweep for sweep in self.sweeps if sweep.seeds_run]
        simulated = sum(sweep.simulated_seconds for sweep in ran)
        text = [
            f"{self.runs} runs, {self.variations} of them variations, of {len(ran)} of "
            f"{len(self.sweeps)} scenarios: {simulated:.0f} simulated seconds in "
            f"{self.cpu_seconds:.1f} CPU seconds, {self.features} features of coverage"
        ]
        width = max((len(sweep.scenario) for sweep in ran), default=0)
        text += [
            f"  {sweep.scenario.ljust(width)}  {sweep.seeds_run:>5} runs, {sweep.clean:>5} clean, "
            f"{sweep.cpu_seconds:>7.1f} CPU s"
            for sweep in ran
        ]
        text += [
            f"  {each} was never exercised: this search does not test it"
            for each in self.unexercised
        ]
        text += [
            f"  fault {kind} was never effective: this search does not test it"
            for kind in self.idle_kinds
        ]
        text.append(f"{len(self.found)} findings" if self.found else "nothing found")
        for found in self.found[:SHOWN_MAX]:
            text += found.lines()
        return text


@dataclass(kw_only=True, slots=True)
class SearchProgress:
    """The progress of a search."""

    budget_cpu_seconds: float
    scenarios: int
    cpu_seconds: float = 0.0
    runs: int = 0
    resumed: int = 0
    tried: int = 0
    features: int = 0
    found: int = 0


def guided_search(
    terms: SearchTerms,
    *,
    cpu_seconds: float,
    jobs: int = 1,
    keep_going: bool = False,
    out: Path | None = None,
    journal: Path | None = None,
    report: Callable[[SearchProgress], None] | None = None,
    run_job: RunJob | None = None,
) -> SearchResult:
    """Search until a budget of CPU seconds is spent, over all processes, that of a resumed journal
    included; without `keep_going` until the first finding.

    Runs with findings are kept below `out`. `run_job` runs a job in place of the worker pool.
    Raises KeyError for an unknown scenario or bug, ValueError for parameters that a scenario does
    not support, and for a journal of another search.
    """
    for name in terms.terms.bugs:
        bug(name)
    search = GuidedSearch(jobs_of_search(terms, out), seed=terms.seed, is_guided=terms.is_guided)
    course = _SearchCourse(search, terms, cpu_seconds, keep_going, report)
    book = None if journal is None else SearchJournal(journal, terms)
    try:
        if book is not None:
            course.resume(book)
        course.run(jobs, run_job)
    finally:
        if book is not None:
            book.close()
    return course.result()


def jobs_of_search(terms: SearchTerms, out: Path | None = None) -> list[CampaignJob]:
    """Return one job for each scenario of a search."""
    extensions = loadable()
    return [
        CampaignJob(
            name=name,
            seed=1,
            terms=terms.terms,
            out=None if out is None else str(out),
            extensions=extensions,
        )
        for name in terms.scenarios
    ]


def finding_of(result: RunResult) -> str:
    """Return what a run has found, in a few words: the same for runs with the same finding; empty
    if it has found nothing.
    """
    if result.invariants_violated:
        return ", ".join(result.invariants_violated)
    if result.outcome in (VIOLATED, FAILED):
        return without_numbers(result.trouble or result.outcome)[:120]
    return ""


class _SearchCourse:
    """A search in progress."""

    def __init__(
        self,
        search: GuidedSearch,
        terms: SearchTerms,
        cpu_seconds: float,
        keep_going: bool,
        report: Callable[[SearchProgress], None] | None,
    ) -> None:
        self._search = search
        self._terms = terms
        self._keep_going = keep_going
        self._report = report
        self._book: SearchJournal | None = None
        self._finished: list[FinishedRun] = []
        self._found: dict[str, SearchDiscovery] = {}
        self._progress = SearchProgress(
            budget_cpu_seconds=cpu_seconds, scenarios=len(terms.scenarios)
        )

    def resume(self, book: SearchJournal) -> None:
        """Learn from the runs of a journal, and append new ones to it."""
        self._book = book
        for run in book.finished:
            self._search.repeat(run.job, run.learnt)
            self._count(run)
        self._progress.resumed = len(book.finished)

    def run(self, jobs: int, run_job: RunJob | None) -> None:
        """Run until the budget is spent, or until a finding ends the search."""
        if run_job is not None:
            while not self._is_over:
                for job in self._search.next_job().each():
                    self._take(job, run_job(job))
            return
        with WorkerPool(jobs) as pool:
            while True:
                while pool.has_room and not self._is_over:
                    pool.give(self._search.next_job())
                if not pool.is_busy:
                    break
                for job, done in pool.take():
                    self._take(job, done)

    def result(self) -> SearchResult:
        """Return the result so far."""
        runs = self._finished
        sweeps = summary(self._terms.scenarios, [run.done for run in runs]).sweeps
        seeds = dict.fromkeys(self._terms.scenarios, 0)
        for run in runs:
            seeds[run.job.name] += run.job.variation is None
        return SearchResult(
            sweeps=sweeps,
            found=tuple(self._found.values()),
            runs=len(runs),
            variations=sum(run.job.variation is not None for run in runs),
            features=len(self._search.features),
            cpu_seconds=self._progress.cpu_seconds,
            unexercised=tuple(
                f"{sweep.scenario}: {invariant}"
                for sweep in sweeps
                for invariant in sweep.unexercised
                if seeds[sweep.scenario] >= EXERCISED_AFTER
            ),
        )

    @property
    def _is_over(self) -> bool:
        return self._progress.cpu_seconds >= self._progress.budget_cpu_seconds or (
            bool(self._found) and not self._keep_going
        )

    def _take(self, job: CampaignJob, done: JobDone) -> None:
        learnt = self._search.digest(job, done)
        self._search.learn(job, learnt)
        run = FinishedRun(job=job, done=replace(done, coverage=None), learnt=learnt)
        if self._book is not None:
            self._book.add(run)
        self._count(run)

    def _count(self, run: FinishedRun) -> None:
        self._finished.append(run)
        progress = self._progress
        progress.cpu_seconds += run.done.cpu_seconds
        progress.runs += 1
        progress.features = len(self._search.features)
        progress.tried = sum(bool(each.events) for each in self._search.records.values())
        finding = finding_of(run.done.result)
        if finding:
            known = self._found.get(finding)
            self._found[finding] = (
                replace(known, count=known.count + 1)
                if known is not None
                else SearchDiscovery(
                    finding=finding,
                    first=run.done.result,
                    is_variation=run.job.variation is not None,
                    count=1,
                    spent_cpu_seconds=progress.cpu_seconds,
                    spent_runs=progress.runs,
                )
            )
            progress.found = len(self._found)
        if self._report is not None:
            self._report(progress)

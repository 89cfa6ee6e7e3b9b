"""Judges mutants by the campaign alone: a search over all scenarios within a budget of CPU seconds
(`kraftsim campaign`), guided or plain, that knows nothing about the mutant.

A search with a mutant makes the same decisions as one without it, up to the first run that differs;
and a run that does not call the mutated function does not differ. So the search is made once
without a mutant, its runs are kept with the functions that they call, and with a mutant only the
runs that call its function are made. Each costs the search what it cost in CPU seconds, made or
not: the result is that of a whole search.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kraftsim.cluster.scenario import scenarios
from kraftsim.lab.campaign.guided import RunJob, SearchTerms, finding_of, guided_search
from kraftsim.lab.campaign.worker_pool import CampaignJob, JobDone, Terms, run_job_safely
from tools.mutants.mutant import Mutant
from tools.mutants.patching import applied
from tools.mutants.reached import noting
from tools.mutants.results import digest_of

GUIDED, PLAIN = "guided", "plain"
CLEAN_RUNS = Path("build") / "mutants" / "clean-runs.jsonl"
JUDGED = Path(__file__).parents[2] / "docs" / "mutants-campaign.json"
"""The results of the stage, in a file with one line per mutant, sorted by name."""


class CleanRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run without a mutant, and the places of the functions that it calls."""

    key: str
    done: JobDone
    reached: tuple[str, ...]


class SearchFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one search for one mutant or bug.

    `finding` is empty if it was not found; `cpu_seconds` and `runs` are those of the search until
    the finding, or all. `made` is how many runs were made, and `made_cpu_seconds` what these cost.
    """

    name: str
    way: str
    seed: int
    budget_cpu_seconds: float
    finding: str
    scenario: str
    run_seed: int
    is_variation: bool
    cpu_seconds: float
    runs: int
    made: int
    made_cpu_seconds: float
    digest: str = ""
    """Of the mutant's function and change, as in `tools.mutants.mutation_run.Finding`."""

    def line(self) -> str:
        """Return it as text for people."""
        what = (
            f"{self.finding} in {self.scenario} seed {self.run_seed}"
            if self.finding
            else "not found"
        )
        return (
            f"{self.name} {self.way}: {what}, run {self.runs}, {self.cpu_seconds:.1f} CPU s "
            f"({self.made} runs made, {self.made_cpu_seconds:.1f} s)"
        )


def search_terms(
    seed: int, *, is_guided: bool, release: str = "", bugs: tuple[str, ...] = ()
) -> SearchTerms:
    """Return the terms of a search over every scenario that supports the release."""
    return SearchTerms(
        terms=Terms(release=release, bugs=bugs),
        scenarios=tuple(
            each.identifier for each in scenarios() if not release or each.supports_release(release)
        ),
        seed=seed,
        is_guided=is_guided,
    )


def key_of(job: CampaignJob) -> str:
    """Return a key of a job: equal ones are the same run."""
    alike = replace(job, number=1, out=None, extensions=())
    return msgspec.json.encode(alike, order="sorted").decode()


class CleanRuns:
    """The runs without a mutant, in a file of JSON lines."""

    def __init__(self, path: Path = CLEAN_RUNS) -> None:
        """Read the file, if it exists; a torn last line is left out."""
        self._path = path
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1].splitlines()
        runs = (msgspec.json.decode(line, type=CleanRun) for line in whole)
        self._runs = {run.key: run for run in runs}

    def known(self, job: CampaignJob) -> CleanRun | None:
        """Return the run of a job; None if it was not made."""
        return self._runs.get(key_of(job))

    def add(self, job: CampaignJob, done: JobDone, reached: set[str]) -> None:
        """Keep a run."""
        run = CleanRun(key=key_of(job), done=done, reached=tuple(sorted(reached)))
        self._runs[run.key] = run
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(run) + b"\n")


def record_clean_runs(
    terms: SearchTerms, mutants: Sequence[Mutant], *, cpu_seconds: float, runs: CleanRuns
) -> tuple[str, ...]:
    """Make a search without a mutant, as far as its runs are not known; return what it finds: a
    mutant is not found by that.
    """
    with noting(mutants) as reached:

        def run_job(job: CampaignJob) -> JobDone:
            known = runs.known(job)
            if known is not None:
                return known.done
            reached.clear()
            done = run_job_safely(job)
            runs.add(job, done, reached)
            return done

        result = guided_search(terms, cpu_seconds=cpu_seconds, keep_going=True, run_job=run_job)
    return tuple(found.finding for found in result.found)


def search_for_mutant(
    mutant: Mutant, terms: SearchTerms, *, cpu_seconds: float, runs: CleanRuns
) -> SearchFinding:
    """Search with a mutant in place, until the first finding that the same run without it does not
    have.
    """
    with applied(mutant):
        found = _searched(mutant.name, terms, cpu_seconds, _OnlyWhereCalled(mutant.place, runs))
    return replace(found, digest=digest_of(mutant))


def search_for_bug(terms: SearchTerms, *, cpu_seconds: float) -> SearchFinding:
    """Search with the bugs of the terms switched on: every run is made."""
    return _searched(", ".join(terms.terms.bugs), terms, cpu_seconds, _Counted(run_job_safely))


class _Counted:
    """Makes runs, and counts them."""

    def __init__(self, run_job: RunJob) -> None:
        self.made = 0
        self.cpu_seconds = 0.0
        self._run_job = run_job

    def __call__(self, job: CampaignJob) -> JobDone:
        """Make a run."""
        done = self._run_job(job)
        self.made += 1
        self.cpu_seconds += done.cpu_seconds
        return done


class _OnlyWhereCalled(_Counted):
    """Makes the runs that call a function; of the others, returns those without a mutant."""

    def __init__(self, place: str, runs: CleanRuns) -> None:
        super().__init__(run_job_safely)
        self._place = place
        self._runs = runs

    def __call__(self, job: CampaignJob) -> JobDone:
        """Return the result of a run."""
        known = self._runs.known(job)
        if known is not None and finding_of(known.done.result):
            return _without_finding(known.done)
        if known is None or self._place in known.reached:
            return super().__call__(job)
        return known.done


def _without_finding(done: JobDone) -> JobDone:
    """Return a run that fails without the mutant, too, as one that proves nothing."""
    result = replace(
        done.result, outcome="unknown", violations=(), invariants_violated=(), trouble=None
    )
    return replace(done, result=result)


def _searched(
    name: str, terms: SearchTerms, cpu_seconds: float, run_job: _Counted
) -> SearchFinding:
    result = guided_search(terms, cpu_seconds=cpu_seconds, run_job=run_job)
    found = result.found[0] if result.found else None
    return SearchFinding(
        name=name,
        way=GUIDED if terms.is_guided else PLAIN,
        seed=terms.seed,
        budget_cpu_seconds=cpu_seconds,
        finding="" if found is None else found.finding,
        scenario="" if found is None else found.first.scenario,
        run_seed=0 if found is None else found.first.seed,
        is_variation=found is not None and found.is_variation,
        cpu_seconds=round(result.cpu_seconds, 2),
        runs=result.runs,
        made=run_job.made,
        made_cpu_seconds=round(run_job.cpu_seconds, 2),
    )


# --------------------------------------------------------------------------------------------------
# The results of the stage


def read_judged(path: Path = JUDGED) -> dict[str, SearchFinding]:
    """Return the stored results by name."""
    if not path.exists():
        return {}
    found = msgspec.json.decode(path.read_bytes(), type=list[SearchFinding])
    return {each.name: each for each in found}


def write_judged(found: Iterable[SearchFinding], path: Path = JUDGED) -> None:
    """Write all results."""
    lines = ",\n".join(
        msgspec.json.encode(each).decode() for each in sorted(found, key=lambda each: each.name)
    )
    path.write_text(f"[\n{lines}\n]\n")


def is_judged(mutant: Mutant, known: SearchFinding | None, cpu_seconds: float) -> bool:
    """Return whether a result is valid: for the same function and change, and either found or
    after a budget that is no smaller.
    """
    return (
        known is not None
        and known.digest == digest_of(mutant)
        and bool(known.finding or known.budget_cpu_seconds >= cpu_seconds)
    )

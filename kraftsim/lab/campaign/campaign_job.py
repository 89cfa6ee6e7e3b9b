"""One job of a campaign: a seed for a worker to run, the parameters that all seeds share, and the
result.
"""

import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.bugs.bug import bug
from kraftsim.lab.explore.record import replay_command
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.result import RunResult
from kraftsim.lab.explore.run import run_request

OK, VIOLATED, FAILED = "ok", "violated", "failed"


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


USUAL = Terms()


class CampaignJob(msgspec.Struct, frozen=True, kw_only=True):
    """One seed of a scenario.

    The caller that runs it determines the content of the directory `out`.
    """

    name: str
    seed: int
    terms: Terms = USUAL
    out: str | None = None

    @property
    def run(self) -> str:
        """The name of the run in a dataset: its scenario, seed and bugs."""
        return "-".join((self.name, str(self.seed), *self.terms.bugs))

    def request(self) -> RunRequest:
        """Return the request for the run.

        Raises KeyError for an unknown scenario, ValueError for parameters that it does not support.
        """
        terms = self.terms
        return RunRequest(
            scenario=scenario(self.name),
            mode=Mode.SIM,
            seed=self.seed,
            release=terms.release,
            bugs=terms.bugs,
            settings=dict(terms.settings),
            workload=dict(terms.workload),
            controllers=terms.controllers,
            brokers=terms.brokers,
        )


def jobs_of(
    names: Iterable[str], seeds: Iterable[int], terms: Terms, out: Path | None = None
) -> list[CampaignJob]:
    """Return the jobs for every seed of every scenario, seed by seed.

    Raises KeyError for an unknown scenario or bug, ValueError for parameters that a scenario does
    not support: before anything runs.
    """
    for name in terms.bugs:
        bug(name)
    chosen = [CampaignJob(name=name, seed=0, terms=terms).request().scenario.name for name in names]
    place = None if out is None else str(out)
    return [
        CampaignJob(name=name, seed=seed, terms=terms, out=place)
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

    @property
    def is_clean(self) -> bool:
        """Return whether there was no finding."""
        return self.result.outcome == OK

    @property
    def key(self) -> tuple[str, int]:
        """Scenario and seed."""
        return self.result.scenario, self.result.seed


def carry_out(job: CampaignJob) -> JobDone:
    """Run a seed.

    A run that is not clean is repeated, to be kept below `out`: runs are deterministic, and clean
    ones need no files.
    """
    began = time.process_time()
    request = job.request()
    result = run_request(request)
    if job.out is not None and result.outcome != OK:
        result = _kept(request, result, Path(job.out) / f"{job.name}-{job.seed}")
    return JobDone(result=result, cpu_seconds=time.process_time() - began)


def run_job_safely(job: CampaignJob) -> JobDone:
    """Run a seed.

    An exception in the harness itself is a finding, too, and does not stop the other seeds.
    """
    try:
        return carry_out(job)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return broken(
            job,
            f"{type(error).__name__} in the harness: {error} ({place.name}, line {place.lineno} "
            f"of {place.filename})",
        )


def broken(job: CampaignJob, trouble: str) -> JobDone:
    """Return the result of a seed that ended its worker or raised an exception in the harness."""
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
        out=None,
        command=replay_command(job.request()),
    )
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

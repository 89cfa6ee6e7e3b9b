"""One seed of a campaign: what a worker is asked to play, under the terms that all seeds share, and what it brings back."""

import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from kraftsim.bugs.bug import bug
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.explore.record import replay_command
from kraftsim.explore.request import RunRequest
from kraftsim.explore.result import RunResult
from kraftsim.explore.run import play_request

OK, VIOLATED, FAILED = "ok", "violated", "failed"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What all seeds of a campaign have in common. `workload` turns knobs of the scenarios; counts of nodes that are None are those of each story."""

    release: str = ""
    bugs: tuple[str, ...] = ()
    settings: Mapping[str, str] = {}
    workload: Mapping[str, int] = {}
    controllers: int | None = None
    brokers: int | None = None


USUAL = Terms()


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """One seed of a scenario. What belongs in the directory `out`, says whoever plays it."""

    name: str
    seed: int
    terms: Terms = USUAL
    out: str | None = None

    def request(self) -> RunRequest:
        """Return the run. Raises KeyError for a scenario that does not exist, ValueError for what it cannot be played with."""
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


def errands_of(names: Iterable[str], seeds: Iterable[int], terms: Terms, out: Path | None = None) -> list[Errand]:
    """Return every seed of every scenario, seed by seed.

    Raises KeyError for a scenario or a bug that does not exist, ValueError for what a scenario cannot be played with: before anything is played.
    """
    for name in terms.bugs:
        bug(name)
    chosen = [Errand(name=name, seed=0, terms=terms).request().scenario.name for name in names]
    place = None if out is None else str(out)
    return [Errand(name=name, seed=seed, terms=terms, out=place) for seed in seeds for name in chosen]


def names_of(errands: Sequence[Errand]) -> tuple[str, ...]:
    """Return the scenarios that errands are of, in their order."""
    return tuple(dict.fromkeys(errand.name for errand in errands))


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an errand, and what it cost."""

    result: RunResult
    cpu_seconds: float

    @property
    def is_clean(self) -> bool:
        """Tell whether nothing was found."""
        return self.result.outcome == OK

    @property
    def key(self) -> tuple[str, int]:
        """Scenario and seed."""
        return self.result.scenario, self.result.seed


def carry_out(errand: Errand) -> Done:
    """Play a seed. What is not clean is played a second time, to be kept below `out`: a run repeats itself, and clean ones need no files."""
    began = time.process_time()
    request = errand.request()
    result = play_request(request)
    if errand.out is not None and result.outcome != OK:
        result = _kept(request, result, Path(errand.out) / f"{errand.name}-{errand.seed}")
    return Done(result=result, cpu_seconds=time.process_time() - began)


def carry_out_carefully(errand: Errand) -> Done:
    """Play a seed. What breaks the harness itself is a finding, too, and no reason to lose the other seeds."""
    try:
        return carry_out(errand)
    except Exception as trouble:
        place = traceback.extract_tb(trouble.__traceback__)[-1]
        return broken(errand, f"{type(trouble).__name__} in the harness: {trouble} ({place.name}, line {place.lineno} of {place.filename})")


def broken(errand: Errand, trouble: str) -> Done:
    """Return what there is to say of a seed that ended its worker or broke the harness."""
    result = RunResult(
        scenario=errand.name,
        mode=Mode.SIM.value,
        seed=errand.seed,
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
        command=replay_command(errand.request()),
    )
    return Done(result=result, cpu_seconds=0.0)


def _kept(request: RunRequest, first: RunResult, out: Path) -> RunResult:
    if (out / "run.json").exists():
        return msgspec.structs.replace(first, out=str(out))
    again = play_request(request, out)
    if again.events_sha256 == first.events_sha256:
        return again
    return msgspec.structs.replace(again, trouble=f"the run did not repeat itself: {first.events_sha256} and {again.events_sha256} ({again.trouble})")

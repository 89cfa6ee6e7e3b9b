"""One seed of a campaign: what a worker is asked to play, and what it brings back."""

import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.explore.request import RunRequest
from kraftsim.explore.result import RunResult
from kraftsim.explore.run import play_request
from kraftsim.releases.catalogue import DEFAULT_RELEASE

OK, VIOLATED, FAILED = "ok", "violated", "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Errand:
    """One seed of a scenario. With `out` the run is kept there if it is not clean, in a directory of its own."""

    name: str
    seed: int
    release: str = DEFAULT_RELEASE
    bugs: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    workload: Mapping[str, int] = field(default_factory=dict)
    out: Path | None = None

    def request(self) -> RunRequest:
        """Return the run. Raises KeyError for a scenario that does not exist, ValueError for a knob that it does not have."""
        return RunRequest(
            scenario=scenario(self.name),
            mode=Mode.SIM,
            seed=self.seed,
            release=self.release,
            bugs=self.bugs,
            settings=dict(self.settings),
            workload=dict(self.workload),
        )


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
    """Play a seed. What is not clean is played a second time to be kept: a run repeats itself, and clean ones need no files."""
    began = time.process_time()
    request = errand.request()
    result = play_request(request)
    if errand.out is not None and result.outcome != OK:
        result = _kept(request, result, errand.out / f"{errand.name}-{errand.seed}")
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
        command=f"kraftsim scenario {errand.name} --mode sim --seed {errand.seed}",
    )
    return Done(result=result, cpu_seconds=0.0)


def _kept(request: RunRequest, first: RunResult, out: Path) -> RunResult:
    if (out / "run.json").exists():
        return msgspec.structs.replace(first, out=str(out))
    again = play_request(request, out)
    if again.events_sha256 == first.events_sha256:
        return again
    return msgspec.structs.replace(again, trouble=f"the run did not repeat itself: {first.events_sha256} and {again.events_sha256} ({again.trouble})")

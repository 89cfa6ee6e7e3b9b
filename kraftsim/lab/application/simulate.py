"""`kraftsim.simulate`: runs an application, or a simulation test, in virtual time from Python.

    result = kraftsim.simulate(transform, seed=7, cluster={"brokers": 3, "release": "4.1"})
    result.raise_if_failed()

The run is isolated (`kraftsim.lab.explore.isolated`): the function is imported from its file by
another process, so it must be at the top level of a module, and a script must guard what it starts
with `if __name__ == "__main__":`.
"""

import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar, Unpack

from kraftsim.clients.events import FactStated
from kraftsim.cluster.scenario import REFERENCE_SIGN, Mode, scenario
from kraftsim.events.event import Event
from kraftsim.lab.application.options import options_of
from kraftsim.lab.application.run import INSTANCES, PARTITIONS, WORK_MS
from kraftsim.lab.explore.isolated import CONSOLE_FILE
from kraftsim.lab.explore.record import REPLAY_FILE, RunResult
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.lab.faults.fault import Fault

if TYPE_CHECKING:
    from kraftsim.invariants.invariant import Envelope

E = TypeVar("E", bound=Event)
OK: Final = "ok"
CONSOLE_LINES: Final = 15
"""How many lines of what the code printed a failure shows."""
SHRINK_SECONDS: Final = 30.0


class SimulationFailed(AssertionError):
    """A simulation violated an invariant, or its test or application failed."""


class SimulationResult:
    """One finished simulation."""

    def __init__(
        self,
        request: RunRequest,
        result: RunResult,
        directory: Path,
        temporary: "tempfile.TemporaryDirectory[str] | None",
    ) -> None:
        self.request = request
        self.result = result
        self.directory = directory
        """Where run.json, replay.json, event logs, disks and console.log are."""
        self._temporary = temporary  # deleted with this object

    def __repr__(self) -> str:
        return f"<{self.request.scenario.name}, seed {self.seed}: {self.result.outcome}>"

    @property
    def seed(self) -> int:
        """The seed."""
        return self.request.seed

    @property
    def is_ok(self) -> bool:
        """Whether no invariant was violated and nothing failed."""
        return self.result.outcome == OK

    @property
    def violations(self) -> tuple[str, ...]:
        """Violated invariants and failed assertions, one line each."""
        return self.result.violations

    @property
    def failure(self) -> str | None:
        """What ended the run early, or None."""
        return self.result.trouble

    @property
    def console(self) -> str:
        """What the code printed and logged."""
        file = self.directory / CONSOLE_FILE
        return file.read_text(errors="replace") if file.exists() else ""

    def events(self, kind: type[E]) -> "list[tuple[Envelope, E]]":
        """Return the events of one kind in order of time, or with `Event` all of them."""
        from kraftsim.lab.explore.over_sockets import read_events

        found = read_events(self.directory / "events")
        return [(envelope, event) for envelope, event in found if isinstance(event, kind)]

    def facts(self, name: str = "") -> list[FactStated]:
        """Return the facts that were stated, in order of time; of one name, if given."""
        stated = [event for _, event in self.events(FactStated)]
        return [fact for fact in stated if name in ("", fact.name)]

    def shrink(self, budget_seconds: float = SHRINK_SECONDS) -> str:
        """Reduce a failing run to the smallest that still fails, keep it in `directory`/small, and
        return its description.

        Raises NotFailing for a run that does not fail.
        """
        from kraftsim.lab.explore.description import keep
        from kraftsim.lab.explore.shrink import shrink

        shrunken = shrink(self.request, budget_seconds=budget_seconds)
        return keep(shrunken, self.request, self.directory / "small")

    def raise_if_failed(self) -> None:
        """Raise SimulationFailed, with what failed and how to repeat it, unless it is ok."""
        if not self.is_ok:
            raise SimulationFailed("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """Return the result as text for people."""
        name = self.request.scenario.name
        text = [f"{name}, seed {self.seed}: {self.result.outcome}"]
        text += [f"  violated: {violation}" for violation in self.violations]
        if self.failure is not None:
            text.append(f"  failed: {self.failure}")
        if not self.is_ok:
            text.append(f"  replay: kraftsim replay {self.directory / REPLAY_FILE}")
            text += [f"  printed: {line}" for line in self.console.splitlines()[-CONSOLE_LINES:]]
        return text


def reference_of(function: Callable[..., object]) -> str:
    """Return FILE.py::FUNCTION for a function. Raises ValueError for one that another process
    cannot import.
    """
    qualified = function.__qualname__
    if "<" in qualified:
        raise ValueError(
            f"{qualified} must be a function at the top level of a module: another process imports "
            "it"
        )
    file = inspect.getsourcefile(function)
    if file is None:
        raise ValueError(f"{qualified} has no source file: another process imports it from there")
    return f"{_shown(Path(file))}{REFERENCE_SIGN}{qualified.replace('.', REFERENCE_SIGN)}"


def _shown(path: Path) -> Path:
    """Return a path relative to the current directory if it is below that."""
    here = Path.cwd()
    return path.resolve().relative_to(here) if path.resolve().is_relative_to(here) else path


class ClusterArguments(TypedDict, total=False):
    """The cluster of a simulation; `settings` are Kafka's properties for all nodes."""

    brokers: int
    controllers: int
    release: str
    settings: Mapping[str, object]


class RunArguments(TypedDict, total=False):
    """What a simulation changes of what its function declares.

    `faults`: drawn from the seed, none (False), or these. `topics` (name -> partitions) are created
    for an application, `instances` of it are started, and faults fall within `fault_seconds`.
    `bugs` are those of `kraftsim list bugs`.
    """

    faults: bool | Sequence[Fault]
    cluster: ClusterArguments
    topics: Mapping[str, int]
    instances: int
    fault_seconds: float
    bugs: Sequence[str]


def request_of(
    function: Callable[..., object], *, seed: int, **options: Unpack[RunArguments]
) -> RunRequest:
    """Return the request for a simulation. Raises ValueError or KeyError, one line."""
    options_of(function)  # an error in them is this caller's
    cluster = options.get("cluster", ClusterArguments())
    _require_known("cluster", cluster, ClusterArguments.__annotations__)
    _require_known("simulate", options, RunArguments.__annotations__)
    workload = {f"{PARTITIONS}{topic}": count for topic, count in options.get("topics", {}).items()}
    if "instances" in options:
        workload[INSTANCES] = options["instances"]
    if "fault_seconds" in options:
        workload[WORK_MS] = int(options["fault_seconds"] * 1000)
    faults = options.get("faults", True)
    return RunRequest(
        scenario=scenario(reference_of(function)),
        mode=Mode.SIM,
        seed=seed,
        release=cluster.get("release", ""),
        bugs=tuple(options.get("bugs", ())),
        settings={key: str(value) for key, value in cluster.get("settings", {}).items()},
        faults=None if faults is True else () if faults is False else tuple(faults),
        workload=workload,
        controllers=cluster.get("controllers"),
        brokers=cluster.get("brokers"),
    )


def _require_known(what: str, given: Mapping[str, object], known: Iterable[str]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ValueError(f"{what} has no option {unknown[0]} (it has: {', '.join(known)})")


def simulate(
    function: Callable[..., object],
    *,
    seed: int = 1,
    out: Path | str | None = None,
    **options: Unpack[RunArguments],
) -> SimulationResult:
    """Run an application (`async def app(host)`) or a simulation test (`async def
    test(simulation)`) once, and return the result. A seed gives the same events, byte for byte.

    `options` are faults, cluster, topics, instances, fault_seconds and bugs: see RunArguments. What
    is not given is as the function declares it (`kraftsim.application`, or its marker). With `out`
    the directory of the run is kept there.

    Raises ValueError or KeyError, one line, for what cannot be run, FileExistsError if `out` has a
    run already.
    """
    request = request_of(function, seed=seed, **options)
    return _finished(request, None if out is None else Path(out))


def _finished(request: RunRequest, out: Path | None) -> SimulationResult:
    temporary = tempfile.TemporaryDirectory(prefix="kraftsim-") if out is None else None
    directory = Path(temporary.name) / "run" if temporary is not None else out
    assert directory is not None, "one of both"
    return SimulationResult(request, run_request(request, directory), directory, temporary)


@dataclass(frozen=True, kw_only=True)
class SimulatedSeeds:
    """The results of many seeds, in their order, and the first run that failed."""

    results: tuple[RunResult, ...]
    failed: SimulationResult | None

    def raise_if_failed(self) -> None:
        """Raise SimulationFailed for the seed that failed, if one did."""
        if self.failed is not None:
            self.failed.raise_if_failed()


def simulate_seeds(
    function: Callable[..., object],
    *,
    seeds: int | Iterable[int] = 20,
    jobs: int | None = None,
    out: Path | str | None = None,
    keep_going: bool = False,
    on_seed: Callable[[RunResult], object] = lambda result: None,
    **options: Unpack[RunArguments],
) -> SimulatedSeeds:
    """Run many seeds (a number: from 1 on), `jobs` at a time (as many as there are processors),
    until one fails, or all with `keep_going`. Which seed fails first does not depend on `jobs`.

    `options` are those of `simulate`. `on_seed` is called after each seed, in their order. The
    first run that failed is kept in `out`/NAME-SEED.
    """
    chosen = list(range(1, seeds + 1) if isinstance(seeds, int) else seeds)
    request = request_of(function, seed=0, **options)
    requests = [_of_seed(request, seed) for seed in chosen]
    results: list[RunResult] = []
    failed: SimulationResult | None = None
    for result in _in_order(requests, jobs or os.cpu_count() or 1):
        results.append(result)
        on_seed(result)
        if result.outcome != OK and failed is None:
            place = None if out is None else Path(out) / f"{request.scenario.name}-{result.seed}"
            failed = _finished(_of_seed(request, result.seed), place)
            if not keep_going:
                break
    return SimulatedSeeds(results=tuple(results), failed=failed)


def _of_seed(request: RunRequest, seed: int) -> RunRequest:
    return replace(request, seed=seed)


def _in_order(requests: Sequence[RunRequest], jobs: int) -> Iterator[RunResult]:
    """Yield the results in the order of the requests; no more are begun than are needed."""
    with ThreadPoolExecutor(jobs) as pool:
        waiting: list[Future[RunResult]] = []
        left = iter(requests)
        try:
            for request in left:
                waiting.append(pool.submit(run_request, request))
                if len(waiting) > jobs:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()

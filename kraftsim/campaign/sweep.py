"""Plays a scenario over many seeds, on all processors, and collects what was found."""

import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kraftsim.explore.result import RunResult
from kraftsim.explore.run import play

SEEDS_AHEAD = 2
"""How many seeds wait for each worker, so that none is idle and a finding stops the sweep soon."""


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep found. `found` holds the runs that were not clean; `faults` sums armed, fired and bit over all seeds."""

    scenario: str
    seeds_played: int
    clean: int
    found: tuple[RunResult, ...]
    faults: dict[str, tuple[int, int, int]]
    simulated_seconds: float
    idle_kinds: tuple[str, ...]

    @property
    def violations(self) -> tuple[str, ...]:
        """One line for each violation, with its seed."""
        return tuple(f"seed {run.seed}: {line}" for run in self.found for line in run.violations)

    @property
    def troubles(self) -> tuple[str, ...]:
        """One line for each run that broke off without a violated invariant."""
        return tuple(f"seed {run.seed}: {run.trouble}" for run in self.found if run.trouble is not None and not run.violations)

    def lines(self) -> list[str]:
        """Return the result as text for people."""
        text = [f"{self.scenario}: {self.seeds_played} seeds, {self.clean} clean, {self.simulated_seconds:.0f} simulated seconds"]
        for kind, (armed, fired, bit) in self.faults.items():
            text.append(f"  fault {kind}: {armed} armed, {fired} fired, {bit} bit")
        text += [f"  fault {kind} never bit: this sweep says nothing about it" for kind in self.idle_kinds]
        for run in self.found:
            text.append(f"  seed {run.seed}: {', '.join(run.invariants_violated) or run.outcome}")
            text += [f"    {line}" for line in run.violations[:3]]
            if run.trouble is not None:
                text.append(f"    {run.trouble}")
            text.append(f"    replay: {run.command}")
        return text


@dataclass(frozen=True, slots=True)
class Errand:
    """One seed for a worker."""

    name: str
    seed: int
    release: str | None
    bugs: tuple[str, ...]
    settings: Mapping[str, str]
    out: Path | None


def sweep(
    name: str,
    *,
    seeds: Sequence[int],
    workers: int | None = None,
    keep_going: bool = False,
    out: Path | None = None,
    release: str | None = None,
    bugs: tuple[str, ...] = (),
    settings: Mapping[str, str] | None = None,
    advance: Callable[[int], None] | None = None,
) -> SweepResult:
    """Play every seed in simulation and return what was found. Without `keep_going` no new seed is begun after the first violation.

    `advance(1)` is called for each seed that is done. With `out` the runs that were not clean are kept there, one directory a seed.
    """
    errands = [Errand(name, seed, release, bugs, dict(settings or {}), out) for seed in seeds]
    count = min(workers or os.cpu_count() or 1, max(len(errands), 1))
    results: list[RunResult] = []
    for result in _carry_out(errands, count):
        results.append(result)
        if advance is not None:
            advance(1)
        if result.violations and not keep_going:
            break
    return _summary(name, results)


def _carry_out(errands: Sequence[Errand], workers: int) -> Iterator[RunResult]:
    """Yield results in the order of the seeds, so that the first finding of a sweep is always the same one."""
    if workers == 1:
        yield from map(_play, errands)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = []
        left = iter(errands)
        try:
            for errand in left:
                waiting.append(pool.submit(_play, errand))
                if len(waiting) >= workers * SEEDS_AHEAD:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _play(errand: Errand) -> RunResult:
    out = None if errand.out is None else errand.out / f"seed-{errand.seed}"
    result = play(errand.name, mode="sim", seed=errand.seed, out=out, release=errand.release, bugs=errand.bugs, settings=errand.settings)
    if out is not None and result.outcome == "ok":
        shutil.rmtree(out)
    return result


def _summary(name: str, results: Sequence[RunResult]) -> SweepResult:
    faults: dict[str, tuple[int, int, int]] = {}
    for result in results:
        for kind, (armed, fired, bit) in result.faults.items():
            before = faults.get(kind, (0, 0, 0))
            faults[kind] = (before[0] + armed, before[1] + fired, before[2] + bit)
    found = tuple(result for result in results if result.outcome != "ok")
    return SweepResult(
        scenario=name,
        seeds_played=len(results),
        clean=len(results) - len(found),
        found=found,
        faults=dict(sorted(faults.items())),
        simulated_seconds=sum(result.seconds for result in results),
        idle_kinds=tuple(kind for kind, (_, _, bit) in sorted(faults.items()) if bit == 0),
    )

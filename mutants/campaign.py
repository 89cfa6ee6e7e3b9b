"""Hunts many mutants, each in a process of its own, and controls that the seeds that found them are clean without a mutant."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import msgspec

from mutants.hunt import Finding
from mutants.mutant import Mutant
from mutants.results import digest_of

CONTROLS_AT_A_TIME = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """When a hunt is given up: after so many runs, or so much processor time."""

    runs: int
    cpu_seconds: float


class HuntFailed(RuntimeError):
    """The process of a hunt ended without a result; the message is what it wrote last."""


def hunt_all(chosen: Sequence[Mutant], budget: Budget, *, jobs: int, done: Callable[[Finding], None]) -> None:
    """Hunt the mutants side by side; `done` hears of each as soon as it is over. Raises HuntFailed."""
    orders = ([each.name, str(budget.runs), str(budget.cpu_seconds)] for each in chosen)
    for said in _side_by_side(orders, jobs):
        done(msgspec.json.decode(said, type=Finding))


def unclean_controls(findings: Sequence[Finding], releases: Mapping[str, str], *, jobs: int) -> list[tuple[str, str, int]]:
    """Play every (release, story, seed) that found something without any mutant, and return those that are not green. Raises HuntFailed."""
    played = sorted({(releases[each.name], each.scenario, each.seed) for each in findings if each.is_found})
    pieces = [played[first : first + CONTROLS_AT_A_TIME] for first in range(0, len(played), CONTROLS_AT_A_TIME)]
    orders = (["--control", *(f"{release}/{story}/{seed}" for release, story, seed in piece)] for piece in pieces)
    return sorted(each for said in _side_by_side(orders, jobs) for each in msgspec.json.decode(said, type=list[tuple[str, str, int]]))


def kept(chosen: Sequence[Mutant], known: Mapping[str, Finding]) -> dict[str, Finding]:
    """Return the results that are still results of these mutants: neither the function nor the change is another one, and something broke."""
    return {each.name: known[each.name] for each in chosen if each.name in known and _holds(each, known[each.name])}


def _holds(mutant: Mutant, finding: Finding) -> bool:
    return finding.digest == digest_of(mutant) and finding.is_found != bool(mutant.equivalent)


def _side_by_side(orders: Iterator[list[str]], jobs: int) -> Iterator[bytes]:
    """Yield what the processes print, in the order in which they end."""
    with ThreadPoolExecutor(jobs) as threads:
        waiting: set[Future[bytes]] = set()
        for order in orders:
            waiting.add(threads.submit(_in_a_process, order))
            if len(waiting) >= jobs:
                over, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in over)
        while waiting:
            over, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (each.result() for each in over)


def _in_a_process(arguments: list[str]) -> bytes:
    done = subprocess.run([sys.executable, "-m", "mutants.one", *arguments], capture_output=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise HuntFailed(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}")
    return lines[-1]

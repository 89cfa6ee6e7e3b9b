"""Plays candidates of a smaller run: remembers what it has seen, counts what it costs, uses several processes, and stops at a budget.

Which candidate is taken does not depend on how many processes there are: of those that fail it is always the first one.
"""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import msgspec

from kraftsim.explore.probe import Finding, Seen, probe
from kraftsim.explore.request import RunRequest
from kraftsim.faults.fault import Fault

PATIENCE: Final = 1.5
"""A candidate that has not failed when it is so many times as late as the run that it comes from, and a little, counts as one that does not."""
PATIENCE_NS: Final = 1_000_000_000


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """What shrinking makes smaller."""

    faults: tuple[Fault, ...]
    workload: Mapping[str, int]
    controllers: int
    brokers: int

    @property
    def key(self) -> bytes:
        """Name the candidate; equal ones have equal keys."""
        return msgspec.json.encode(self, order="sorted")

    def request(self, base: RunRequest) -> RunRequest:
        """Return the request that plays it; all else is as in the run that is shrunk."""
        return replace(base, faults=self.faults, workload=self.workload, controllers=self.controllers, brokers=self.brokers)


class BudgetSpent(Exception):
    """The CPU seconds that were given are used up."""


@dataclass(slots=True)
class Cost:
    """What was spent so far. `runs` were played, `remembered` needed no playing."""

    runs: int = 0
    remembered: int = 0
    cpu_seconds: float = 0.0


class Trials:
    """Candidates of one run, and the finding that each must still show."""

    def __init__(
        self, base: RunRequest, wanted: Finding, *, pool: ProcessPoolExecutor | None, jobs: int, budget_seconds: float, told: Callable[[Cost], None]
    ) -> None:
        self.cost = Cost()
        self.patience_ns: int | None = None
        """A virtual time that no candidate is played beyond."""
        self._base = base
        self._wanted = wanted
        self._pool = pool
        self._jobs = jobs
        self._budget_seconds = budget_seconds
        self._told = told
        self._outcomes: dict[bytes, Seen] = {}

    def first_that_fails(self, candidates: Iterable[Candidate]) -> tuple[int, Candidate, Seen] | None:
        """Return the first candidate that still shows the finding, its place, and what was seen of it; None if none does. Raises BudgetSpent."""
        waiting = enumerate(candidates)
        while batch := list(islice(waiting, self._jobs)):
            known = frozenset(self._outcomes)  # for membership only, never iterated
            for (place, candidate), seen in zip(batch, self._play([each for _, each in batch]), strict=True):
                if self._wanted in seen.found:
                    self._forget([each for later, each in batch if later > place and each.key not in known])
                    self._be_patient_with(seen)
                    return place, candidate, seen
        return None

    def _forget(self, candidates: Iterable[Candidate]) -> None:
        """Forget what one process alone would not have played."""
        for each in candidates:
            self._outcomes.pop(each.key, None)

    def _be_patient_with(self, seen: Seen) -> None:
        found_at_ns = seen.at_ns(self._wanted)
        assert found_at_ns is not None, "it failed"
        self.patience_ns = int(found_at_ns * PATIENCE) + PATIENCE_NS

    def _play(self, batch: list[Candidate]) -> list[Seen]:
        """Return what is seen of each candidate, from memory where it was played before."""
        new = {each.key: each for each in batch if each.key not in self._outcomes}
        self.cost.remembered += len(batch) - len(new)
        if new and self.cost.cpu_seconds >= self._budget_seconds:
            raise BudgetSpent
        for key, seen in zip(new, self._probes([each.request(self._base) for each in new.values()]), strict=True):
            self._outcomes[key] = seen
            self.cost.runs += 1
            self.cost.cpu_seconds += seen.cpu_seconds
            self._told(self.cost)
        return [self._outcomes[each.key] for each in batch]

    def _probes(self, requests: list[RunRequest]) -> Iterator[Seen]:
        if self._pool is None or len(requests) == 1:
            yield from (probe(request, wanted=self._wanted, until_ns=self.patience_ns) for request in requests)
            return
        futures = [self._pool.submit(probe, request, wanted=self._wanted, until_ns=self.patience_ns) for request in requests]
        yield from (future.result() for future in futures)


@contextmanager
def processes(jobs: int) -> Iterator[ProcessPoolExecutor | None]:
    """Give a pool of processes, or none where one job needs no other process."""
    if jobs == 1:
        yield None
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool

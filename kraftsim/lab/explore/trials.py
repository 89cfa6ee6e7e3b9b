"""Runs candidates of a smaller run: caches results, counts costs, uses several processes, and stops
at a budget.

The chosen candidate does not depend on the number of processes: of those that fail it is always the
first one.
"""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import msgspec

from kraftsim.lab.explore.probe import ProbeFinding, Seen, probe
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.faults.fault import Fault

PATIENCE: Final = 1.5
"""A candidate that has not failed by this multiple of the original run's time to failure, and a
little more, counts as not failing.
"""
PATIENCE_NS: Final = 1_000_000_000


class TrialCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a run that shrinking reduces."""

    faults: tuple[Fault, ...]
    workload: Mapping[str, int]
    controllers: int
    brokers: int

    @property
    def key(self) -> bytes:
        """Return a key of the candidate; equal ones have equal keys."""
        return msgspec.json.encode(self, order="sorted")

    def request(self, base: RunRequest) -> RunRequest:
        """Return the request for it; all else is as in the original run."""
        return replace(
            base,
            faults=self.faults,
            workload=self.workload,
            controllers=self.controllers,
            brokers=self.brokers,
        )


class BudgetSpent(Exception):
    """The budget of CPU seconds is spent."""


@dataclass(slots=True)
class Cost:
    """The costs so far. `runs` were executed, `remembered` were in the cache."""

    runs: int = 0
    remembered: int = 0
    cpu_seconds: float = 0.0


class Trials:
    """Candidates of one run, and the finding that each must still show."""

    def __init__(
        self,
        base: RunRequest,
        wanted: ProbeFinding,
        *,
        pool: ProcessPoolExecutor | None,
        jobs: int,
        budget_seconds: float,
        on_cost: Callable[[Cost], None],
    ) -> None:
        self.cost = Cost()
        self.patience_ns: int | None = None
        """The limit of virtual time of every candidate."""
        self._base = base
        self._wanted = wanted
        self._pool = pool
        self._jobs = jobs
        self._budget_seconds = budget_seconds
        self._on_cost = on_cost
        self._outcomes: dict[bytes, Seen] = {}

    def first_that_fails(
        self, candidates: Iterable[TrialCandidate]
    ) -> tuple[int, TrialCandidate, Seen] | None:
        """Return the first candidate that still shows the finding, its position, and its result;
        None if none does.

        Raises BudgetSpent.
        """
        waiting = enumerate(candidates)
        while batch := list(islice(waiting, self._jobs)):
            known = frozenset(self._outcomes)  # for membership only, never iterated
            for (place, candidate), seen in zip(
                batch, self._run([each for _, each in batch]), strict=True
            ):
                if self._wanted in seen.found:
                    self._forget(
                        [each for later, each in batch if later > place and each.key not in known]
                    )
                    self._be_patient_with(seen)
                    return place, candidate, seen
        return None

    def _forget(self, candidates: Iterable[TrialCandidate]) -> None:
        """Drop the results that a single process would not have computed."""
        for each in candidates:
            self._outcomes.pop(each.key, None)

    def _be_patient_with(self, seen: Seen) -> None:
        found_at_ns = seen.at_ns(self._wanted)
        assert found_at_ns is not None, "it failed"
        self.patience_ns = int(found_at_ns * PATIENCE) + PATIENCE_NS

    def _run(self, batch: list[TrialCandidate]) -> list[Seen]:
        """Return the result of each candidate, from the cache if it was run before."""
        new = {each.key: each for each in batch if each.key not in self._outcomes}
        self.cost.remembered += len(batch) - len(new)
        if new and self.cost.cpu_seconds >= self._budget_seconds:
            raise BudgetSpent
        for key, seen in zip(
            new, self._probes([each.request(self._base) for each in new.values()]), strict=True
        ):
            self._outcomes[key] = seen
            self.cost.runs += 1
            self.cost.cpu_seconds += seen.cpu_seconds
            self._on_cost(self.cost)
        return [self._outcomes[each.key] for each in batch]

    def _probes(self, requests: list[RunRequest]) -> Iterator[Seen]:
        if self._pool is None or len(requests) == 1:
            yield from (
                probe(request, wanted=self._wanted, until_ns=self.patience_ns)
                for request in requests
            )
            return
        futures = [
            self._pool.submit(probe, request, wanted=self._wanted, until_ns=self.patience_ns)
            for request in requests
        ]
        yield from (future.result() for future in futures)


@contextmanager
def processes(jobs: int) -> Iterator[ProcessPoolExecutor | None]:
    """Return a pool of processes, or None for a single job."""
    if jobs == 1:
        yield None
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool

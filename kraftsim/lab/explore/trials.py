"""Runs candidates of a smaller run: whether each still fails in the same way, with cached results,
counted costs and several processes.
"""

import multiprocessing
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import msgspec

from kraftsim.events.event import Event
from kraftsim.extensions import load, loadable
from kraftsim.invariants.invariant import Envelope, Oracle
from kraftsim.lab.explore import isolated
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.virtual import VirtualRun, set_up
from kraftsim.lab.faults.fault import Fault, OnEvent
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated import Simulation

# --------------------------------------------------------------------------------------------------
# Runs a request to find out only whether it still fails in the same way
#
# Nothing is written, and the run ends as soon as that is known.

NANOSECONDS: Final = 1_000_000_000
FRAME_EVENTS: Final = "kraftsim.frame.events"
FRAME_KINDS: Final = ("FrameSent", "FrameReceived")
LIVENESS: Final = "recovers-after-heal"
"""The one invariant with several kinds of violations: the message has what did not settle."""


class ProbeFinding(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The way in which a run failed: an invariant was violated, or the scenario was aborted.

    `trouble` is a message without its numbers: of what aborted the scenario, or of what did not
    settle.
    """

    invariant: str | None = None
    trouble: str | None = None

    def __str__(self) -> str:
        return ": ".join(each for each in (self.invariant, self.trouble) if each is not None)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a probe.

    `found` is in order of time; `cut_by` is what ended the run before the scenario returned, None
    if nothing did; `fired` are positions in the schedule in order of firing, with the targets
    `affected`.
    """

    found: tuple[ProbeFinding, ...]
    cut_by: ProbeFinding | None
    found_at_ns: tuple[int, ...]
    messages: tuple[str, ...]
    fired: tuple[int, ...]
    affected: tuple[str, ...]
    fired_at_ns: tuple[int, ...]
    ended_at_ns: int
    cpu_seconds: float

    def at_ns(self, finding: ProbeFinding) -> int | None:
        """Return the time at which a finding was first made; None if it was not."""
        return self.found_at_ns[self.found.index(finding)] if finding in self.found else None


def probe(
    request: RunRequest, *, wanted: ProbeFinding | None = None, until_ns: int | None = None
) -> Seen:
    """Run a request until its end, until the wanted finding is made, or until a virtual time: a run
    that has not failed by then counts as ok.

    A finding that ends a full run ends a probe, too, wanted or not: so a probe never finds more
    than the run itself.
    """
    if isolated.needs_isolation(request):
        return _isolated_probe(request, ProbeLimits(wanted=wanted, until_ns=until_ns))
    began = time.process_time()
    request = _without_frames(request)
    with request.simulation() as simulation:
        watch = _Watch(simulation, request, wanted)
        run = set_up(request, simulation)
        limit_s = request.scenario.limit_seconds
        is_limited = until_ns is not None and until_ns < limit_s * NANOSECONDS
        trouble = run.run(
            until_ns / NANOSECONDS if until_ns is not None and is_limited else limit_s
        )
        reached_limit = (
            is_limited and trouble is not None and trouble.startswith("SimulationTimeLimit")
        )
        if not reached_limit:
            _finish(run, watch, trouble)
        fired = _fired(run.schedule.injections)
        return Seen(
            found=tuple(watch.found),
            found_at_ns=tuple(watch.found.values()),
            messages=tuple(watch.messages.values()),
            cut_by=watch.cut_by,
            fired=tuple(place for place, _ in fired),
            affected=tuple(injection.target for _, injection in fired),
            fired_at_ns=tuple(injection.fired_at_ns or 0 for _, injection in fired),
            ended_at_ns=simulation.now_ns,
            cpu_seconds=time.process_time() - began,
        )


class ProbeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Where a probe ends: see `probe`."""

    wanted: ProbeFinding | None
    until_ns: int | None


def _isolated_probe(request: RunRequest, limits: ProbeLimits) -> Seen:
    """Probe code from outside: see `kraftsim.lab.explore.isolated`."""
    task = f"{__name__}:{probe_as_data.__name__}"
    answer = isolated.call(task, request, msgspec.json.encode(limits))
    return msgspec.json.decode(answer, type=Seen)


def probe_as_data(request: RunRequest, limits: bytes) -> bytes:
    """Probe a request within ProbeLimits, given as JSON, and return the result as JSON."""
    chosen = msgspec.json.decode(limits, type=ProbeLimits)
    return msgspec.json.encode(probe(request, wanted=chosen.wanted, until_ns=chosen.until_ns))


def without_numbers(message: str) -> str:
    """Return a message without its numbers: two losses of liveness are of one kind if they differ
    in numbers only.
    """
    return re.sub(r"\d+(\.\d+)?", "#", message)


def _without_frames(request: RunRequest) -> RunRequest:
    """Return the request with fewer events in its log: no node acts on them, and they cost a fifth
    of a run.
    """
    if any(
        isinstance(fault.trigger, OnEvent) and fault.trigger.kind in FRAME_KINDS
        for fault in request.schedule()
    ):
        return request
    return replace(request, settings={**request.settings, FRAME_EVENTS: "false"})


def _finding(invariant: str, message: str) -> ProbeFinding:
    return ProbeFinding(
        invariant=invariant, trouble=without_numbers(message) if invariant == LIVENESS else None
    )


def _finish(run: VirtualRun, watch: "_Watch", trouble: str | None) -> None:
    """Make the findings that only the end of a run shows."""
    simulation = run.simulation
    for each in simulation.violations:
        assert each.at_ns is not None, "the simulation recorded it"
        watch.emit(_finding(each.invariant, each.message), each.at_ns, each.message)
        watch.cut_by = watch.cut_by or _finding(each.invariant, each.message)
    if trouble is not None:
        watch.emit(ProbeFinding(trouble=without_numbers(trouble)), simulation.now_ns, trouble)
        watch.cut_by = watch.cut_by or ProbeFinding(trouble=without_numbers(trouble))
    if watch.is_content:
        return
    if trouble is None or not simulation.violations:
        run.finish()
    else:
        run.emit_disks()
    for verdict in watch.oracle.finish():
        for violation in verdict.violations[:1]:
            watch.emit(
                _finding(violation.invariant, violation.message),
                simulation.now_ns,
                violation.message,
            )


def _fired(injections: tuple[Injection, ...]) -> list[tuple[int, Injection]]:
    """Return the faults that fired, with their positions in the schedule, in order of time."""
    fired = [
        (place, injection)
        for place, injection in enumerate(injections)
        if injection.fired_at_ns is not None
    ]
    return sorted(fired, key=lambda each: (each[1].fired_at_ns or 0, each[0]))


class _Watch:
    """Collects findings during a run, and stops it when the result is known."""

    def __init__(
        self, simulation: Simulation, request: RunRequest, wanted: ProbeFinding | None
    ) -> None:
        self.oracle = Oracle(must_exercise=request.scenario.must_exercise)
        self.found: dict[ProbeFinding, int] = {}
        self.messages: dict[ProbeFinding, str] = {}
        self.cut_by: ProbeFinding | None = None
        self._wanted = wanted
        self._simulation = simulation
        simulation.observe(self._examine)

    @property
    def is_content(self) -> bool:
        """Return whether the wanted finding was made."""
        return self._wanted in self.found

    def emit(self, finding: ProbeFinding, at_ns: int, message: str) -> None:
        """Keep a finding, the first of its kind."""
        self.found.setdefault(finding, at_ns)
        self.messages.setdefault(finding, message)

    def _examine(self, node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
        for violation in self.oracle.examine(
            Envelope(node=node, incarnation=incarnation, n=n, t_ns=t_ns), event
        ):
            finding = _finding(violation.invariant, violation.message)
            self.emit(finding, t_ns, violation.message)
            if self.oracle.is_final(violation) or finding == self._wanted:
                self._simulation.violation(
                    violation.invariant, violation.message, violation.witnesses
                )


# --------------------------------------------------------------------------------------------------
# Runs candidates of a smaller run: caches results, counts costs, uses several processes, and stops
# at a budget
#
# The chosen candidate does not depend on the number of processes: of those that fail it is always
# the first one.

PATIENCE: Final = 1.5
"""A candidate that has not failed by this multiple of the original run's time to failure, and a
little more, counts as not failing.
"""
PATIENCE_NS: Final = 1_000_000_000


LENGTH: Final = "work_ms"
"""The workload parameter with the duration of the fault phase."""


class TrialCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a run that shrinking reduces."""

    faults: tuple[Fault, ...]
    workload: Mapping[str, int]
    controllers: int
    brokers: int

    @property
    def does_nothing(self) -> bool:
        """Whether its workload asks for nothing at all, whatever its duration."""
        return not any(value for name, value in self.workload.items() if name != LENGTH)

    @property
    def key(self) -> bytes:
        """Return a key of the candidate; equal ones have equal keys."""
        return msgspec.json.encode(self, order="sorted")

    def request(self, base: RunRequest) -> RunRequest:
        """Return the request for it; all else is as in the original run, whose injected faults are
        among those of the candidate.
        """
        return replace(
            base,
            faults=self.faults,
            injected=(),
            workload=self.workload,
            controllers=self.controllers,
            brokers=self.brokers,
        )


def _control_of(candidate: TrialCandidate) -> TrialCandidate:
    return msgspec.structs.replace(candidate, faults=())


class BudgetSpent(Exception):
    """The budget of CPU seconds is spent."""


@dataclass(slots=True)
class Cost:
    """The costs so far. `runs` were executed, `remembered` were in the cache."""

    runs: int = 0
    remembered: int = 0
    cpu_seconds: float = 0.0


class Trials:
    """Candidates of one run, and the finding that each must still show, for the same reason.

    A finding that only the end of a run shows does not count if something else cut the run, unless
    that cut the first run, too: what the scenario had no time for is missing then.

    That something is not done in time does not count where nothing could do it: with the workload
    and the nodes of the candidate, but without faults and bugs (the control), the scenario must not
    fail so. Where the control of the first run does, it tells nothing: then a workload that asks
    for nothing does not count.
    """

    def __init__(
        self,
        base: RunRequest,
        wanted: ProbeFinding,
        start: TrialCandidate,
        first: Seen,
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
        self._start = start
        self._may_cut = (None, wanted, first.cut_by)
        self._controls: dict[bytes, bool] = {}
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
                if self._is_same(candidate, seen):
                    self._forget(
                        [each for later, each in batch if later > place and each.key not in known]
                    )
                    self._be_patient_with(seen)
                    return place, candidate, seen
        return None

    def _is_same(self, candidate: TrialCandidate, seen: Seen) -> bool:
        """Return whether a candidate failed as the first run did. Raises BudgetSpent."""
        if self._wanted not in seen.found or seen.cut_by not in self._may_cut:
            return False
        if self._wanted.trouble is None or _control_of(candidate) == _control_of(self._start):
            return True
        if self._fails_by_itself(self._start):
            return self._start.does_nothing or not candidate.does_nothing
        return not self._fails_by_itself(candidate)

    def _fails_by_itself(self, candidate: TrialCandidate) -> bool:
        """Return whether the control of a candidate fails in the wanted way."""
        control = _control_of(candidate)
        if control.key not in self._controls:
            if self.cost.cpu_seconds >= self._budget_seconds:
                raise BudgetSpent
            request = replace(control.request(self._base), bugs=())
            seen = probe(request, wanted=self._wanted)
            self._controls[control.key] = self._wanted in seen.found
            self._count(seen)
        return self._controls[control.key]

    def _count(self, seen: Seen) -> None:
        self.cost.runs += 1
        self.cost.cpu_seconds += seen.cpu_seconds
        self._on_cost(self.cost)

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
            self._count(seen)
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
    with ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_load_all,
        initargs=(loadable(),),
    ) as pool:
        yield pool


def _load_all(extensions: tuple[str, ...]) -> None:
    """Load the extensions of the process that started this one: a request names their parts."""
    for extension in extensions:
        load(extension)

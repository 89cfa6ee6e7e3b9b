"""Shrinks a failing run: it removes whatever the run does not need to fail in the same way.

Faults come first, half of them at a time, then fewer, down to one by one (delta debugging); then
the duration of faults, the workload, and the number of nodes; once nothing can be removed any more,
the remaining faults are simplified. It repeats this until nothing helps: any single step from the
result gives a run that does not fail, or fails in another way. First it tries once to minimise
workload and nodes: a run that is repeated a hundred times should be cheap.

Removing a fault does not change the random numbers of others: they are keyed by host, incarnation
and purpose. Faults that never fired are therefore removed at once, but not without a run: a timer
that goes off after all faults are healed, or while there is no leader to hit, takes a turn, and
changes the order of the processes after it. Source: Zeller and
Hildebrandt, Simplifying and Isolating Failure-Inducing Input (2002).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kraftsim.invariants.invariant import INVARIANTS
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.trials import (
    LENGTH,
    BudgetSpent,
    Cost,
    ProbeFinding,
    Seen,
    TrialCandidate,
    Trials,
    probe,
    processes,
)
from kraftsim.lab.faults.fault import (
    FAULTS,
    AtTime,
    Fault,
    OnContact,
    OnDisk,
    OnEvent,
    OnFrame,
    OnState,
    Trigger,
    Value,
)

# --------------------------------------------------------------------------------------------------
# Simpler forms of a fault, a workload parameter or a number of nodes: the candidates that shrinking
# tries, the simplest first
#
# Shorter is simpler than longer, the default of a parameter than another value, the first time than
# the nth, a round number than another one.

SHORT_MS: Final = 100
FEW: Final = 8
"""Numbers up to this one are tried one by one."""
MILLISECONDS: Final = "_ms"


def simpler_faults(fault: Fault) -> Iterator[Fault]:
    """Yield faults that are simpler in one respect."""
    if fault.armed_after_ms:
        yield msgspec.structs.replace(fault, armed_after_ms=0)
    for trigger in _simpler_triggers(fault.trigger):
        yield msgspec.structs.replace(fault, trigger=trigger)
    usual = FAULTS.named(fault.kind).params
    for name, value in fault.params.items():
        for simpler in _simpler_values(name, value, usual[name]):
            params = {**fault.params, name: simpler}
            yield msgspec.structs.replace(fault, params=params)


def fewer(value: int, *, least: int = 0) -> Iterator[int]:
    """Yield smaller numbers, the smallest first: none, a tenth, half, a little less, and round
    ones.
    """
    tried = {value}  # for membership only, never iterated
    nearly = value - 1 if value <= FEW else value * 3 // 4
    for candidate in (
        least,
        rounded(value // 10),
        rounded(value // 2),
        rounded(nearly),
        rounded(value),
    ):
        if least <= candidate < value and candidate not in tried:
            tried.add(candidate)
            yield candidate


def rounded(value: int) -> int:
    """Return a number with its first digit kept: 1985 is 1000."""
    scale = int(10 ** (len(str(value)) - 1))
    return value // scale * scale


def _simpler_values(name: str, value: Value, usual: Value) -> Iterator[Value]:
    if isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int) and name.endswith(MILLISECONDS):
        tried = {value}  # for membership only, never iterated
        for candidate in (SHORT_MS, rounded(value // 2), rounded(value)):
            if 0 < candidate < value and candidate not in tried:
                tried.add(candidate)
                yield candidate
    elif value != usual:
        yield usual


def _simpler_triggers(trigger: Trigger) -> Iterator[Trigger]:
    match trigger:
        case AtTime():
            at_ms = rounded(trigger.at_ms) if trigger.at_ms else 0
            for candidate in (at_ms, trigger.at_ms // SHORT_MS * SHORT_MS):
                if candidate < trigger.at_ms:
                    yield AtTime(at_ms=candidate)
        case OnEvent():
            if trigger.fields:
                yield msgspec.structs.replace(trigger, fields={})
            yield from (
                msgspec.structs.replace(trigger, nth=nth) for nth in _fewer_times(trigger.nth)
            )
        case OnDisk() | OnFrame() | OnState() | OnContact():
            yield from (
                msgspec.structs.replace(trigger, nth=nth) for nth in _fewer_times(trigger.nth)
            )


def _parameters(fault: Fault) -> tuple[int, Mapping[str, Value]]:
    """Return the time at which a fault begins, 0 for another trigger, and its parameters."""
    return fault.trigger.at_ms if isinstance(fault.trigger, AtTime) else 0, fault.params


def _fewer_times(nth: int) -> Iterator[int]:
    tried = {nth}  # for membership only, never iterated
    for candidate in (1, nth // 2, rounded(nth)):
        if 1 <= candidate < nth and candidate not in tried:
            tried.add(candidate)
            yield candidate


BUDGET_SECONDS: Final = 120.0


class NotFailing(ValueError):
    """The run to shrink does not fail."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """The progress of shrinking."""

    step: str
    faults: int
    runs: int
    cpu_seconds: float
    budget_seconds: float


class Shrunken(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest run that was found.

    `is_smallest`: no single step makes it smaller; false if the budget was spent before that was
    known.
    """

    finding: ProbeFinding
    message: str
    candidate: TrialCandidate
    faults_before: int
    seen: Seen
    found_at_ns: int
    is_smallest: bool
    runs: int
    remembered: int
    cpu_seconds: float


def shrink(
    request: RunRequest,
    *,
    invariant: str | None = None,
    jobs: int = 1,
    budget_seconds: float = BUDGET_SECONDS,
    keeps_parameters: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Shrunken:
    """Return the smallest run found that fails as the request's does.

    With `keeps_parameters` faults are removed, but those that are left keep their parameters, and
    the fault phase its duration: a real cluster is slower than a simulated one.

    Raises NotFailing if that run does not fail, or not by that invariant.

    The result is the same for the same request, whatever `jobs` is, unless the budget is spent; the
    budget counts CPU seconds of all processes.
    """
    first = probe(request)
    wanted = chosen_finding(first, invariant)
    spec = request.spec(port=1)
    start = TrialCandidate(
        faults=request.schedule(),
        workload=request.work(),
        controllers=spec.controllers,
        brokers=spec.brokers,
    )
    with processes(jobs) as pool:
        step = _Steps(start, wanted, request, on_progress, budget_seconds)
        step.keeps_parameters = keeps_parameters
        step.trials = Trials(
            request,
            wanted,
            start,
            first,
            pool=pool,
            jobs=jobs,
            budget_seconds=budget_seconds,
            on_cost=step.tell,
        )
        step.trials.cost.cpu_seconds = first.cpu_seconds
        step.trials.cost.runs = 1
        is_smallest = step.run()
    cost = step.trials.cost
    seen = probe(step.best.request(request), wanted=wanted)
    found_at_ns = seen.at_ns(wanted)
    assert found_at_ns is not None, "the kept candidate fails"
    return Shrunken(
        finding=wanted,
        message=seen.messages[seen.found.index(wanted)],
        candidate=step.best,
        faults_before=len(start.faults),
        seen=seen,
        found_at_ns=found_at_ns,
        is_smallest=is_smallest,
        runs=cost.runs + 1,
        remembered=cost.remembered,
        cpu_seconds=cost.cpu_seconds + seen.cpu_seconds,
    )


def chosen_finding(seen: Seen, invariant: str | None = None) -> ProbeFinding:
    """Return the finding to keep: the requested one, else the first that ends a run, else the
    first.

    Raises NotFailing if there is none.
    """
    if invariant is not None:
        requested = [finding for finding in seen.found if finding.invariant == invariant]
        if not requested:
            raise NotFailing(
                f"the run does not violate {invariant} (it shows: "
                f"{', '.join(map(str, seen.found)) or 'nothing'})"
            )
        return requested[0]
    if not seen.found:
        raise NotFailing("the run does not fail: there is nothing to shrink")
    continuing = {
        each.name for each in INVARIANTS.all() if not each.ends_run
    }  # for membership only, never iterated
    return next(
        (finding for finding in seen.found if finding.invariant not in continuing), seen.found[0]
    )


class _Steps:
    """The best candidate so far, and the steps that make it smaller."""

    trials: Trials
    keeps_parameters = False

    def __init__(
        self,
        start: TrialCandidate,
        wanted: ProbeFinding,
        request: RunRequest,
        on_progress: Callable[[Progress], None] | None,
        budget_seconds: float,
    ) -> None:
        self.best = start
        self._request = request
        self._wanted = wanted
        self._on_progress = on_progress
        self._budget_seconds = budget_seconds
        self._step = "faults"

    def tell(self, cost: Cost) -> None:
        """Report the progress."""
        if self._on_progress is not None:
            progress = Progress(
                step=self._step,
                faults=len(self.best.faults),
                runs=cost.runs,
                cpu_seconds=cost.cpu_seconds,
                budget_seconds=self._budget_seconds,
            )
            self._on_progress(progress)

    def run(self) -> bool:
        """Shrink until nothing helps any more; return False if the budget was spent before that."""
        smaller = (
            ("faults", self._fewer_faults),
            ("length", self._shorter),
            ("workload", self._less_work),
            ("nodes", self._fewer_nodes),
        )
        try:
            self._take([self.best])
            self._take([msgspec.structs.replace(self.best, faults=())])
            self._be_bold()
            self._until_nothing_helps(smaller)
            self._until_nothing_helps((("simplify each fault", self._simpler_faults), *smaller))
        except BudgetSpent:
            return False
        return True

    def _until_nothing_helps(self, steps: tuple[tuple[str, Callable[[], None]], ...]) -> None:
        before = None
        while before != self.best:
            before = self.best
            for self._step, step in steps:
                step()

    def _take(self, candidates: Iterable[TrialCandidate]) -> tuple[int, tuple[int, ...]] | None:
        """Continue with the first candidate that still fails, if there is one, without its faults
        that did not fire before that if it fails without them, too.

        Returns the position of the candidate, and the remaining positions of its schedule.
        """
        found = self.trials.first_that_fails(candidates)
        if found is None:
            return None
        place, self.best, seen = found
        kept = tuple(range(len(self.best.faults)))
        fired = tuple(sorted(seen.fired))
        if fired != kept:
            faults = tuple(self.best.faults[each] for each in fired)
            without = self.trials.first_that_fails(
                [msgspec.structs.replace(self.best, faults=faults)]
            )
            if without is not None:
                _, self.best, _ = without
                kept = fired
        return place, kept

    def _be_bold(self) -> None:
        """Try once to minimise workload and nodes, together and each: it rarely works, but then
        every later run costs much less.
        """
        best, scenario = self.best, self._request.scenario
        idle = {
            parameter: value if parameter == LENGTH else 0
            for parameter, value in best.workload.items()
        }
        brokers, controllers = scenario.least_brokers, scenario.least_controllers
        self._take(
            [msgspec.structs.replace(best, workload=idle, brokers=brokers, controllers=controllers)]
        )
        self._take([msgspec.structs.replace(self.best, brokers=brokers)])
        for parameter, value in best.workload.items():
            if parameter == LENGTH and self.keeps_parameters:
                continue
            smaller = value // 2 if parameter == LENGTH else 0
            self._take(
                [
                    msgspec.structs.replace(
                        self.best, workload={**self.best.workload, parameter: smaller}
                    )
                ]
            )

    def _fewer_faults(self) -> None:
        size = max(len(self.best.faults) // 2, 1)
        while size and self.best.faults:
            first = 0
            while taken := self._take(self._without(first, size)):
                lacking = first + taken[0] * size
                first = sum(each < lacking for each in taken[1])
            size = min(size // 2, len(self.best.faults))

    def _without(self, first: int, size: int) -> Iterator[TrialCandidate]:
        """Yield the candidates without so many adjacent faults, from a position on."""
        faults = self.best.faults
        for place in range(first, len(faults), size):
            yield msgspec.structs.replace(self.best, faults=faults[:place] + faults[place + size :])

    def _simpler_faults(self) -> None:
        place = 0
        while place < len(self.best.faults):
            if not self._take(
                self._with(place, simpler)
                for simpler in simpler_faults(self.best.faults[place])
                if not self.keeps_parameters
                or _parameters(simpler) == _parameters(self.best.faults[place])
            ):
                place += 1

    def _with(self, place: int, fault: Fault) -> TrialCandidate:
        faults = self.best.faults
        return msgspec.structs.replace(
            self.best, faults=(*faults[:place], fault, *faults[place + 1 :])
        )

    def _less_work(self) -> None:
        for parameter in self.best.workload:
            if parameter != LENGTH:
                self._turn_down(parameter)

    def _shorter(self) -> None:
        if LENGTH in self.best.workload and not self.keeps_parameters:
            self._turn_down(LENGTH)

    def _turn_down(self, parameter: str) -> None:
        while self._take(
            msgspec.structs.replace(self.best, workload={**self.best.workload, parameter: value})
            for value in fewer(self.best.workload[parameter])
        ):
            pass

    def _fewer_nodes(self) -> None:
        scenario = self._request.scenario
        brokers = range(scenario.least_brokers, self.best.brokers)
        self._take(msgspec.structs.replace(self.best, brokers=count) for count in brokers)
        controllers = range(scenario.least_controllers, self.best.controllers)
        self._take(msgspec.structs.replace(self.best, controllers=count) for count in controllers)

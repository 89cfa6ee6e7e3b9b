"""The findings of a campaign, to print and to write as JSON; an ineffective campaign, which could
not have found anything, is not clean.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from kraftsim.cluster.scenario import scenario
from kraftsim.lab.campaign.worker_pool import FAILED, OK, VIOLATED, JobDone
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.faults.coverage import coverage_lines

ARMED_MIN, FIRED_MIN = 60, 20
"""A kind of fault that was armed, or fired, at least so often without ever being effective is a
defect of the campaign and not coincidence.
"""
FOUND_SHOWN_MAX = 20
FaultCounts = dict[str, tuple[int, int, int]]


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one scenario's seeds.

    `found` are the runs that were not clean; `faults` sums armed, fired and effective over all
    seeds; `exercised` the same by kind and trigger and by what became of requests
    (`kraftsim.lab.faults.coverage`), and `exchanged` the requests by API and role of the client.

    `idle_kinds` were armed or fired often enough but never effective here; `unexercised` are
    invariants that no seed exercised as required.
    """

    scenario: str
    seeds_run: int
    clean: int
    found: tuple[RunResult, ...]
    faults: FaultCounts
    simulated_seconds: float
    cpu_seconds: float
    idle_kinds: tuple[str, ...]
    unexercised: tuple[str, ...]
    exercised: FaultCounts = {}
    exchanged: dict[str, int] = {}

    @property
    def violations(self) -> tuple[str, ...]:
        """One line for each violation, with its seed."""
        return tuple(f"seed {run.seed}: {line}" for run in self.found for line in run.violations)

    @property
    def troubles(self) -> tuple[str, ...]:
        """One line for each run that was aborted without a violated invariant."""
        return tuple(
            f"seed {run.seed}: {run.trouble}"
            for run in self.found
            if run.trouble is not None and not run.violations
        )

    def lines(self) -> list[str]:
        """Return the result as text for people."""
        rate = self.seeds_run / self.cpu_seconds if self.cpu_seconds else 0.0
        text = [
            f"{self.scenario}: {self.seeds_run} seeds, {self.clean} clean, "
            f"{self.simulated_seconds:.0f} simulated seconds in {self.cpu_seconds:.1f} CPU "
            f"seconds ({rate:.2f} seeds per CPU second)"
        ]
        text += _table(self.faults, self.idle_kinds)
        text += coverage_lines(self.exercised)
        if not has_violations(
            self.found
        ):  # it may have ended at the first one, before a seed exercised the invariant
            text += [
                f"  {name} was never exercised: this campaign does not test it"
                for name in self.unexercised
            ]
        text += found_lines(self.found)
        return text


class CampaignResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all scenarios."""

    sweeps: tuple[SweepResult, ...]

    @property
    def idle_kinds(self) -> tuple[str, ...]:
        """The kinds that were never effective in any scenario, though they were armed or fired
        often enough.
        """
        return idle_kinds(sweep.faults for sweep in self.sweeps)

    @property
    def has_violations(self) -> bool:
        """Return whether an invariant was violated, or a run was aborted."""
        return any(has_violations(sweep.found) for sweep in self.sweeps)

    @property
    def is_inconclusive(self) -> bool:
        """Return whether a part of it was ineffective: a kind never effective, an invariant never
        exercised, a run that cannot be checked.
        """
        return bool(self.idle_kinds) or any(
            sweep.unexercised or sweep.found for sweep in self.sweeps
        )

    def lines(self) -> list[str]:
        """Return the result as text for people; a last line for all if there were several
        scenarios.
        """
        text = [line for sweep in self.sweeps for line in sweep.lines()]
        if len(self.sweeps) > 1:
            seeds, clean, cpu_seconds = (
                sum(getattr(sweep, name) for sweep in self.sweeps)
                for name in ("seeds_run", "clean", "cpu_seconds")
            )
            text.append(f"all: {seeds} seeds, {clean} clean, {cpu_seconds:.1f} CPU seconds")
        text += [
            f"fault {kind} was never effective: this campaign does not test it"
            for kind in self.idle_kinds
        ]
        return text


def found_lines(found: Sequence[RunResult]) -> list[str]:
    """Return the lines about runs that were not clean: the finding, the command that repeats it,
    and its directory.
    """
    text = []
    for run in found[:FOUND_SHOWN_MAX]:
        text.append(f"  seed {run.seed}: {', '.join(run.invariants_violated) or run.outcome}")
        text += [f"    {line}" for line in run.violations[:3]]
        if run.trouble is not None:
            text.append(f"    {run.trouble}")
        text.append(f"    replay: {run.replay_line}")
        if run.out is not None:
            text.append(f"    kept in {run.out}; make it smaller: kraftsim shrink {run.out}")
    if len(found) > FOUND_SHOWN_MAX:
        text.append(f"  ... and {len(found) - FOUND_SHOWN_MAX} more: see --json")
    return text


def has_violations(found: Iterable[RunResult]) -> bool:
    """Return whether an invariant was violated in one of these runs, or one of them was aborted."""
    return any(run.outcome in (VIOLATED, FAILED) for run in found)


def idle_kinds(faults: Iterable[FaultCounts]) -> tuple[str, ...]:
    """Return the kinds that were armed or fired often enough, but were never effective."""
    total: FaultCounts = {}
    for each in faults:
        add_faults(total, each)
    return tuple(
        kind
        for kind, (armed, fired, effective) in sorted(total.items())
        if effective == 0 and (armed >= ARMED_MIN or fired >= FIRED_MIN)
    )


def summary(names: Sequence[str], done: Iterable[JobDone]) -> CampaignResult:
    """Sum up the finished seeds, scenario by scenario."""
    everything = list(done)
    return CampaignResult(
        sweeps=tuple(
            _sweep(name, [each for each in everything if each.result.scenario == name])
            for name in names
        )
    )


def add_faults(faults: FaultCounts, more: FaultCounts) -> None:
    """Add the counts of armed, fired and effective faults of one run to those of many."""
    for kind, counts in more.items():
        armed, fired, effective = faults.get(kind, (0, 0, 0))
        faults[kind] = (armed + counts[0], fired + counts[1], effective + counts[2])


def _sweep(name: str, done: Sequence[JobDone]) -> SweepResult:
    faults: FaultCounts = {}
    covered: FaultCounts = {}
    exchanged: Counter[str] = Counter()
    exercised: dict[str, bool] = dict.fromkeys(scenario(name).must_exercise, False)
    for each in done:
        add_faults(faults, each.result.faults)
        add_faults(covered, each.result.exercised)
        exchanged.update(each.result.exchanged)
        for invariant, verdict in each.result.verdicts.items():
            if invariant in exercised and verdict in (OK, VIOLATED):
                exercised[invariant] = True
    found = tuple(each.result for each in done if not each.is_clean)
    return SweepResult(
        scenario=name,
        seeds_run=len(done),
        clean=len(done) - len(found),
        found=found,
        faults=dict(sorted(faults.items())),
        simulated_seconds=sum(each.result.seconds for each in done),
        cpu_seconds=sum(each.cpu_seconds for each in done),
        idle_kinds=idle_kinds([faults]),
        unexercised=tuple(invariant for invariant, was in exercised.items() if not was)
        if done
        else (),
        exercised=dict(sorted(covered.items())),
        exchanged=dict(sorted(exchanged.items())),
    )


def _table(faults: FaultCounts, idle_kinds: Sequence[str]) -> list[str]:
    if not faults:
        return []
    width = max(len(kind) for kind in faults)
    text = [f"  {'fault'.ljust(width)}  {'armed':>8}  {'fired':>8}  {'effective':>9}"]
    for kind, (armed, fired, effective) in faults.items():
        text.append(
            f"  {kind.ljust(width)}  {armed:>8}  {fired:>8}  "
            f"{effective:>9}{'  never effective' if kind in idle_kinds else ''}"
        )
    return text

"""Runs the scenarios of one mutant in virtual time, seed after seed, until something fails or the
budget is spent.

A failure may be an invariant violation, a failed assertion of a node, or a failed scenario: a
client that is never served, a node that does not restart, a run that does not end. A vacuous run is
a failure, too.
"""

import time
from collections.abc import Iterator
from typing import Literal

import msgspec

from kraftsim.lab.campaign.cpu_limit import Endless, cpu_limit
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.run import run_scenario
from tools.mutants.mutant import Mutant
from tools.mutants.patching import applied
from tools.mutants.reach import scenarios_of

RUN_CPU_SECONDS = 40
"""A run takes one or two; a mutant may make it endless."""
OWN_ASSERTION = "nodes-believe-the-truth"
SCENARIO_FAILURES = (
    "LivenessLost",
    "ScenarioFailed",
    "TopicFailed",
    "TimeoutError",
    "SimulationTimeLimit",
)


How = Literal["", "invariant", "assertion", "scenario", "endless", "unreadable", "vacuous"]
"""How a mutant was detected; empty: it was not."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a mutation run: of the tests of its core, which run first, and of its scenarios
    (`runs` is 0 if none ran).

    `how` is how a scenario detected it: 'invariant', 'assertion', 'scenario', 'endless',
    'unreadable' or 'vacuous'; empty if none did.
    """

    name: str
    digest: str
    """The digest of the function and the change: a result is valid only for the same digest."""
    runs: int
    cpu_seconds: float
    how: How = ""
    by: tuple[str, ...] = ()
    said: str = ""
    scenario: str = ""
    seed: int = 0
    test: str = ""
    """The test of its core that fails."""
    test_said: str = ""
    test_cpu_seconds: float | None = None
    """The CPU time of the tests; None if they were not run."""

    @property
    def is_found(self) -> bool:
        """Whether the mutant was detected."""
        return bool(self.how or self.test)


def run_mutant(mutant: Mutant, digest: str, *, runs_max: int, cpu_seconds_max: float) -> Finding:
    """Run the scenarios in turn until one fails."""
    began, runs = time.process_time(), 0
    with applied(mutant):
        for scenario, seed in _turns(scenarios_of(mutant)):
            if runs >= runs_max or time.process_time() - began >= cpu_seconds_max:
                break
            runs += 1
            how, by, said = _run_once(scenario, seed, mutant.release)
            if how:
                spent = time.process_time() - began
                return Finding(
                    name=mutant.name,
                    digest=digest,
                    runs=runs,
                    cpu_seconds=spent,
                    how=how,
                    by=by,
                    said=said[:400],
                    scenario=scenario,
                    seed=seed,
                )
    return Finding(
        name=mutant.name, digest=digest, runs=runs, cpu_seconds=time.process_time() - began
    )


def is_clean(scenario: str, seed: int, release: str = "") -> bool:
    """Return whether a scenario passes without any mutant."""
    return not _run_once(scenario, seed, release)[0]


def symptom(result: RunResult) -> tuple[How, tuple[str, ...], str]:
    """Return the kind of failure of a run, its sources, and a message; all empty for a run that
    passes.
    """
    invariants = tuple(name for name in result.invariants_violated if name != OWN_ASSERTION)
    if invariants:
        return "invariant", invariants, result.violations[0]
    if result.violations:
        return "assertion", (OWN_ASSERTION,), result.violations[0]
    if result.trouble is not None:
        kind = result.trouble.partition(":")[0]
        return (
            ("scenario", (kind,), result.trouble)
            if kind in SCENARIO_FAILURES
            else ("assertion", (OWN_ASSERTION,), result.trouble)
        )
    if result.outcome != "ok":
        return (
            "vacuous",
            tuple(name for name, verdict in result.verdicts.items() if verdict == result.outcome),
            result.outcome,
        )
    return "", (), ""


def _turns(scenarios: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    seed = 0
    while True:
        seed += 1
        for scenario in scenarios:
            yield scenario, seed


def _run_once(scenario: str, seed: int, release: str) -> tuple[How, tuple[str, ...], str]:
    try:
        with cpu_limit(RUN_CPU_SECONDS):
            return symptom(run_scenario(scenario, seed=seed, release=release))
    except Endless:
        return "endless", ("Endless",), f"still busy after {RUN_CPU_SECONDS} s of processor time"
    except AssertionError as error:  # of a client that the scenario awaits
        return "assertion", (OWN_ASSERTION,), str(error)
    except Exception as error:  # the final check of the disks failed
        return "unreadable", (type(error).__name__,), str(error)

"""Hunts one mutant: plays its stories in virtual time, seed after seed, until something breaks or the budget is spent.

What breaks may be an invariant, an assertion of a node itself, or the story: a client that is never served, a node that does not come up again, a
run that does not end. A run that ends with nothing examined is not green either.
"""

import time
from collections.abc import Iterator

import msgspec

from kraftsim.explore.result import RunResult
from kraftsim.explore.run import play
from mutants.cut_off import Endless, cut_off
from mutants.mutant import Mutant
from mutants.patching import applied
from mutants.reach import stories_of

RUN_CPU_SECONDS = 40
"""A run takes one or two; a mutant may well make it endless."""
OWN_ASSERTION = "nodes-believe-the-truth"
STORY_FAILURES = ("LivenessLost", "StoryFailed", "TopicFailed", "TimeoutError", "SimulationTimeLimit")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a hunt: of the tests of its core, which come first, and of its stories, where those were played (`runs` is 0 where not).

    `how` says how a story showed it: 'invariant', 'assertion', 'story', 'endless', 'unreadable' or 'vacuous'; empty where none did.
    """

    name: str
    digest: str
    """Of the function and the change: the result of another one is of no use."""
    runs: int
    cpu_seconds: float
    how: str = ""
    by: tuple[str, ...] = ()
    said: str = ""
    scenario: str = ""
    seed: int = 0
    test: str = ""
    """Which test of its core fails."""
    test_said: str = ""
    test_cpu_seconds: float | None = None
    """What that took; None where the tests were not run."""

    @property
    def is_found(self) -> bool:
        """Whether something broke."""
        return bool(self.how or self.test)


def hunt(mutant: Mutant, digest: str, *, runs_max: int, cpu_seconds_max: float) -> Finding:
    """Play until something breaks, the stories in turn."""
    began, runs = time.process_time(), 0
    with applied(mutant):
        for scenario, seed in _turns(stories_of(mutant)):
            if runs >= runs_max or time.process_time() - began >= cpu_seconds_max:
                break
            runs += 1
            how, by, said = _play_once(scenario, seed, mutant.release)
            if how:
                spent = time.process_time() - began
                return Finding(
                    name=mutant.name, digest=digest, runs=runs, cpu_seconds=spent, how=how, by=by, said=said[:400], scenario=scenario, seed=seed
                )
    return Finding(name=mutant.name, digest=digest, runs=runs, cpu_seconds=time.process_time() - began)


def is_clean(scenario: str, seed: int, release: str = "") -> bool:
    """Tell whether a story is green without any mutant."""
    return not _play_once(scenario, seed, release)[0]


def symptom(result: RunResult) -> tuple[str, tuple[str, ...], str]:
    """Say how a run shows that something is wrong, who says so, and in which words; all empty for a run that is green."""
    invariants = tuple(name for name in result.invariants_violated if name != OWN_ASSERTION)
    if invariants:
        return "invariant", invariants, result.violations[0]
    if result.violations:
        return "assertion", (OWN_ASSERTION,), result.violations[0]
    if result.trouble is not None:
        kind = result.trouble.partition(":")[0]
        return ("story", (kind,), result.trouble) if kind in STORY_FAILURES else ("assertion", (OWN_ASSERTION,), result.trouble)
    if result.outcome != "ok":
        return "vacuous", tuple(name for name, verdict in result.verdicts.items() if verdict == result.outcome), result.outcome
    return "", (), ""


def _turns(stories: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    seed = 0
    while True:
        seed += 1
        for story in stories:
            yield story, seed


def _play_once(scenario: str, seed: int, release: str) -> tuple[str, tuple[str, ...], str]:
    try:
        with cut_off(RUN_CPU_SECONDS):
            return symptom(play(scenario, seed=seed, release=release))
    except Endless:
        return "endless", ("Endless",), f"still busy after {RUN_CPU_SECONDS} s of processor time"
    except AssertionError as error:  # of a client, whose verbs the story awaits
        return "assertion", (OWN_ASSERTION,), str(error)
    except Exception as error:  # what reads the disks when the run is over must read them
        return "unreadable", (type(error).__name__,), str(error)

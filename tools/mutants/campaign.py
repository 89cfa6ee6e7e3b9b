"""Runs many mutants, each in its own processes, and verifies that whatever detected them passes
without a mutant.

Stages: the tests of the mutant's core, then its scenarios, seed after seed. Scenarios run if no
test detected the mutant, or if requested.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from tools.mutants.mutant import Mutant
from tools.mutants.mutation_run import Finding
from tools.mutants.results import digest_of
from tools.mutants.search_stage import CLEAN_RUNS, GUIDED, SearchFinding
from tools.mutants.unit_stage import PROJECT_ROOT, Detected

CONTROLS_AT_A_TIME = 20
AT_A_TIME = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """The limits of a mutation run: number of runs, or CPU time.

    Without runs only the tests are executed.
    """

    runs: int
    cpu_seconds: float
    asks_tests: bool = True
    always_runs_scenarios: bool = False
    """Run scenarios also for mutants that a test has detected."""


class MutationRunFailed(RuntimeError):
    """The process of a mutation run ended without a result; the message is its last output."""


def run_mutants(
    chosen: Sequence[Mutant],
    budget: Budget,
    *,
    jobs: int,
    done: Callable[[Finding], None],
    known: Mapping[str, Finding] | None = None,
) -> None:
    """Run the mutants in parallel; `done` is called after each stage.

    Stages with a `known` result are skipped. Raises MutationRunFailed.
    """
    found = {each.name: (known or {}).get(each.name) or _nothing_yet(each) for each in chosen}
    for (_, *names), answer in _side_by_side(
        _questions(chosen, found) if budget.asks_tests else iter(()), jobs
    ):
        for name, noticed in zip(
            names, msgspec.json.decode(answer, type=list[Detected]), strict=True
        ):
            found[name] = replace(
                found[name],
                test=noticed.test,
                test_said=noticed.said,
                test_cpu_seconds=noticed.cpu_seconds,
            )
            done(found[name])
    order = (
        ["--scenarios", each.name, str(budget.runs), str(budget.cpu_seconds)]
        for each in chosen
        if is_open(found[each.name], budget)
    )
    for (_, name, *_), answer in _side_by_side(order, jobs):
        tests = {
            field: getattr(found[name], field)
            for field in ("test", "test_said", "test_cpu_seconds")
        }
        done(replace(msgspec.json.decode(answer, type=Finding), **tests))


def judge_by_search(
    chosen: Sequence[Mutant],
    *,
    cpu_seconds: float,
    jobs: int,
    done: Callable[[SearchFinding], None],
) -> None:
    """Search for each mutant with `kraftsim campaign` alone; first make what is missing of the
    search without a mutant.

    Raises MutationRunFailed.
    """
    limits = [GUIDED, "1", str(cpu_seconds), str(CLEAN_RUNS)]
    in_a_process(["--clean-search", *limits])
    for _, answer in _side_by_side((["--search", each.name, *limits] for each in chosen), jobs):
        done(msgspec.json.decode(answer, type=SearchFinding))


def _nothing_yet(mutant: Mutant) -> Finding:
    return Finding(name=mutant.name, digest=digest_of(mutant), runs=0, cpu_seconds=0.0)


def _questions(chosen: Sequence[Mutant], found: Mapping[str, Finding]) -> Iterator[list[str]]:
    """Yield commands to run tests: mutants of one core together, because they share imported
    modules.
    """
    cores: dict[str, list[str]] = {}
    for each in chosen:
        if found[each.name].test_cpu_seconds is None:
            cores.setdefault(each.core, []).append(each.name)
    for names in cores.values():
        for first in range(0, len(names), AT_A_TIME):
            yield ["--tests", *names[first : first + AT_A_TIME]]


def failing_controls(findings: Sequence[Finding], *, jobs: int) -> list[str]:
    """Run every test that detected a mutant without any mutant, and return those that still fail.

    Raises MutationRunFailed.
    """
    tests = sorted({each.test for each in findings if each.test})
    pieces = [
        tests[first : first + CONTROLS_AT_A_TIME]
        for first in range(0, len(tests), CONTROLS_AT_A_TIME)
    ]
    said = _side_by_side((["--control-tests", *piece] for piece in pieces), jobs)
    return sorted(
        each for _, answer in said for each in msgspec.json.decode(answer, type=list[str])
    )


def unclean_controls(
    findings: Sequence[Finding], releases: Mapping[str, str], *, jobs: int
) -> list[tuple[str, str, int]]:
    """Run every (release, scenario, seed) that detected a mutant without any mutant; return those
    that fail.

    Raises MutationRunFailed.
    """
    finished = sorted(
        {(releases[each.name], each.scenario, each.seed) for each in findings if each.how}
    )
    pieces = [
        finished[first : first + CONTROLS_AT_A_TIME]
        for first in range(0, len(finished), CONTROLS_AT_A_TIME)
    ]
    orders = (
        ["--control", *(f"{release}/{scenario}/{seed}" for release, scenario, seed in piece)]
        for piece in pieces
    )
    return sorted(
        each
        for _, said in _side_by_side(orders, jobs)
        for each in msgspec.json.decode(said, type=list[tuple[str, str, int]])
    )


def current(chosen: Sequence[Mutant], known: Mapping[str, Finding]) -> dict[str, Finding]:
    """Return the results that are still valid: neither the function nor the change has changed."""
    return {
        each.name: known[each.name]
        for each in chosen
        if each.name in known and known[each.name].digest == digest_of(each)
    }


def is_open(known: Finding | None, budget: Budget) -> bool:
    """Return whether a stage of a mutant has not been run."""
    if known is None or (budget.asks_tests and known.test_cpu_seconds is None):
        return True
    is_spent = known.runs >= budget.runs or known.cpu_seconds >= budget.cpu_seconds
    return not known.how and not is_spent and (not known.test or budget.always_runs_scenarios)


def _side_by_side(orders: Iterator[list[str]], jobs: int) -> Iterator[tuple[list[str], bytes]]:
    """Yield each command and the last line of its output, in order of completion."""
    with ThreadPoolExecutor(jobs) as threads:
        waiting: dict[Future[bytes], list[str]] = {}
        for order in orders:
            waiting[threads.submit(in_a_process, order)] = order
            if len(waiting) >= jobs:
                yield from _ended(waiting)
        while waiting:
            yield from _ended(waiting)


def _ended(waiting: dict[Future[bytes], list[str]]) -> Iterator[tuple[list[str], bytes]]:
    """Wait for the next processes to end, remove them, and yield them."""
    for each in wait(waiting, return_when=FIRST_COMPLETED).done:
        yield waiting.pop(each), each.result()


def in_a_process(arguments: list[str]) -> bytes:
    """Run `tools.mutants.one`, and return the last line of its output. Raises MutationRunFailed."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.mutants.one", *arguments],
        capture_output=True,
        check=False,
        cwd=PROJECT_ROOT,
    )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise MutationRunFailed(
            f"{' '.join(arguments)} ended with {done.returncode}: "
            f"{done.stderr.decode(errors='replace')[-2000:]}"
        )
    return lines[-1]

"""Runs one mutant, or tests and scenarios without any, in its own process, and prints the result as
the last line, in JSON.

    python -m tools.mutants.one --tests NAME ...
    python -m tools.mutants.one --scenarios NAME RUNS CPU_SECONDS
    python -m tools.mutants.one --control-tests TEST ...
    python -m tools.mutants.one --control RELEASE/SCENARIO/SEED ...
    python -m tools.mutants.one --clean-search WAY SEED CPU_SECONDS FILE
    python -m tools.mutants.one --search NAME WAY SEED CPU_SECONDS FILE
    python -m tools.mutants.one --search-bug NAME WAY SEED CPU_SECONDS
"""

import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tools.mutants.catalogue import mutant_named, mutants
from tools.mutants.mutation_run import Finding, is_clean, run_mutant
from tools.mutants.oracles import isolate_oracles
from tools.mutants.results import digest_of
from tools.mutants.search_stage import (
    GUIDED,
    CleanRuns,
    SearchFinding,
    record_clean_runs,
    search_for_bug,
    search_for_mutant,
    search_terms,
)
from tools.mutants.unit_stage import Detected, failing_without_mutant, run_unit_stage

MEMORY_BYTES = 3 << 30
"""A memory limit, because a mutant may allocate without bounds."""


def main() -> None:
    """Run the given command."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    verb, *words = sys.argv[1:]
    print("\n" + msgspec.json.encode(VERBS[verb](*words)).decode())


def _tests(*names: str) -> list[Detected]:
    return run_unit_stage([mutant_named(name) for name in names])


def _scenarios(name: str, runs: str, cpu_seconds: str) -> Finding:
    mutant = mutant_named(name)
    isolate_oracles()
    return run_mutant(
        mutant, digest_of(mutant), runs_max=int(runs), cpu_seconds_max=float(cpu_seconds)
    )


def _control_tests(*tests: str) -> list[str]:
    return failing_without_mutant(tests)


def _control(*finished: str) -> list[tuple[str, str, int]]:
    parts = (each.split("/") for each in finished)
    return [
        (release, scenario, int(seed))
        for release, scenario, seed in parts
        if not is_clean(scenario, int(seed), release)
    ]


def _clean_search(way: str, seed: str, cpu_seconds: str, file: str) -> tuple[str, ...]:
    isolate_oracles()
    return record_clean_runs(
        search_terms(int(seed), is_guided=way == GUIDED),
        mutants(),
        cpu_seconds=float(cpu_seconds),
        runs=CleanRuns(Path(file)),
    )


def _search(name: str, way: str, seed: str, cpu_seconds: str, file: str) -> SearchFinding:
    mutant = mutant_named(name)
    isolate_oracles()
    return search_for_mutant(
        mutant,
        search_terms(int(seed), is_guided=way == GUIDED, release=mutant.release),
        cpu_seconds=float(cpu_seconds),
        runs=CleanRuns(Path(file)),
    )


def _search_bug(name: str, way: str, seed: str, cpu_seconds: str) -> SearchFinding:
    terms = search_terms(int(seed), is_guided=way == GUIDED, bugs=(name,))
    return search_for_bug(terms, cpu_seconds=float(cpu_seconds))


VERBS: Final[Mapping[str, Callable[..., object]]] = {
    "--tests": _tests,
    "--scenarios": _scenarios,
    "--control-tests": _control_tests,
    "--control": _control,
    "--clean-search": _clean_search,
    "--search": _search,
    "--search-bug": _search_bug,
}


if __name__ == "__main__":
    main()

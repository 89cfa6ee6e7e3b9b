"""Runs one mutant, or tests and scenarios without any, in its own process, and prints the result as the last line, in JSON.

python -m mutants.one --tests NAME ...                  |      python -m mutants.one --stories NAME RUNS CPU_SECONDS
python -m mutants.one --control-tests TEST ...      |      python -m mutants.one --control RELEASE/SCENARIO/SEED ...
"""

import resource
import sys
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from mutants.catalogue import mutant_named
from mutants.first_look import Noticed, fails_by_itself, looks
from mutants.hunt import Finding, hunt, is_clean
from mutants.judges import isolate_oracles
from mutants.results import digest_of

MEMORY_BYTES = 3 << 30
"""A memory limit, because a mutant may allocate without bounds."""


def main() -> None:
    """Run the given command."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    verb, *words = sys.argv[1:]
    print("\n" + msgspec.json.encode(VERBS[verb](*words)).decode())


def _tests(*names: str) -> list[Noticed]:
    return looks([mutant_named(name) for name in names])


def _scenarios(name: str, runs: str, cpu_seconds: str) -> Finding:
    mutant = mutant_named(name)
    isolate_oracles()
    return hunt(mutant, digest_of(mutant), runs_max=int(runs), cpu_seconds_max=float(cpu_seconds))


def _control_tests(*tests: str) -> list[str]:
    return fails_by_itself(tests)


def _control(*played: str) -> list[tuple[str, str, int]]:
    parts = (each.split("/") for each in played)
    return [(release, story, int(seed)) for release, story, seed in parts if not is_clean(story, int(seed), release)]


VERBS: Final[Mapping[str, Callable[..., object]]] = {
    "--tests": _tests,
    "--stories": _scenarios,
    "--control-tests": _control_tests,
    "--control": _control,
}


if __name__ == "__main__":
    main()

"""Hunts one mutant, or looks at tests and stories without any, in a process of its own, and prints what came of it as the last line, in JSON.

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
from mutants.judges import set_judges_apart
from mutants.results import digest_of

MEMORY_BYTES = 3 << 30
"""A mutant may well want all there is."""


def main() -> None:
    """Do what the arguments say."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    verb, *words = sys.argv[1:]
    print("\n" + msgspec.json.encode(VERBS[verb](*words)).decode())


def _tests(*names: str) -> list[Noticed]:
    return looks([mutant_named(name) for name in names])


def _stories(name: str, runs: str, cpu_seconds: str) -> Finding:
    mutant = mutant_named(name)
    set_judges_apart()
    return hunt(mutant, digest_of(mutant), runs_max=int(runs), cpu_seconds_max=float(cpu_seconds))


def _control_tests(*tests: str) -> list[str]:
    return fails_by_itself(tests)


def _control(*played: str) -> list[tuple[str, str, int]]:
    parts = (each.split("/") for each in played)
    return [(release, story, int(seed)) for release, story, seed in parts if not is_clean(story, int(seed), release)]


VERBS: Final[Mapping[str, Callable[..., object]]] = {
    "--tests": _tests,
    "--stories": _stories,
    "--control-tests": _control_tests,
    "--control": _control,
}


if __name__ == "__main__":
    main()

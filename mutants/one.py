"""Hunts one mutant, or plays stories without any, in a process of its own, and prints what came of it as one line of JSON.

python -m mutants.one NAME RUNS CPU_SECONDS      |      python -m mutants.one --control RELEASE/SCENARIO/SEED ...
"""

import resource
import sys

import msgspec

from mutants.catalogue import mutant_named
from mutants.hunt import hunt, is_clean
from mutants.judges import set_judges_apart
from mutants.results import digest_of

MEMORY_BYTES = 3 << 30
"""A mutant may well want all there is."""


def main() -> None:
    """Do what the arguments say."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    if sys.argv[1] == "--control":
        parts = [each.split("/") for each in sys.argv[2:]]
        played = [(release, scenario, int(seed)) for release, scenario, seed in parts]
        print(msgspec.json.encode([(release, story, seed) for release, story, seed in played if not is_clean(story, seed, release)]).decode())
        return
    name, runs, cpu_seconds = sys.argv[1:]
    mutant = mutant_named(name)
    set_judges_apart()
    found = hunt(mutant, digest_of(mutant), runs_max=int(runs), cpu_seconds_max=float(cpu_seconds))
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main()

"""Compares guided search and plain search with equal CPU time on mutants and bugs.

    python -m tools.mutants.search_trial [--set held-out|tuning] [--mutants 12] [--bugs 0]
        [--cpu-seconds 100] [--seed 1] [--ways guided,plain]

The mutants are those that scenarios detect (docs/mutants.json), and the bugs those of `kraftsim
list bugs`; a hash of the name says to which of two sets each belongs, and in which order they come.
The search was tuned with the tuning set alone. Results go to docs/search-trial.json, and those that
it has are not repeated; runs without a mutant are kept in build/mutants, and made again after a
change of the code (`--afresh`).
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from kraftsim.lab.bugs.bug import bugs
from tools.mutants.campaign import in_a_process
from tools.mutants.catalogue import mutants
from tools.mutants.results import read
from tools.mutants.search_stage import CLEAN_RUNS, GUIDED, PLAIN, SearchFinding

RECORD: Final = Path(__file__).parents[2] / "docs" / "search-trial.json"
HELD_OUT, TUNING = "held-out", "tuning"


class SearchTrial(msgspec.Struct, frozen=True, kw_only=True):
    """All results; `clean_findings` are what searches without a mutant found, by way and seed."""

    measured: str
    """The day, and the commit of the code."""
    found: tuple[SearchFinding, ...] = ()
    clean_findings: dict[str, tuple[str, ...]] = {}


def digest_of_name(name: str) -> str:
    """Return the hash by which names are ordered and divided."""
    return hashlib.sha256(name.encode()).hexdigest()


def set_of(name: str) -> str:
    """Return the set that a name belongs to."""
    return HELD_OUT if int(digest_of_name(name), 16) % 2 else TUNING


def visible_mutants(chosen: str) -> list[str]:
    """Return the mutants of a set that scenarios of the default release detect, in order."""
    known = read()
    names = [
        each.name
        for each in mutants()
        if each.name in known and known[each.name].how and not each.release
    ]
    return _of_set(names, chosen)


def bugs_of(chosen: str) -> list[str]:
    """Return the bugs of a set, in order."""
    return _of_set([each.name for each in bugs()], chosen)


def _of_set(names: Sequence[str], chosen: str) -> list[str]:
    return sorted((name for name in names if set_of(name) == chosen), key=digest_of_name)


def read_trial(path: Path = RECORD) -> SearchTrial:
    """Return the record; an empty one if there is none."""
    if not path.exists():
        return SearchTrial(measured="")
    return msgspec.json.decode(path.read_bytes(), type=SearchTrial)


def write_trial(trial: SearchTrial, path: Path = RECORD) -> None:
    """Write the record."""
    found = sorted(trial.found, key=lambda each: (each.name, each.way, each.seed))
    data = msgspec.json.encode(msgspec.structs.replace(trial, found=tuple(found)))
    path.write_bytes(msgspec.json.format(data, indent=1) + b"\n")


def main() -> int:
    """Make the searches that the record does not have."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants.search_trial",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--set", dest="chosen", choices=(HELD_OUT, TUNING), default=HELD_OUT)
    parser.add_argument("--mutants", type=int, default=12)
    parser.add_argument("--bugs", type=int, default=0)
    parser.add_argument("--cpu-seconds", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ways", default=f"{GUIDED},{PLAIN}")
    parser.add_argument("--runs", type=Path, default=CLEAN_RUNS, help="the runs without a mutant")
    parser.add_argument("--afresh", action="store_true", help="make these again")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument(
        "--measured",
        default="",
        help="the day and the commit, for the record; results of others are dropped",
    )
    given = parser.parse_args()
    if given.afresh:
        given.runs.unlink(missing_ok=True)
    trial = read_trial(given.record)
    if given.measured not in ("", trial.measured):
        trial = SearchTrial(measured=given.measured)
    limits = [str(given.seed), str(given.cpu_seconds)]
    for way in given.ways.split(","):
        answer = in_a_process(["--clean-search", way, *limits, str(given.runs)])
        known = {**trial.clean_findings, f"{way} {given.seed}": msgspec.json.decode(answer)}
        trial = msgspec.structs.replace(trial, clean_findings=known)
        write_trial(trial, given.record)
    orders = [
        *(
            ("--search", name, [str(given.runs)])
            for name in visible_mutants(given.chosen)[: given.mutants]
        ),
        *(("--search-bug", name, []) for name in bugs_of(given.chosen)[: given.bugs]),
    ]
    for verb, name, files in orders:
        for way in given.ways.split(","):
            if any(
                (each.name, each.way, each.seed, each.budget_cpu_seconds)
                == (name, way, given.seed, given.cpu_seconds)
                for each in trial.found
            ):
                continue
            answer = in_a_process([verb, name, way, *limits, *files])
            finding = msgspec.json.decode(answer, type=SearchFinding)
            trial = msgspec.structs.replace(trial, found=(*trial.found, finding))
            write_trial(trial, given.record)
            print(finding.line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

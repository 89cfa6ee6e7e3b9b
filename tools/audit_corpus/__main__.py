"""Makes the corpus of an audit, and audits it.

Usage: python -m tools.audit_corpus all [--out DIR] [--write]
       python -m tools.audit_corpus make [--out DIR] [--release 2.8.2,3.9.1,4.4.0] [--only NAME]
       python -m tools.audit_corpus audit|plants [--out DIR] [--only NAME] [--write]
       python -m tools.audit_corpus counts [--out DIR] [--every N] [--write]
       python -m tools.audit_corpus list [--out DIR]
"""

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.apache_kafka.class_path import NEWEST_RELEASE
from tools.audit_corpus.counts import compare
from tools.audit_corpus.judged import judged, planted, plants
from tools.audit_corpus.results import (
    RESULTS,
    CountsResult,
    PlantResult,
    SituationResult,
    page,
    read,
    write,
)
from tools.audit_corpus.runs import RUNS, workspace
from tools.audit_corpus.situations import Expected, Recorder, Stopped, situations, size_of

WRONG_SHOWN_MAX: Final = 6
BUILD: Final = Path("build") / "audit-corpus"
COMMANDS: Final = ("all", "make", "audit", "plants", "counts", "list")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.audit_corpus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--out", type=Path, default=BUILD, help="the directory of the corpus")
    parser.add_argument("--release", default="", help="releases, separated by commas")
    parser.add_argument("--only", default="", help="names that contain one of these words")
    parser.add_argument("--every", type=int, default=5, help="count each n-th segment (default: 5)")
    parser.add_argument("--write", action="store_true", help=f"write docs/{RESULTS.name}")
    chosen = parser.parse_args(arguments)
    file = RESULTS if chosen.write else chosen.out / RESULTS.name
    failed = 0
    if chosen.command in ("make", "all"):
        failed |= make_corpus(chosen.out, chosen.release, chosen.only)
    if chosen.command in ("audit", "all"):
        failed |= audit_corpus(chosen.out, chosen.only, file)
    if chosen.command in ("plants", "all"):
        failed |= audit_plants(chosen.out, chosen.only, file)
    if chosen.command in ("counts", "all"):
        failed |= compare_counts(chosen.out, chosen.every, file)
    if chosen.command == "all":
        print(page(read(file)))
    if chosen.command == "list":
        list_corpus(chosen.out)
    return failed


def list_corpus(out: Path) -> None:
    """Print the situations."""
    for place, situation in situations(out):
        print(
            f"{place.name:50} {situation.stopped:10} {situation.expected:8} "
            f"{size_of(place) / 1e6:6.1f} MB  {situation.about}"
        )


def make_corpus(out: Path, releases: str, only: str) -> int:
    """Run the chosen clusters; return 1 if one of them broke off."""
    wanted = [each for each in releases.split(",") if each]
    words = [each for each in only.split(",") if each]
    broken = 0
    for run in RUNS:
        if wanted and run.release not in wanted:
            continue
        if words and not any(word in run.name for word in words):
            continue
        began = time.monotonic()
        print(run.name, flush=True)
        recorder = Recorder(out, run.name, run.release, run.mode)
        with workspace() as place:
            try:
                run.act(place, recorder)
            except Exception:  # the other runs are made all the same
                traceback.print_exc()
                for log in sorted(place.glob("*/server.log")):
                    print(f"{log}:\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
                broken += 1
        print(f"  {len(recorder.made)} situations in {time.monotonic() - began:.0f} s", flush=True)
    return 1 if broken else 0


def audit_corpus(out: Path, only: str, file: Path) -> int:
    """Audit every situation; return 1 if one gives something else than it must."""
    results = read(file)
    failed = 0
    for place, situation in situations(out):
        if only and not any(word in place.name for word in only.split(",")):
            continue
        seen = judged(place, situation)
        failed += bool(seen.wrong)
        print(
            f"{'WRONG' if seen.wrong else 'right':5} {place.name:45} {situation.expected:8} "
            f"{len(seen.defects):3} defects, {seen.undecided:5} undecided, "
            f"{seen.examined} examined",
            flush=True,
        )
        for each in seen.wrong[:WRONG_SHOWN_MAX]:
            print(f"      {each}")
        results.situations[place.name] = SituationResult(
            name=place.name,
            release=situation.release,
            about=situation.about,
            stopped=situation.stopped,
            expected=situation.expected,
            examined=seen.examined,
            undecided=seen.undecided,
            defects=len(seen.defects),
            wrong=seen.wrong,
        )
        write(results, file)
    return 1 if failed else 0


def audit_plants(out: Path, only: str, file: Path) -> int:
    """Plant every defect; return 1 if one was not found, or something else was."""
    places = [
        place
        for place, situation in situations(out)
        if situation.stopped == Stopped.CLEANLY and situation.expected == Expected.SOUND
    ]
    places.sort(
        key=lambda place: (
            "zookeeper" in place.name,  # its metadata is not on these disks
            not place.name.startswith("three"),
            size_of(place),
        )
    )
    results = read(file)
    failed = 0
    for plant in plants(only):
        seen = planted(plant, places)
        failed += bool(seen.wrong)
        print(
            f"{'WRONG' if seen.wrong else 'right'} {plant.name:34} {seen.by:30} {seen.source}  "
            f"{', '.join(seen.also)}",
            flush=True,
        )
        for each in seen.wrong[:WRONG_SHOWN_MAX]:
            print(f"      {each}")
        results.plants[plant.name] = PlantResult(
            name=plant.name,
            about=plant.about,
            source=seen.source,
            by=seen.by,
            also=seen.also,
            wrong=seen.wrong,
        )
        write(results, file)
    return 1 if failed else 0


def compare_counts(out: Path, every: int, file: Path) -> int:
    """Compare counts over a sample; return 1 if a segment differs."""
    number, total, wrong = compare(list(situations(out)), every, NEWEST_RELEASE)
    for each in wrong[:WRONG_SHOWN_MAX]:
        print(each)
    print(
        f"{number} segments, {total.batches} batches, {total.records} records: "
        f"{len(wrong)} segments differ"
    )
    results = read(file)
    results.counts = CountsResult(
        segments=number, batches=total.batches, records=total.records, differing=len(wrong)
    )
    write(results, file)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

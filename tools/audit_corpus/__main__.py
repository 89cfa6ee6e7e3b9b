"""Makes the corpus of an audit, and audits it.

Usage: python -m tools.audit_corpus make --out DIR [--release 2.8.2,3.9.1,4.4.0] [--only NAME]
       python -m tools.audit_corpus audit --out DIR
       python -m tools.audit_corpus plants --out DIR
       python -m tools.audit_corpus counts --out DIR
"""

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.apache_kafka.class_path import NEWEST_RELEASE
from tools.audit_corpus.counts import compare
from tools.audit_corpus.judged import judged, planted, plants
from tools.audit_corpus.runs import RUNS, workspace
from tools.audit_corpus.situations import Expected, Recorder, Stopped, situations, size_of

WRONG_SHOWN_MAX = 6


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.audit_corpus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="start Apache Kafka and copy its log directories")
    make.add_argument("--out", type=Path, required=True)
    make.add_argument("--release", default="", help="releases, separated by commas")
    make.add_argument("--only", default="", help="runs whose name contains one of these words")
    audited = commands.add_parser("audit", help="audit every situation: no false alarm")
    audited.add_argument("--out", type=Path, required=True)
    audited.add_argument("--only", default="", help="situations whose name contains a word")
    sown = commands.add_parser(
        "plants", help="plant every defect in a sound situation and audit it"
    )
    sown.add_argument("--out", type=Path, required=True)
    sown.add_argument("--only", default="", help="plants whose name contains a word")
    counted = commands.add_parser("counts", help="compare counts of kafka-dump-log and DuckDB")
    counted.add_argument("--out", type=Path, required=True)
    counted.add_argument("--every", type=int, default=3, help="each n-th segment (default: 3)")
    shown = commands.add_parser("list", help="list the situations of a corpus")
    shown.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    if chosen.command == "make":
        return make_corpus(chosen.out, chosen.release, chosen.only)
    if chosen.command == "audit":
        return audit_corpus(chosen.out, chosen.only)
    if chosen.command == "counts":
        return compare_counts(chosen.out, chosen.every)
    if chosen.command == "plants":
        return audit_plants(chosen.out, chosen.only)
    for place, situation in situations(chosen.out):
        print(
            f"{place.name:50} {situation.stopped:10} {situation.expected:8} "
            f"{size_of(place) / 1e6:6.1f} MB  {situation.about}"
        )
    return 0


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


def audit_corpus(out: Path, only: str) -> int:
    """Audit every situation; return 1 if one gives something else than it must."""
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
    return 1 if failed else 0


def audit_plants(out: Path, only: str) -> int:
    """Plant every defect; return 1 if one was not found, or something else was."""
    places = [
        place
        for place, situation in situations(out)
        if situation.stopped == Stopped.CLEANLY and situation.expected == Expected.SOUND
    ]
    places.sort(key=lambda place: (not place.name.startswith("three"), place.name))
    failed = 0
    for plant in plants(only):
        seen = planted(plant, places)
        failed += bool(seen.wrong or seen.skipped)
        word = "SKIP " if seen.skipped else "WRONG" if seen.wrong else "right"
        print(
            f"{word} {plant.name:34} {seen.by:30} {seen.source}  {', '.join(seen.also)}", flush=True
        )
        for each in (*seen.wrong[:WRONG_SHOWN_MAX], *([seen.skipped] if seen.skipped else [])):
            print(f"      {each}")
    return 1 if failed else 0


def compare_counts(out: Path, every: int) -> int:
    """Compare counts over a sample; return 1 if a segment differs."""
    files, total, wrong = compare(list(situations(out)), every, NEWEST_RELEASE)
    for each in wrong[:WRONG_SHOWN_MAX]:
        print(each)
    print(
        f"{files} segments, {total.batches} batches, {total.records} records: "
        f"{len(wrong)} segments differ"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

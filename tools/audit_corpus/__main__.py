"""Makes the corpus of an audit, and audits it.

Usage: python -m tools.audit_corpus make --out DIR [--release 2.8.2,3.9.1,4.4.0] [--only NAME]
"""

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tools.audit_corpus.runs import RUNS, workspace
from tools.audit_corpus.situations import Recorder, situations, size_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.audit_corpus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="start Apache Kafka and copy its log directories")
    make.add_argument("--out", type=Path, required=True)
    make.add_argument("--release", default="", help="releases, separated by commas")
    make.add_argument("--only", default="", help="runs whose name contains one of these words")
    shown = commands.add_parser("list", help="list the situations of a corpus")
    shown.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    if chosen.command == "make":
        return make_corpus(chosen.out, chosen.release, chosen.only)
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


if __name__ == "__main__":
    raise SystemExit(main())

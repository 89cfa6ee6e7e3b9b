"""The process in which a Spark task plays its seeds: no fence of a simulation ever touches the worker of Spark, and what a run breaks is its own.

Reads one errand a line, plays it, turns its events into Parquet where all runs of the campaign have theirs, and answers with what came of it.
Started by `spark_task`: `python -m kraftsim.campaign.spark_child`.
"""

import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import msgspec

from kraftsim.analysis.ingest import EVENTS_FILE, ingest_run
from kraftsim.campaign.errand import OK, Done, Errand, broken
from kraftsim.explore.run import play_request

EVENTS, FOUND = "events", "found"


def events_of(out: Path, name: str, seed: int) -> Path:
    """Return where the events of a run are: Spark takes scenario and seed from the names of directories."""
    return out / EVENTS / f"scenario={name}" / f"seed={seed}" / EVENTS_FILE


def main() -> None:
    """Play until the other end is closed."""
    for line in sys.stdin.buffer:
        errand = msgspec.json.decode(line, type=Errand)
        try:
            done = _play(errand)
        except Exception as trouble:
            traceback.print_exc()
            done = broken(errand, f"{type(trouble).__name__} in the harness: {trouble}")
        sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
        sys.stdout.buffer.flush()


def _play(errand: Errand) -> Done:
    """Play a run; its directory is kept below that of the campaign, `out`, if it is not clean."""
    began = time.process_time()
    assert errand.out is not None, "Spark reads what tasks leave there"
    out = Path(errand.out)
    with tempfile.TemporaryDirectory(prefix="kraftsim-seed-") as scratch:
        run = Path(scratch) / "run"
        result = play_request(errand.request(), run)
        ingest_run(run)
        target = events_of(out, errand.name, errand.seed)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run / EVENTS_FILE, target)
        kept = out / FOUND / f"{errand.name}-{errand.seed}"
        if result.outcome != OK and not kept.exists():
            shutil.copytree(run, kept)
        result = msgspec.structs.replace(result, out=str(kept) if result.outcome != OK else None)
    return Done(result=result, cpu_seconds=time.process_time() - began)


if __name__ == "__main__":
    main()

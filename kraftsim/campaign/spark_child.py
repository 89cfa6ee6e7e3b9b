"""The process in which a Spark task plays its seeds: no fence of a simulation ever touches the worker of Spark, and what a run breaks is its own.

Reads one order a line, plays it, turns its events into Parquet where all runs of the campaign have theirs, and answers with what came of it.
Started by `spark_task`: `python -m kraftsim.campaign.spark_child`.
"""

import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kraftsim.analysis.ingest import EVENTS_FILE, ingest_run
from kraftsim.campaign.errand import OK, Done, Errand, broken
from kraftsim.explore.run import play_request

EVENTS, FOUND = "events", "found"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One seed to play. `out` is the directory of the campaign."""

    name: str
    seed: int
    release: str
    bugs: tuple[str, ...]
    settings: Mapping[str, str]
    workload: Mapping[str, int] = {}
    out: str

    def errand(self) -> Errand:
        """Return it as what a worker is given."""
        return Errand(name=self.name, seed=self.seed, release=self.release, bugs=self.bugs, settings=self.settings, workload=self.workload)


def events_of(out: Path, name: str, seed: int) -> Path:
    """Return where the events of a run are: Spark takes scenario and seed from the names of directories."""
    return out / EVENTS / f"scenario={name}" / f"seed={seed}" / EVENTS_FILE


def main() -> None:
    """Play until the other end is closed."""
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        try:
            done = _play(order)
        except Exception as trouble:
            traceback.print_exc()
            done = broken(order.errand(), f"{type(trouble).__name__} in the harness: {trouble}")
        sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
        sys.stdout.buffer.flush()


def _play(order: Order) -> Done:
    """Play a run; its directory is kept if it is not clean."""
    began = time.process_time()
    out = Path(order.out)
    with tempfile.TemporaryDirectory(prefix="kraftsim-seed-") as scratch:
        run = Path(scratch) / "run"
        result = play_request(order.errand().request(), run)
        ingest_run(run)
        target = events_of(out, order.name, order.seed)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run / EVENTS_FILE, target)
        kept = out / FOUND / f"{order.name}-{order.seed}"
        if result.outcome != OK and not kept.exists():
            shutil.copytree(run, kept)
        result = msgspec.structs.replace(result, out=str(kept) if result.outcome != OK else None)
    return Done(result=result, cpu_seconds=time.process_time() - began)


if __name__ == "__main__":
    main()

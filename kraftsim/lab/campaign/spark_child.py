"""The process in which a Spark task runs its seeds: the guards of a simulation do not affect
Spark's worker, and a crash is isolated from it.

Reads one job per line, runs it, adds its events to the Parquet data set of the campaign, and
answers with the result. Started by `spark_task`: `python -m kraftsim.lab.campaign.spark_child`.
"""

import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import msgspec

from kraftsim.analysis.ingest import ingest_runs
from kraftsim.lab.campaign.worker_pool import OK, CampaignJob, JobDone, broken
from kraftsim.lab.explore.run import run_request

EVENTS, FOUND = "events", "found"


def main() -> None:
    """Run jobs until the other end is closed."""
    for line in sys.stdin.buffer:
        job = msgspec.json.decode(line, type=CampaignJob)
        try:
            done = _run(job)
        except Exception as error:
            traceback.print_exc()
            done = broken(job, f"{type(error).__name__} in the harness: {error}")
        sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
        sys.stdout.buffer.flush()


def _run(job: CampaignJob) -> JobDone:
    """Run a seed; its directory is kept below that of the campaign, `out`, if it is not clean."""
    began = time.process_time()
    assert job.out is not None, "Spark reads the output of tasks there"
    out = Path(job.out)
    with tempfile.TemporaryDirectory(prefix="kraftsim-seed-") as scratch:
        run = Path(scratch) / "run"
        result = run_request(job.request(), run)
        ingest_runs([run], out / EVENTS, names=[f"{job.name}-{job.seed}"])
        kept = out / FOUND / f"{job.name}-{job.seed}"
        if result.outcome != OK and not kept.exists():
            shutil.copytree(run, kept)
        result = msgspec.structs.replace(result, out=str(kept) if result.outcome != OK else None)
    return JobDone(result=result, cpu_seconds=time.process_time() - began)


if __name__ == "__main__":
    main()

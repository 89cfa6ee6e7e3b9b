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
from contextlib import nullcontext
from pathlib import Path

import msgspec

from kraftsim.analysis.ingest import ingest_runs
from kraftsim.lab.campaign.code_paths import recorded
from kraftsim.lab.campaign.worker_pool import OK, CampaignJob, JobDone, broken
from kraftsim.lab.explore.blocking import unblocked
from kraftsim.lab.explore.run import run_request

EVENTS, FOUND, DONE, CODE = "events", "found", "done", "code"


def main() -> None:
    """Run jobs until the other end is closed."""
    for line in sys.stdin.buffer:
        job = msgspec.json.decode(line, type=CampaignJob)
        try:
            with unblocked():
                done = _run(job)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            traceback.print_exc()
            done = broken(job, f"{type(error).__name__} in the harness: {error}")
        _leave(job, done)
        sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
        sys.stdout.buffer.flush()


def _run(job: CampaignJob) -> JobDone:
    """Run a seed; its directory is kept below that of the campaign, `out`, if it is not clean."""
    began = time.process_time()
    assert job.out is not None, "Spark reads the output of tasks there"
    out = Path(job.out)
    with tempfile.TemporaryDirectory(prefix="kraftsim-seed-") as scratch:
        run = Path(scratch) / "run"
        with recorded(code_file(job)) if job.terms.code_paths else nullcontext():
            result = run_request(job.request(), run)
        ingest_runs([run], out / EVENTS, names=[job.run])
        kept = out / FOUND / job.run
        if result.outcome != OK and not kept.exists():
            shutil.copytree(run, kept)
        result = msgspec.structs.replace(result, out=str(kept) if result.outcome != OK else None)
    return JobDone(result=result, cpu_seconds=time.process_time() - began)


def done_file(job: CampaignJob) -> Path:
    """Return the file that a finished job leaves, for the progress of its campaign."""
    assert job.out is not None, "Spark reads the output of tasks there"
    return Path(job.out) / DONE / f"{job.run}.json"


def code_file(job: CampaignJob) -> Path:
    """Return the file with the jumps in the rules that a job makes, if it records them."""
    assert job.out is not None, "Spark reads the output of tasks there"
    return Path(job.out) / CODE / f"{job.run}.json"


def _leave(job: CampaignJob, done: JobDone) -> None:
    file = done_file(job)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_bytes(msgspec.json.encode(done))
    unfinished.replace(file)


if __name__ == "__main__":
    main()

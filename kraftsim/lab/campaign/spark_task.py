"""The code inside a Spark task: it sends its seeds, one after the other, to a child process and
yields the results.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator

import msgspec

from kraftsim.lab.campaign.worker_pool import CampaignJob, JobDone, broken

CHILD = "kraftsim.lab.campaign.spark_child"


def run_jobs(pending_jobs: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a `JobDone` for each `CampaignJob`, both as JSON. A child that dies costs one seed."""
    child: subprocess.Popen[bytes] | None = None
    try:
        for data in pending_jobs:
            if child is None:
                child = subprocess.Popen(
                    [sys.executable, "-m", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            assert child.stdin is not None and child.stdout is not None, "both are pipes"
            child.stdin.write(data + b"\n")
            child.stdin.flush()
            answer = child.stdout.readline()
            if answer:
                yield answer
                continue
            exit_code, child = child.wait(), None
            yield msgspec.json.encode(_lost(data, exit_code))
    finally:
        if child is not None:
            child.kill()
            child.wait()


def _lost(data: bytes, exit_code: int) -> JobDone:
    return broken(
        msgspec.json.decode(data, type=CampaignJob),
        f"its worker process died (exit code {exit_code})",
    )

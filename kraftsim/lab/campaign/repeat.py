"""A process that reads seeds from its standard input, runs them, and answers with the result of
each: one JSON line.

Started by `identity` under a hash seed of its own: `python -m kraftsim.lab.campaign.repeat`.
"""

import sys
import time
from pathlib import Path

import msgspec

from kraftsim.lab.campaign.worker_pool import CampaignJob, JobDone
from kraftsim.lab.explore.run import run_request


def main() -> None:
    """Run seeds until the other end is closed."""
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(
            msgspec.json.encode(_run(msgspec.json.decode(line, type=CampaignJob))) + b"\n"
        )
        sys.stdout.buffer.flush()


def _run(job: CampaignJob) -> JobDone:
    """Run a seed, and keep the run in the directory `out` if there is one."""
    began = time.process_time()
    result = run_request(job.request(), None if job.out is None else Path(job.out))
    return JobDone(result=result, cpu_seconds=time.process_time() - began)


if __name__ == "__main__":
    main()

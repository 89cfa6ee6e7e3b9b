"""The code inside a Spark task: it sends its seeds, one after the other, to a child process and yields the results."""

import subprocess
import sys
from collections.abc import Iterable, Iterator

import msgspec

from kraftsim.campaign.errand import Done, Errand, broken

CHILD = "kraftsim.campaign.spark_child"


def play_errands(errands: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a `Done` for each `Errand`, both as JSON. A child that dies costs one seed."""
    child: subprocess.Popen[bytes] | None = None
    try:
        for data in errands:
            if child is None:
                child = subprocess.Popen([sys.executable, "-m", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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


def _lost(data: bytes, exit_code: int) -> Done:
    return broken(msgspec.json.decode(data, type=Errand), f"its worker process died (exit code {exit_code})")

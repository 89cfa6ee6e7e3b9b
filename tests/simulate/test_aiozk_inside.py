"""aiozk, unmodified, inside virtual time: an exclusive lock on kraftsim's ZooKeeper, and
reproducible runs.
"""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "aiozk_program.py"
TURNS = 6


def run(seed: int, hash_seed: str) -> tuple[bool, str, list[str]]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(seed)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    is_pinned, digest, held = done.stdout.strip().splitlines()[-1].split(" ")
    return is_pinned == "True", digest, held.split(",")


def test_aiozk_lock_is_exclusive_after_a_crash_and_the_run_is_reproducible() -> None:
    (is_pinned, first, held), (is_pinned_too, second, _) = (
        run(seed=3, hash_seed="1"),
        run(seed=3, hash_seed="77"),
    )
    *held, number = held
    assert (held.count("client-0"), held.count("client-2")) == (TURNS, TURNS) and 0 < held.count(
        "client-1"
    ) < TURNS, "client-1 is killed"
    assert len(held) - 1 <= int(number) <= len(held), (
        "no step was lost to another client; the last one of the killed client may be missing"
    )
    assert first == second or not (is_pinned and is_pinned_too)

"""aiozk, unmodified, inside virtual time: a lock that is held by one at a time, on our ZooKeeper, and runs that repeat themselves."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "aiozk_program.py"
TURNS = 6


def run(seed: int, hash_seed: str) -> tuple[bool, str, list[str]]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, str(PROGRAM), str(seed)], capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    is_pinned, digest, held = done.stdout.strip().splitlines()[-1].split(" ")
    return is_pinned == "True", digest, held.split(",")


def test_what_is_done_under_a_lock_is_done_by_one_at_a_time_though_one_dies_and_repeats_itself_under_the_pinned_launcher() -> None:
    (is_pinned, first, held), (is_pinned_too, second, _) = run(seed=3, hash_seed="1"), run(seed=3, hash_seed="77")
    *held, number = held
    assert (held.count("client-0"), held.count("client-2")) == (TURNS, TURNS) and 0 < held.count("client-1") < TURNS, "client-1 is killed"
    assert len(held) - 1 <= int(number) <= len(held), "no step was lost to another one; the dead one's last may not have been made"
    assert first == second or not (is_pinned and is_pinned_too)

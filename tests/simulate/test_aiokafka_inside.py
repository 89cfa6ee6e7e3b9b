"""An unmodified third-party client runs inside virtual time, and is reproducible under the pinned
launcher.
"""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "aiokafka_program.py"
RECORDS = 60


@cache
def run(seed: int, hash_seed: str, program: str) -> tuple[bool, str, list[str]]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(seed), program],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    is_pinned, digest, read = done.stdout.strip().splitlines()[-1].split(" ")
    return is_pinned == "True", digest, read.split(",")


@pytest.mark.parametrize("program", ["idempotent", "transactions"])
def test_aiokafka_neither_loses_nor_duplicates_records_when_a_broker_dies(program: str) -> None:
    """It retries with the same sequences (KIP-98); in transactions a group member commits offsets
    and records together.
    """
    _, _, read = run(11, "1", program)
    assert read == [str(index) for index in range(RECORDS)]


@pytest.mark.parametrize("program", ["idempotent", "transactions"])
def test_run_with_aiokafka_is_reproducible_under_the_pinned_launcher(program: str) -> None:
    """Third-party code depends on hash seeds and addresses; the launcher fixes both."""
    (first_pinned, first_digest, _), (second_pinned, second_digest, _) = (
        run(11, "1", program),
        run(11, "77", program),
    )
    if first_pinned and second_pinned:
        assert first_digest == second_digest
    else:
        assert (
            first_digest and second_digest
        )  # the kernel refused to fix addresses; the launcher reported it

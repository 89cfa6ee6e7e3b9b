"""aiokafka does in virtual time what it does against sockets: the same program, the same records,
offsets, generations and exceptions.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "aiokafka_behaviour.py"
MODES = ("simulated", "sockets")
PARTS = ("produced", "consumed", "shared", "transacted")


@cache
def observed() -> dict[str, dict[str, Any]]:
    """Return what the program observed in each mode; both run at the same time."""
    running = {
        mode: subprocess.Popen(
            [sys.executable, str(PROGRAM), mode],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        for mode in MODES
    }
    found = {}
    for mode, process in running.items():
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors[-4000:]
        found[mode] = json.loads(out)
    return found


@pytest.mark.parametrize("part", PARTS)
def test_aiokafka_in_virtual_time_equals_aiokafka_against_sockets(part: str) -> None:
    """Values are compared one by one, so that a failure names the one that differs."""
    simulated, over_sockets = (observed()[mode][part] for mode in MODES)
    assert list(simulated) == list(over_sockets)
    assert {
        name: (value, over_sockets[name])
        for name, value in simulated.items()
        if value != over_sockets[name]
    } == {}


def test_the_compared_program_commits_aborts_rebalances_and_is_fenced() -> None:
    """Two empty results would be equal, too."""
    found = observed()["simulated"]
    assert len(found["consumed"]["records"]) == 14
    assert found["consumed"]["committed"] == [2, 4]
    assert found["consumed"]["out of range"] == ["OffsetOutOfRangeError", 1]
    assert [found["shared"][name] for name in ("alone", "second of two", "alone again")] == [
        [1, 2],
        [2, 1],
        [3, 2],
    ]
    assert found["shared"]["stale generation"][0] == "CommitFailedError"
    transacted = found["transacted"]
    assert transacted["offset of the group"] == 5
    assert transacted["fenced in commit"] == transacted["timed out"] == ["ProducerFenced", None]
    committed = [value for _, value in transacted["read_committed"]]
    assert committed == ["committed", "committed, too", "of the successor"]
    both = [value for _, value in transacted["read_uncommitted"]]
    assert sorted(set(both) - set(committed)) == ["aborted", "of a zombie", "too slow"]

"""Runs the tests of rows in one process, and returns whether they passed and the figures that they
recorded.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.claims.recording import OPTION

LANES = ("not interop", "interop")


@dataclass(slots=True)
class FoundTest:
    """The result of a test or test file.

    It passed if at least one case ran and all cases passed.
    """

    passed: bool = False
    figures: dict[str, object] = field(default_factory=dict)
    is_interop: bool = False


def measure_tests(names: Sequence[str], house: Path) -> dict[str, FoundTest]:
    """Run tests by their node ids."""
    found = {name: FoundTest() for name in names}
    for lane in LANES:
        asked = [name for name in names if not found[name].passed]
        if not asked:
            break
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "figures.json"
            order = [sys.executable, "-m", "pytest", "-q", "-m", lane, OPTION, str(file), *asked]
            subprocess.run(order, cwd=house, check=False)
            rows = json.loads(file.read_text()) if file.exists() else {}
        for name in asked:
            own = [
                each
                for node_id, each in rows.items()
                if node_id == name or node_id.startswith(f"{name}::")
            ]
            outcomes = {outcome for each in own for outcome in each["outcomes"]}
            if outcomes:
                figures = {key: value for each in own for key, value in each["figures"].items()}
                found[name] = FoundTest(
                    passed=outcomes == {"passed"}, figures=figures, is_interop=lane == "interop"
                )
    return found

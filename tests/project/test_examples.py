"""Every file of examples/ runs and prints the output shown on its page."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraftsim.cluster.ports import free_port_range

PROJECT_ROOT = Path(__file__).parents[2]
EXAMPLES = PROJECT_ROOT / "examples"


def run(*command: str) -> str:
    """Run a Python program from the root of the source tree and return what it prints."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT_ROOT,
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_find_a_bug_prints_the_violation_and_how_to_replay_it() -> None:
    shown = run("examples/find_a_bug.py")
    assert "high-watermark-flushed" in shown and "replay: kraftsim scenario" in shown


def test_read_events_counts_allocated_blocks() -> None:
    shown = run("examples/read_events.py", "--seed", "7")
    assert "events of" in shown and "blocks of producer ids" in shown


@pytest.mark.interop
def test_kill_nodes_starts_kills_and_restarts(tmp_path: Path) -> None:
    port = str(free_port_range(2))
    shown = run("examples/kill_nodes.py", "--data", str(tmp_path / "up"), "--port", port)
    assert "broker-2 killed" in shown and "broker-2 started again" in shown
    assert "knows brokers 1, 2" in shown and "5 nodes stopped" in shown


@pytest.mark.spark
@pytest.mark.interop
def test_query_events_asks_spark() -> None:
    assert "controller-101 allocated" in run("examples/query_events.py")


@pytest.mark.interop
def test_the_pytest_example_passes() -> None:
    shown = run("-m", "pytest", "-q", "-m", "interop", "examples/test_with_a_cluster.py")
    assert "1 passed" in shown


def test_the_page_names_every_example() -> None:
    named = (EXAMPLES / "README.md").read_text()
    files = [file.name for file in EXAMPLES.glob("*.py")]
    assert len(files) >= 5 and not [file for file in files if f"`{file}`" not in named]

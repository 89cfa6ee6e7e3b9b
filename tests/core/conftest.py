"""Shared fixtures of the core tests: emitted events, and command scripts with their expected
output.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kraftsim.events.event import Event

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def emitted() -> list[Event]:
    """Collect the events that a core emits: pass `emitted.append` as its callback."""
    return []


@pytest.fixture
def run_script(request: pytest.FixtureRequest) -> Callable[[str, Callable[[str], str]], None]:
    """Run a script: blocks of commands, a line of hyphens, and the expected output.

    Source: etcd raft's interaction tests.
    """
    return partial(compare_script, rewrites=request.config.getoption("--rewrite-scripts"))


def compare_script(name: str, answer: Callable[[str], str], *, rewrites: bool) -> None:
    """Compare the script with the actual output, or write that into it.

    `answer` takes one command line and returns its lines.
    """
    path = SCRIPTS / f"{name}.txt"
    expected = path.read_text()
    actual = (
        "\n\n".join(_run_block(block, answer) for block in expected.strip().split("\n\n")) + "\n"
    )
    if rewrites:
        path.write_text(actual)
        return
    assert actual == expected, f"{path.name} has other output"


def _run_block(block: str, answer: Callable[[str], str]) -> str:
    commands = block.split("\n----")[0]
    if all(line.startswith("#") for line in commands.splitlines()):
        return commands
    answers = [answer(line) for line in commands.splitlines() if not line.startswith("#")]
    return "\n".join([commands, "----", *(text for text in answers if text)])

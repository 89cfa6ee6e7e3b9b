"""What the tests of the rules share: the facts that were noted, and scripts that read like a conversation."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kraftsim.events.event import Event

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def noted() -> list[Event]:
    """Collect what a core says has happened: pass `noted.append` as its note."""
    return []


@pytest.fixture
def play(request: pytest.FixtureRequest) -> Callable[[str, Callable[[str], str]], None]:
    """Play a script: blocks of commands, a line of hyphens, and what they must answer.   Source: etcd raft's interaction tests."""
    return partial(play_script, rewrites=request.config.getoption("--rewrite-scripts"))


def play_script(name: str, answer: Callable[[str], str], *, rewrites: bool) -> None:
    """Compare the script with what happens, or write that into it. `answer` takes one command line and returns its lines."""
    path = SCRIPTS / f"{name}.txt"
    expected = path.read_text()
    actual = "\n\n".join(_played(block, answer) for block in expected.strip().split("\n\n")) + "\n"
    if rewrites:
        path.write_text(actual)
        return
    assert actual == expected, f"{path.name} tells another story"


def _played(block: str, answer: Callable[[str], str]) -> str:
    commands = block.split("\n----")[0]
    if all(line.startswith("#") for line in commands.splitlines()):
        return commands
    answers = [answer(line) for line in commands.splitlines() if not line.startswith("#")]
    return "\n".join([commands, "----", *(text for text in answers if text)])

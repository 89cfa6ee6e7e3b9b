"""No core that takes steps is left out of the scripts, and no script is left unplayed."""

import ast
import re
from pathlib import Path

CORE = Path(__file__).parents[2] / "kraftsim" / "core"
TESTS = Path(__file__).parent
STEPS = {"step", "take_effects"}
CONVERSATIONS = {"security"}
"""Rooms whose steps are the tokens of a login, which KIPs and RFCs give as tables."""

PARTS_OF_A_SHARD = {"Outbox", "ConsumerGroups"}


def steppers() -> set[str]:
    """The classes that take one input at a time and say what is to be done."""
    found = set()
    for path in CORE.rglob("*.py"):
        if path.relative_to(CORE).parts[0] in CONVERSATIONS:
            continue
        for node in ast.parse(path.read_text()).body:
            is_plan = isinstance(node, ast.ClassDef) and any(isinstance(each, ast.Name) and each.id == "Protocol" for each in node.bases)
            if isinstance(node, ast.ClassDef) and not is_plan and STEPS & {each.name for each in node.body if isinstance(each, ast.FunctionDef)}:
                found.add(node.name)
    return found


def told() -> str:
    """What the scripts' talks, and the labs that they talk to, are made of."""
    return "\n".join(path.read_text() for pattern in ("test_*_scripts.py", "*_lab.py", "*_table.py") for path in sorted(TESTS.glob(pattern)))


def test_every_core_that_takes_steps_is_told_in_scripts():
    """As etcd's raft is. A shard of groups is told as a whole."""
    found = steppers()
    assert len(found) >= 10
    assert {name for name in found - PARTS_OF_A_SHARD if not re.search(rf"\b{name}\b", told())} == set()


def test_every_script_is_played():
    """A script that nobody plays tells what was true once."""
    text = told() + (TESTS / "test_broker_lifecycle.py").read_text()
    assert [path.stem for path in sorted((TESTS / "scripts").glob("*.txt")) if f'"{path.stem}"' not in text] == []

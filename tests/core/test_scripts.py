"""Every step-based core has scripts, and every script is executed."""

import ast
import re
from pathlib import Path

PRODUCT = Path(__file__).parents[2] / "kraftsim"
TESTS = Path(__file__).parent
STEPS = {"step", "on_wake", "take_effects"}
"""One of these methods tells such a class: `on_wake` a source of producer ids, and a shard."""
CONVERSATIONS = {"rules_authentication", "rules_bearer_tokens"}
"""Modules whose steps are the messages of a login, which KIPs and RFCs define in tables."""

PARTS_OF_A_SHARD = {"ConsumerGroups"}


def steppers() -> set[str]:
    """The classes that process one input at a time and return effects."""
    found = set()
    for path in PRODUCT.glob("*/rules*.py"):
        if path.stem in CONVERSATIONS:
            continue
        for node in ast.parse(path.read_text()).body:
            is_plan = isinstance(node, ast.ClassDef) and any(
                isinstance(each, ast.Name) and each.id == "Protocol" for each in node.bases
            )
            if (
                isinstance(node, ast.ClassDef)
                and not is_plan
                and STEPS & {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
            ):
                found.add(node.name)
    return found


def heirs(name: str) -> set[str]:
    """The class, and those that inherit its steps."""
    return {name} | {
        node.name
        for path in PRODUCT.glob("*/rules*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(each).partition("[")[0] == name for each in node.bases)
    }


def sources() -> str:
    """The classes used by the script drivers and their harnesses."""
    return "\n".join(
        path.read_text()
        for pattern in ("test_*_scripts.py", "*_harness.py", "*_stepper.py")
        for path in sorted(TESTS.glob(pattern))
    )


def test_every_step_based_core_has_scripts() -> None:
    """As in etcd's raft. A group shard is covered as a whole, and a class by its heirs."""
    found, text = steppers(), sources()
    assert len(found) >= 10
    unscripted = {name for name in found - PARTS_OF_A_SHARD if not re.search(rf"\b{name}\b", text)}
    assert {
        name
        for name in unscripted
        if not any(re.search(rf"\b{heir}\b", text) for heir in heirs(name))
    } == set()


def test_every_script_is_executed() -> None:
    """A script that is never executed becomes outdated."""
    text = sources() + (TESTS / "test_broker_lifecycle.py").read_text()
    assert [
        path.stem
        for path in sorted((TESTS / "scripts").glob("*.txt"))
        if f'"{path.stem}"' not in text
    ] == []

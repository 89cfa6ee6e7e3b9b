"""The folders of concerns: the packages of kraftsim that hold rules, and kraftsim/core."""

from pathlib import Path
from typing import Final

PRODUCT: Final = Path(__file__).parents[1] / "kraftsim"


def concern_names() -> tuple[str, ...]:
    """Return the names of the packages below kraftsim, sorted."""
    return tuple(sorted({"core"} | {each.parent.name for each in PRODUCT.glob("*/rules*.py")}))


def concern_files() -> list[Path]:
    """Return every Python file of a node, sorted."""
    return sorted(file for name in concern_names() for file in (PRODUCT / name).rglob("*.py"))

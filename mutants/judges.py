"""Judges that no mutant reaches: what reads the disks when a run is over has a copy of the rules of its own.

They read metadata with the same rules as nodes do, and a rule that forgets something would not miss it.
"""

import importlib
import sys
from types import ModuleType

import kraftsim
from kraftsim.explore import virtual

ROOM = "kraftsim.core"
JUDGES = {"kraftsim.core.metadata.final_metadata": "final_metadata_events", "kraftsim.core.partitions.final_log": "final_log_events"}


def set_judges_apart() -> None:
    """Let the runs of this process be judged by rules that were imported for that alone. Call before a mutant is put in."""
    shared = _taken_out()
    try:
        for module, name in JUDGES.items():
            assert hasattr(virtual, name), f"a simulated run is judged by {name}"
            setattr(virtual, name, getattr(importlib.import_module(module), name))
    finally:
        _taken_out()
        sys.modules.update(shared)
        kraftsim.core = shared[ROOM]  # type: ignore[attr-defined]


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name == ROOM or name.startswith(f"{ROOM}.")]
    return {name: sys.modules.pop(name) for name in names}

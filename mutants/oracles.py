"""Test oracles that no mutant affects: the final check of the disks uses its own copy of the rules.

The final check reads metadata with the nodes' code, so a mutant that loses something would not be
detected otherwise.
"""

import importlib
import sys
from types import ModuleType

import kraftsim
from kraftsim.explore import virtual

ROOM = "kraftsim.core"
ORACLES = {
    "kraftsim.core.metadata.final_metadata": "final_metadata_events",
    "kraftsim.core.partitions.final_log": "final_log_events",
}


def isolate_oracles() -> None:
    """Check the runs of this process with separately imported rules.

    Call before a mutant is applied.
    """
    shared = _taken_out()
    try:
        for module, name in ORACLES.items():
            assert hasattr(virtual, name), f"a simulated run is checked by {name}"
            setattr(virtual, name, getattr(importlib.import_module(module), name))
    finally:
        _taken_out()
        sys.modules.update(shared)
        kraftsim.core = shared[ROOM]  # type: ignore[attr-defined]


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name == ROOM or name.startswith(f"{ROOM}.")]
    return {name: sys.modules.pop(name) for name in names}

"""Test oracles that no mutant affects: the final check of the disks uses its own copy of the rules.

The final check reads metadata with the nodes' code, so a mutant that loses something would not be
detected otherwise.
"""

import importlib
import re
import sys
from types import ModuleType

from kraftsim.lab.explore import virtual

RULES = re.compile(r"kraftsim\.(core(\.\w+)*|\w+\.rules\w*)")
ORACLES = {
    "kraftsim.metadata.rules_image": "final_metadata_events",
    "kraftsim.partitions.rules_final_log": "final_log_events",
}


def isolate_oracles() -> None:
    """Check the runs of this process with separately imported rules.

    Call before a mutant is applied.
    """
    shared = _taken_out()
    try:
        for oracle, function in ORACLES.items():
            assert hasattr(virtual, function), f"a simulated run is checked by {function}"
            setattr(virtual, function, getattr(importlib.import_module(oracle), function))
    finally:
        _taken_out()
        sys.modules.update(shared)
        for name, module in shared.items():
            package, _, attribute = name.rpartition(".")
            setattr(sys.modules[package], attribute, module)


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if RULES.fullmatch(name)]
    return {name: sys.modules.pop(name) for name in names}

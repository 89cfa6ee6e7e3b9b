"""Names of event files on a real disk: which incarnation of a node comes next.

The files themselves are the counter, so that a number is never given twice to a node, however its earlier incarnations died.
"""

from pathlib import Path

from kraftsim.world.event_log import LINE_SUFFIX


def next_incarnation(events_dir: Path, node: str) -> int:
    """Return one more than the highest incarnation that has an event file; 1 for a node that never ran."""
    highest = 0
    for path in events_dir.glob(f"*{LINE_SUFFIX}"):
        name, _, number = path.name.removesuffix(LINE_SUFFIX).rpartition(".")
        if name == node and number.isdecimal():
            highest = max(highest, int(number))
    return highest + 1

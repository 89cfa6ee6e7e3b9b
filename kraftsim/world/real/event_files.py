"""Names of event files on a real disk, and the number of a node's next incarnation.

The files themselves are the counter, so that a node never gets a number twice, however its earlier
incarnations ended.
"""

from pathlib import Path

from kraftsim.world.event_log import LINE_SUFFIX


def next_incarnation(events_dir: Path, node: str) -> int:
    """Return one more than the highest incarnation that has an event file; 1 for a node that never
    ran.
    """
    highest = 0
    for path in events_dir.glob(f"*{LINE_SUFFIX}"):
        name, _, number = path.name.removesuffix(LINE_SUFFIX).rpartition(".")
        if name == node and number.isdecimal():
            highest = max(highest, int(number))
    return highest + 1

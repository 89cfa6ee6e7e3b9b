"""Faults of disks that a real machine can have by request: what is on the disk of a node changes
while the node is down.

The files of a real process cannot be made slow, full or unreadable without rights that a test does
not have, and nothing shows which bytes were flushed and which are only in the page cache.
Simulation has these faults (`kraftsim list faults`).
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftsim.cluster.directories import LOCK_FILE

METADATA_LOG: Final = "__cluster_metadata-0"
"""A controller does not start with a corrupt metadata log, and the cluster ends with it."""
FLIPPED_BIT: Final = 1


@dataclass(frozen=True, slots=True)
class DiskChange:
    """What a fault changed on a disk, in words."""

    changed: bool
    text: str


@dataclass(frozen=True, slots=True)
class DiskFault:
    """A fault by its name in `kraftsim list faults`. `inject` gets the data directory of a node
    that is down.
    """

    name: str
    title: str
    inject: Callable[[Path], DiskChange]


def lose_disk(data: Path) -> DiskChange:
    """Delete everything on a disk: the node starts with an empty one, and formats it."""
    files = sum(each.is_file() for each in data.rglob("*") if each.name != LOCK_FILE)
    for entry in sorted(data.iterdir()) if data.is_dir() else ():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != LOCK_FILE:
            entry.unlink()
    return DiskChange(files > 0, f"{files} files are gone" if files else "the disk was empty")


def rot_bit(data: Path) -> DiskChange:
    """Flip a bit in the middle of the largest segment of a partition: no checksum holds."""
    segments = [
        (segment.stat().st_size, segment)
        for segment in sorted(data.glob("*/*.log"))
        if segment.parent.name != METADATA_LOG
    ]
    size_bytes, segment = max(segments, key=lambda each: each[0], default=(0, data))
    if not size_bytes:
        return DiskChange(False, "no partition has a record")
    position = size_bytes // 2
    with segment.open("r+b") as file:
        file.seek(position)
        right = file.read(1)[0]
        wrong = right ^ FLIPPED_BIT
        file.seek(position)
        file.write(bytes([wrong]))
    where = segment.relative_to(data).as_posix()
    return DiskChange(True, f"byte {position} of {where} is {wrong:#04x} instead of {right:#04x}")


DISK_FAULTS: Final = (
    DiskFault("lost-disk", "a disk replaced by an empty one", lose_disk),
    DiskFault("bit-rot", "bit rot on the disk", rot_bit),
)

"""The state of a simulated disk that outlives processes: names and files, and what a power loss
takes of them.

Names are durable only after a flush of their directory, as in POSIX. Unflushed changes are in a
journal, in order: a power loss may lose all of it, none, or its end.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from random import Random
from typing import Protocol

from kraftsim.world.simulated.disk_faults import DiskFaults, FileClass, file_class
from kraftsim.world.simulated.inode import Fate, Inode

NAMES_KEPT = 0.3
"""How often the file system had already written its journal before a power loss."""
DiskWatch = Callable[[str, FileClass, str], None]
"""Called with (operation, file class, moment): 'write', 'flush', 'rename' or 'remove' (only after),
'before' or 'after'.
"""


class DrawingProcess(Protocol):
    """The process that a power loss ends."""

    def random(self, purpose: str) -> Random:
        """Return the stream of a purpose."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class NameChange:
    """A creation, removal or rename of a file that is not durable in its directory yet."""

    gone: str | None = None
    given: str | None = None
    inode: Inode | None = None
    is_directory: bool = False
    """A rename of a directory, with everything below it."""


class Names(Enum):
    """The effect of a power loss on unflushed names, if a fault chooses it instead of a random
    draw.
    """

    KEPT = auto()
    """All changes survive: the file system had already written its journal."""
    LOST = auto()
    """None is there."""
    SOME = auto()
    """At least the last one is lost; a file system keeps the order of its journal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wreck:
    """The effects of a power loss; None: random."""

    names: Names | None = None
    fate: Fate | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Losses:
    """The losses of a power loss: bytes that processes had read or written, torn files, and undone
    changes of names.
    """

    lost_bytes: int = 0
    torn_files: int = 0
    lost_names: int = 0


AT_RANDOM = Wreck()


class DurableDisk:
    """Names and files that outlive a process.

    `names` are those that processes see, `durable_names` those that survive any power loss.
    """

    def __init__(self, *, flush_ns: tuple[int, int]) -> None:
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self.journal: list[NameChange] = []
        """The changes from the durable names to the present ones, in order."""
        self.flush_ns = flush_ns
        self.faults = DiskFaults()
        self.watch: DiskWatch | None = None
        self.is_replacement = False
        """Whether it replaced a lost one: so that formatting it is not taken for a first start."""

    @property
    def unflushed_bytes(self) -> int:
        """How many bytes a power loss may lose."""
        return sum(inode.unflushed_bytes for inode in self.names.values())

    def durable_files(self, kind: FileClass | None) -> list[str]:
        """Return the paths of the files of a kind (None: of any) with durable bytes."""
        return sorted(
            path
            for path, inode in self.names.items()
            if inode.flushed_bytes and kind in (None, file_class(path))
        )

    def content(self) -> dict[str, bytes]:
        """Return all files as processes see them."""
        return {path: bytes(inode.cache) for path, inode in sorted(self.names.items())}

    def after_kill(self) -> "DurableDisk":
        """Return the disk for the next process after only the process died."""
        clones: dict[int, Inode] = {}

        def copied(inode: Inode) -> Inode:
            if id(inode) not in clones:
                clones[id(inode)] = inode.copy()
            return clones[id(inode)]

        left = self._successor()
        left.names = {path: copied(inode) for path, inode in self.names.items()}
        left.durable_names = {path: copied(inode) for path, inode in self.durable_names.items()}
        left.journal = [
            replace(change, inode=None if change.inode is None else copied(change.inode))
            for change in self.journal
        ]
        return left

    def after_power_loss(
        self, process: DrawingProcess, wreck: Wreck = AT_RANDOM
    ) -> tuple["DurableDisk", Losses]:
        """Return the disk for the next process after a power loss, and the losses."""
        draw = process.random("power loss")
        survivors = self._surviving_names(draw, wreck.names)
        lost_bytes = sum(
            len(inode.cache)
            for path, inode in self.names.items()
            if survivors.get(path) is not inode
        )
        torn_files = 0
        left = self._successor()
        images: dict[int, Inode] = {}
        for path in sorted(survivors):
            inode = survivors[path]
            if id(inode) not in images:
                images[id(inode)], lost = inode.after_power_loss(draw, wreck.fate)
                lost_bytes += lost
                torn_files += 0 < lost < inode.unflushed_bytes or (
                    lost > 0 and len(images[id(inode)].cache) > inode.flushed_bytes
                )
                self._report_lying_flushes(inode, images[id(inode)], path)
            left.names[path] = images[id(inode)]
        left.durable_names = dict(left.names)
        lost_names = sum(
            self.names.get(path) is not survivors.get(path)
            for path in self.names.keys() | survivors.keys()
        )
        return left, Losses(lost_bytes=lost_bytes, torn_files=torn_files, lost_names=lost_names)

    def put(self, image: "DurableDisk") -> None:
        """Replace the content by that of another disk, without the damages of its medium; all of it
        is durable.
        """
        self.names = {path: inode.on_another_medium() for path, inode in image.names.items()}
        self.durable_names = dict(self.names)
        self.journal.clear()

    def lose_everything(self) -> int:
        """Replace the content by an empty disk; return how many files are lost."""
        lost = len(self.names)
        self.put(DurableDisk(flush_ns=self.flush_ns))
        self.is_replacement = True
        return lost

    def _surviving_names(self, draw: Random, names: Names | None) -> dict[str, Inode]:
        if names is None:
            return self.names if draw.random() < NAMES_KEPT else self.durable_names
        if names is Names.KEPT or not self.journal:
            return self.names
        survivors = dict(self.durable_names)
        for change in self.journal[
            : draw.randrange(len(self.journal)) if names is Names.SOME else 0
        ]:
            if change.is_directory:
                survivors = moved(survivors, change)
            elif change.gone is not None:
                survivors.pop(change.gone, None)
            if change.given is not None and change.inode is not None and not change.is_directory:
                survivors[change.given] = change.inode
        return survivors

    def _report_lying_flushes(self, inode: Inode, left: Inode, path: str) -> None:
        """Report an effect to the fault if flushes had returned for lost bytes."""
        lie = (
            self.faults.lie_for(file_class(path))
            if inode.promised_bytes > inode.flushed_bytes
            else None
        )
        if (
            lie is not None
            and left.cache[: inode.promised_bytes] != inode.cache[: inode.promised_bytes]
        ):
            lie.record_effect(f"flushed bytes of {path} were lost")

    def _successor(self) -> "DurableDisk":
        left = DurableDisk(flush_ns=self.flush_ns)
        left.faults = self.faults
        left.watch = self.watch
        left.is_replacement = self.is_replacement
        return left


def moved(names: dict[str, Inode], change: NameChange) -> dict[str, Inode]:
    """Return the names after a rename of a directory."""
    assert change.is_directory and change.gone is not None and change.given is not None, (
        "of a directory"
    )
    former, new = change.gone + "/", change.given + "/"
    return {
        new + path.removeprefix(former) if path.startswith(former) else path: inode
        for path, inode in names.items()
    }

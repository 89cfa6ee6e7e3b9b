"""One file of a simulated disk: what a process sees of it, what would survive a power loss, and what is in between.

Between two flushes a write is neither safe nor lost. A power loss decides: usually all of it is gone, sometimes a part stays, cut in mid sector.
A flush that is refused forgets which pages were dirty: they stay readable and are never written any more (fsyncgate).
"""

from enum import Enum, auto
from random import Random

from kraftsim.world.simulated.damage import Damage

SECTOR_BYTES = 512
EVERYTHING_LOST, PREFIX_KEPT, SECTORS_KEPT = 0.55, 0.80, 0.92
"""Limits of one draw: below the first all unflushed bytes are lost, then a torn prefix stays, then scattered sectors; above the last, everything."""


class Fate(Enum):
    """What a power loss may do to bytes that were written and not flushed, where a fault does not leave it to chance."""

    LOST = auto()
    """All are gone."""
    PREFIX = auto()
    """The first of them are there: whole sectors, or within a single sector as many bytes as were on their way."""
    HOLES = auto()
    """Some sectors are there and some are not, whatever their order; those that are not read as zeros."""
    ZEROS = auto()
    """The file is as long as it was, and reads as zeros: its length was written, and nothing else."""
    KEPT = auto()
    """All are there."""


class Sync:
    """A flush under way: everything below `target` was written before it began."""

    __slots__ = ("target",)

    def __init__(self, target: int) -> None:
        self.target = target


class Inode:
    """The bytes of a file. `cache` is the page cache; below `flushed_bytes` it is on the platter, too."""

    __slots__ = ("_cut_tail", "_never_written", "_syncs", "cache", "damages", "flushed_bytes", "promised_bytes")

    def __init__(self, durable: bytes = b"") -> None:
        self.cache = bytearray(durable)
        self.flushed_bytes = len(durable)
        self._cut_tail = b""
        """Bytes that a truncation took out of the cache and that the platter still has, from flushed_bytes on."""
        self._never_written: list[tuple[int, int]] = []
        self._syncs: list[Sync] = []
        self.promised_bytes = 0
        """Below it flushes have returned, some of which did nothing."""
        self.damages: list[Damage] = []
        """What the medium gives back wrong; those that are not `is_seen` come to light with the next incarnation."""

    @property
    def unflushed_bytes(self) -> int:
        """How many bytes a power loss may take."""
        return len(self.cache) - self.flushed_bytes

    def truncate(self, size_bytes: int) -> None:
        """Cut the cache; the platter follows at the next flush."""
        assert size_bytes <= len(self.cache), "a truncation does not make a file longer"
        if size_bytes < self.flushed_bytes:
            self._cut_tail = bytes(self.cache[size_bytes : self.flushed_bytes]) + self._cut_tail
            self.flushed_bytes = size_bytes
        del self.cache[size_bytes:]
        for sync in self._syncs:
            sync.target = min(sync.target, size_bytes)
        self._never_written = [(first, min(end, size_bytes)) for first, end in self._never_written if first < size_bytes]
        self.promised_bytes = min(self.promised_bytes, size_bytes)
        self.damages = [damage for damage in self.damages if not damage.is_seen or damage.position + len(damage.wrong) <= size_bytes]

    def begin_sync(self) -> Sync:
        """Begin a flush of everything that was written so far."""
        sync = Sync(len(self.cache))
        self._syncs.append(sync)
        return sync

    def end_sync(self, sync: Sync) -> None:
        """The flush reached the platter."""
        self._syncs.remove(sync)
        if sync.target >= self.flushed_bytes:
            self.flushed_bytes = sync.target
            self._cut_tail = b""

    def pretend_sync(self, sync: Sync) -> None:
        """The flush returned, and nothing reached the platter."""
        self._syncs.remove(sync)
        self.promised_bytes = max(self.promised_bytes, sync.target)

    def keep_promise(self) -> None:
        """What flushes said to have written reaches the platter."""
        if self.promised_bytes > self.flushed_bytes:
            self.flushed_bytes = self.promised_bytes
            self._cut_tail = b""

    def fail_sync(self, sync: Sync) -> int:
        """The flush was refused: its pages count as clean from now on and are never written. Returns how many bytes are affected."""
        self._syncs.remove(sync)
        doomed = max(0, sync.target - self.flushed_bytes)
        if doomed:
            self._never_written.append((self.flushed_bytes, sync.target))
        return doomed

    def copy(self) -> "Inode":
        """Return the file as it is after a process was killed: the page cache lives on in the kernel, flushes under way are forgotten."""
        copied = Inode()
        copied.cache = bytearray(self.cache)
        copied.flushed_bytes = self.flushed_bytes
        copied._cut_tail = self._cut_tail
        copied._never_written = list(self._never_written)
        copied.promised_bytes = self.promised_bytes
        self._hand_on_damages(copied)
        return copied

    def hurt(self, damage: Damage) -> None:
        """Let the medium give something back wrong, from the next incarnation on."""
        self.damages.append(damage)

    def mend(self, damage: Damage) -> None:
        """Let the medium give back again what was written, if the process has not put anything else in its place."""
        for own in [own for own in self.damages if own.origin is damage]:
            self.damages.remove(own)
            if own.is_seen:
                self.flushed_bytes += own.undo(self.cache)

    def touches(self, first: int, end: int) -> None:
        """Somebody reads these bytes."""
        for damage in self.damages:
            if damage.is_seen and damage.is_within(first, end):
                damage.bite(damage.effect)

    def _hand_on_damages(self, successor: "Inode") -> None:
        for damage in self.damages:
            handed_on = damage.seen_in(successor.cache)
            if handed_on is not None:
                successor.damages.append(handed_on)
                successor.flushed_bytes = min(successor.flushed_bytes, len(successor.cache))

    def after_power_loss(self, draw: Random, fate: Fate | None = None) -> tuple["Inode", int]:
        """Return the file as it is after a power loss, and how many bytes of the cache it has lost. Without a fate chance decides."""
        image, lost = self._image_after_power_loss(draw, fate)
        left = Inode(bytes(image))
        self._hand_on_damages(left)
        return left, lost

    def _image_after_power_loss(self, draw: Random, fate: Fate | None) -> tuple[bytearray, int]:
        image = bytearray(self.cache[: self.flushed_bytes])
        written = bytes(self.cache[self.flushed_bytes :])
        if not written and not self._cut_tail and not self._never_written:
            return image, 0
        kept = _kept(written, draw) if fate is None else _torn(written, self.flushed_bytes, draw, fate)
        if self._cut_tail and len(kept) < len(self._cut_tail) and draw.random() < 0.5:
            kept += self._cut_tail[len(kept) :]
        image += kept
        for first, end in self._never_written:
            image[first:end] = bytes(min(end, len(image)) - first) if first < len(image) else b""
        lost = sum(1 for position in range(self.flushed_bytes, len(self.cache)) if position >= len(image) or image[position] != self.cache[position])
        lost += sum(end - first for first, end in self._never_written if end <= self.flushed_bytes)
        return image, lost


def _kept(written: bytes, draw: Random) -> bytes:
    """Return what is on the platter of the bytes that were written and not flushed."""
    fate = draw.random()
    if fate < EVERYTHING_LOST:
        return b""
    if fate < PREFIX_KEPT:
        return written[: int(draw.random() * (len(written) + 1))]
    if fate < SECTORS_KEPT:
        return _scattered(written, draw)
    return written


def _scattered(written: bytes, draw: Random) -> bytes:
    """Return the sectors that happened to be written; a missing one reads as zeros if a later one is there."""
    image = bytearray()
    for first in range(0, len(written), SECTOR_BYTES):
        if draw.random() < 0.5:
            image.extend(bytes(first - len(image)))
            image += written[first : first + SECTOR_BYTES]
    return bytes(image)


def _torn(written: bytes, position: int, draw: Random, fate: Fate) -> bytes:
    """Return what is on the platter of bytes that were written at a position, if a power loss does just this to them."""
    if fate is Fate.KEPT:
        return written
    if fate is Fate.LOST or not written:
        return b""
    if fate is Fate.ZEROS:
        return bytes(len(written))
    ends = [*range(SECTOR_BYTES - position % SECTOR_BYTES, len(written), SECTOR_BYTES), len(written)]
    if len(ends) == 1:
        return written[: draw.randrange(1, len(written))] if len(written) > 1 else b""
    if fate is Fate.PREFIX:
        return written[: draw.choice(ends[:-1])]
    is_there = [draw.random() < 0.5 for _ in ends]
    if all(is_there) or not any(is_there):
        is_there[draw.randrange(len(ends))] ^= True
    image = bytearray()
    for first, end, there in zip([0, *ends], ends, is_there, strict=False):
        if there:
            image.extend(bytes(first - len(image)))
            image += written[first:end]
    return bytes(image)

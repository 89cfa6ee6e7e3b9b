"""One file of a simulated disk: what a process sees of it, what would survive a power loss, and what is in between.

Between two flushes a write is neither safe nor lost. A power loss decides: usually all of it is gone, sometimes a part stays, cut in mid sector.
A flush that is refused forgets which pages were dirty: they stay readable and are never written any more (fsyncgate).
"""

from random import Random

SECTOR_BYTES = 512
EVERYTHING_LOST, PREFIX_KEPT, SECTORS_KEPT = 0.55, 0.80, 0.92
"""Limits of one draw: below the first all unflushed bytes are lost, then a torn prefix stays, then scattered sectors; above the last, everything."""


class Sync:
    """A flush under way: everything below `target` was written before it began."""

    __slots__ = ("target",)

    def __init__(self, target: int) -> None:
        self.target = target


class Inode:
    """The bytes of a file. `cache` is the page cache; below `flushed_bytes` it is on the platter, too."""

    __slots__ = ("_cut_tail", "_never_written", "_syncs", "cache", "flushed_bytes")

    def __init__(self, durable: bytes = b"") -> None:
        self.cache = bytearray(durable)
        self.flushed_bytes = len(durable)
        self._cut_tail = b""
        """Bytes that a truncation took out of the cache and that the platter still has, from flushed_bytes on."""
        self._never_written: list[tuple[int, int]] = []
        self._syncs: list[Sync] = []

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
        return copied

    def after_power_loss(self, draw: Random) -> tuple["Inode", int]:
        """Return the file as it is after a power loss, and how many bytes of the cache it has lost."""
        image = bytearray(self.cache[: self.flushed_bytes])
        written = bytes(self.cache[self.flushed_bytes :])
        if not written and not self._cut_tail and not self._never_written:
            return Inode(bytes(image)), 0
        kept = _kept(written, draw)
        if self._cut_tail and len(kept) < len(self._cut_tail) and draw.random() < 0.5:
            kept += self._cut_tail[len(kept) :]
        image += kept
        for first, end in self._never_written:
            image[first:end] = bytes(min(end, len(image)) - first) if first < len(image) else b""
        lost = sum(1 for position in range(self.flushed_bytes, len(self.cache)) if position >= len(image) or image[position] != self.cache[position])
        lost += sum(end - first for first, end in self._never_written if end <= self.flushed_bytes)
        return Inode(bytes(image)), lost


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

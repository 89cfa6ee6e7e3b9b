"""One file of a simulated disk: its content for processes, its durable content, and the writes in
between.

Between two flushes a write may or may not survive a power loss: usually all of it is lost,
sometimes a part survives, torn within a sector. A failed flush drops the dirty flags of its pages:
they stay readable and are never written any more (fsyncgate).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from random import Random

# --------------------------------------------------------------------------------------------------
# Bytes that a medium returns differently from what was written: bit rot, a lost end, a misdirected
# sector
#
# A running process does not notice, for it reads from the page cache; the next incarnation does.
# Healing restores the original bytes, unless they have been overwritten meanwhile.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Damage:
    """The bytes `wrong` are at `position` in place of `right`.

    An empty `wrong` is a truncated end.
    """

    position: int
    right: bytes
    wrong: bytes
    effect: str
    record_effect: Callable[[str], None]
    unseen: "Damage | None" = None
    """The damage before it became visible."""

    @property
    def is_seen(self) -> bool:
        """Return whether processes can read it."""
        return self.unseen is not None

    @property
    def origin(self) -> "Damage":
        """Return the original damage of the fault: the same through all incarnations."""
        return self.unseen or self

    def is_within(self, first: int, end: int) -> bool:
        """Return whether a read from `first` to before `end` returns something else than was
        written.
        """
        return first < self.position + max(len(self.wrong), 1) and self.position < end

    def seen_in(self, content: bytearray) -> "Damage | None":
        """Replace the right bytes by the wrong ones; None if the right ones are not there any
        more.
        """
        if self.is_seen:
            return self
        end = self.position + len(self.right)
        if content[self.position : end] != self.right or (not self.wrong and end != len(content)):
            return None
        content[self.position : end] = self.wrong
        return replace(self, unseen=self)

    def undo(self, content: bytearray) -> int:
        """Restore the right bytes if the wrong ones are still there; return by how much the content
        grows.
        """
        end = self.position + len(self.wrong)
        if content[self.position : end] != self.wrong or (
            not self.wrong and self.position != len(content)
        ):
            return 0
        content[self.position : end] = self.right
        return len(self.right) - len(self.wrong)


SECTOR_BYTES = 512
EVERYTHING_LOST, PREFIX_KEPT, SECTORS_KEPT = 0.55, 0.80, 0.92
"""Thresholds of one draw: below the first all unflushed bytes are lost, then a torn prefix
survives, then scattered sectors, then everything.
"""


class Fate(Enum):
    """The effect of a power loss on unflushed bytes, if a fault chooses it instead of a random
    draw.
    """

    LOST = auto()
    """All are gone."""
    PREFIX = auto()
    """A prefix survives: whole sectors, or a part of a single sector."""
    HOLES = auto()
    """Some sectors survive, in any order; lost ones read as zeros."""
    ZEROS = auto()
    """The file keeps its length, and reads as zeros: only its length was written."""
    KEPT = auto()
    """All are there."""


class InodeSync:
    """A running flush: everything below `target` was written before it began."""

    __slots__ = ("target",)

    def __init__(self, target: int) -> None:
        self.target = target


class Inode:
    """The bytes of a file. `cache` is the page cache; below `flushed_bytes` it is durable."""

    __slots__ = (
        "_never_written",
        "_syncs",
        "_truncated_tail",
        "cache",
        "damages",
        "flushed_bytes",
        "promised_bytes",
    )

    def __init__(self, durable: bytes = b"") -> None:
        self.cache = bytearray(durable)
        self.flushed_bytes = len(durable)
        self._truncated_tail = b""
        """Durable bytes that a truncation removed from the cache, from flushed_bytes on."""
        self._never_written: list[tuple[int, int]] = []
        self._syncs: list[InodeSync] = []
        self.promised_bytes = 0
        """Flushes have returned for the bytes below it; some of them did nothing."""
        self.damages: list[Damage] = []
        """Damages of the medium; those that are not `is_seen` become visible with the next
        incarnation.
        """

    @property
    def unflushed_bytes(self) -> int:
        """How many bytes a power loss may lose."""
        return len(self.cache) - self.flushed_bytes

    def truncate(self, size_bytes: int) -> None:
        """Truncate the cache; the durable state follows at the next flush."""
        assert size_bytes <= len(self.cache), "a truncation does not make a file longer"
        if size_bytes < self.flushed_bytes:
            self._truncated_tail = (
                bytes(self.cache[size_bytes : self.flushed_bytes]) + self._truncated_tail
            )
            self.flushed_bytes = size_bytes
        del self.cache[size_bytes:]
        for sync in self._syncs:
            sync.target = min(sync.target, size_bytes)
        self._never_written = [
            (first, min(end, size_bytes))
            for first, end in self._never_written
            if first < size_bytes
        ]
        self.promised_bytes = min(self.promised_bytes, size_bytes)
        self.damages = [
            damage
            for damage in self.damages
            if not damage.is_seen or damage.position + len(damage.wrong) <= size_bytes
        ]

    def begin_sync(self) -> InodeSync:
        """Begin a flush of everything that was written so far."""
        sync = InodeSync(len(self.cache))
        self._syncs.append(sync)
        return sync

    def end_sync(self, sync: InodeSync) -> None:
        """The flush has made its bytes durable."""
        self._syncs.remove(sync)
        if sync.target >= self.flushed_bytes:
            self.flushed_bytes = sync.target
            self._truncated_tail = b""

    def pretend_sync(self, sync: InodeSync) -> None:
        """The flush returned without making anything durable."""
        self._syncs.remove(sync)
        self.promised_bytes = max(self.promised_bytes, sync.target)

    def keep_promise(self) -> None:
        """The bytes of flushes that did nothing become durable."""
        if self.promised_bytes > self.flushed_bytes:
            self.flushed_bytes = self.promised_bytes
            self._truncated_tail = b""

    def fail_sync(self, sync: InodeSync) -> int:
        """The flush failed: its pages count as clean from now on and are never written.

        Returns how many bytes are affected.
        """
        self._syncs.remove(sync)
        doomed = max(0, sync.target - self.flushed_bytes)
        if doomed:
            self._never_written.append((self.flushed_bytes, sync.target))
        return doomed

    def copy(self) -> "Inode":
        """Return the file as it is after a process was killed: the kernel keeps the page cache,
        running flushes are dropped.
        """
        clone = Inode()
        clone.cache = bytearray(self.cache)
        clone.flushed_bytes = self.flushed_bytes
        clone._truncated_tail = self._truncated_tail
        clone._never_written = list(self._never_written)
        clone.promised_bytes = self.promised_bytes
        self._hand_on_damages(clone)
        return clone

    def on_another_medium(self) -> "Inode":
        """Return the file without damages, all of it durable."""
        content = bytearray(self.cache)
        for damage in self.damages:
            if damage.is_seen:
                damage.undo(content)
        return Inode(bytes(content))

    def hurt(self, damage: Damage) -> None:
        """Damage the medium, visible from the next incarnation on."""
        self.damages.append(damage)

    def heal(self, damage: Damage) -> None:
        """Restore the original bytes, if the process has not overwritten them."""
        for own in [own for own in self.damages if own.origin is damage]:
            self.damages.remove(own)
            if own.is_seen:
                self.flushed_bytes += own.undo(self.cache)

    def touches(self, first: int, end: int) -> None:
        """Called when these bytes are read."""
        for damage in self.damages:
            if damage.is_seen and damage.is_within(first, end):
                damage.record_effect(damage.effect)

    def _hand_on_damages(self, successor: "Inode") -> None:
        for damage in self.damages:
            handed_on = damage.seen_in(successor.cache)
            if handed_on is not None:
                successor.damages.append(handed_on)
                successor.flushed_bytes = min(successor.flushed_bytes, len(successor.cache))

    def after_power_loss(self, draw: Random, fate: Fate | None = None) -> tuple["Inode", int]:
        """Return the file as it is after a power loss, and how many bytes of the cache it has lost.

        Without a `fate` it is random.
        """
        image, lost = self._image_after_power_loss(draw, fate)
        left = Inode(bytes(image))
        self._hand_on_damages(left)
        return left, lost

    def _image_after_power_loss(self, draw: Random, fate: Fate | None) -> tuple[bytearray, int]:
        image = bytearray(self.cache[: self.flushed_bytes])
        written = bytes(self.cache[self.flushed_bytes :])
        if not written and not self._truncated_tail and not self._never_written:
            return image, 0
        kept = (
            _kept(written, draw) if fate is None else _torn(written, self.flushed_bytes, draw, fate)
        )
        if self._truncated_tail and len(kept) < len(self._truncated_tail) and draw.random() < 0.5:
            kept += self._truncated_tail[len(kept) :]
        image += kept
        for first, end in self._never_written:
            image[first:end] = bytes(min(end, len(image)) - first) if first < len(image) else b""
        lost = sum(
            1
            for position in range(self.flushed_bytes, len(self.cache))
            if position >= len(image) or image[position] != self.cache[position]
        )
        lost += sum(end - first for first, end in self._never_written if end <= self.flushed_bytes)
        return image, lost


def _kept(written: bytes, draw: Random) -> bytes:
    """Return the durable part of the unflushed bytes."""
    fate = draw.random()
    if fate < EVERYTHING_LOST:
        return b""
    if fate < PREFIX_KEPT:
        return written[: int(draw.random() * (len(written) + 1))]
    if fate < SECTORS_KEPT:
        return _scattered(written, draw)
    return written


def _scattered(written: bytes, draw: Random) -> bytes:
    """Return the sectors that survive; a lost one reads as zeros if a later one survives."""
    image = bytearray()
    for first in range(0, len(written), SECTOR_BYTES):
        if draw.random() < 0.5:
            image.extend(bytes(first - len(image)))
            image += written[first : first + SECTOR_BYTES]
    return bytes(image)


def _torn(written: bytes, position: int, draw: Random, fate: Fate) -> bytes:
    """Return the durable part of bytes at a position, for a given effect of a power loss."""
    if fate is Fate.KEPT:
        return written
    if fate is Fate.LOST or not written:
        return b""
    if fate is Fate.ZEROS:
        return bytes(len(written))
    ends = [
        *range(SECTOR_BYTES - position % SECTOR_BYTES, len(written), SECTOR_BYTES),
        len(written),
    ]
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

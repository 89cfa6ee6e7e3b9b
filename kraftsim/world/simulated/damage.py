"""Bytes that a medium returns differently from what was written: bit rot, a lost end, a misdirected
sector.

A running process does not notice, for it reads from the page cache; the next incarnation does.
Healing restores the original bytes, unless they have been overwritten meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace


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

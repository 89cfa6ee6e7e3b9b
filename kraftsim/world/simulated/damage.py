"""Bytes that a medium gives back otherwise than they were written: rotten bits, a lost end, a sector that went somewhere else.

A running process does not notice, for it reads from the page cache; the next incarnation does. Once the fault is healed the right bytes are back,
unless somebody has written others in their place meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Damage:
    """At `position` stands `wrong` in place of `right`. An empty `wrong` is an end that is gone."""

    position: int
    right: bytes
    wrong: bytes
    effect: str
    bite: Callable[[str], None]
    unseen: "Damage | None" = None
    """What it was before it came to light."""

    @property
    def is_seen(self) -> bool:
        """Tell whether it is what processes get to read."""
        return self.unseen is not None

    @property
    def origin(self) -> "Damage":
        """Return what a fault has put on the disk: the same through all incarnations."""
        return self.unseen or self

    def is_within(self, first: int, end: int) -> bool:
        """Tell whether somebody who reads from `first` to before `end` gets something else than was written."""
        return first < self.position + max(len(self.wrong), 1) and self.position < end

    def seen_in(self, content: bytearray) -> "Damage | None":
        """Put the wrong bytes where the right ones are; None if those are not there any more."""
        if self.is_seen:
            return self
        end = self.position + len(self.right)
        if content[self.position : end] != self.right or (not self.wrong and end != len(content)):
            return None
        content[self.position : end] = self.wrong
        return replace(self, unseen=self)

    def undo(self, content: bytearray) -> int:
        """Put the right bytes back if the wrong ones are still there; return by how much the content has become longer."""
        end = self.position + len(self.wrong)
        if content[self.position : end] != self.wrong or (not self.wrong and self.position != len(content)):
            return 0
        content[self.position : end] = self.right
        return len(self.right) - len(self.wrong)

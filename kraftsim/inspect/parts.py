"""The structure of decoded bytes: a tree of named parts, each with its start and end position.

For bytes that cannot be decoded to their end, the tree contains the parts up to there, and the
error.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

Scalar: TypeAlias = bool | int | float | str | bytes | None
Value: TypeAlias = Scalar | list[Scalar]


@dataclass(slots=True)
class Part:
    """A field, an element (`[3]`), a batch or a record; `start` and `end` count bytes of the frame,
    or of the uncompressed data in it.

    It has a `value`, or `parts`, or neither when it is null. `emit` explains the value.
    """

    name: str
    kind: str
    start: int
    end: int = -1
    value: Value = None
    parts: "list[Part] | None" = None
    emit: str = ""
    uncompressed: bool = False
    """Whether start and end count within the uncompressed records of a batch."""

    def part(self, name: str) -> "Part | None":
        """Return the part of that name, the first of several."""
        for each in self.parts or ():
            if each.name == name:
                return each
        return None

    def integer(self, name: str, otherwise: int = -1) -> int:
        """Return the value of an integer below, `otherwise` if there is none."""
        found = self.part(name)
        return found.value if found is not None and isinstance(found.value, int) else otherwise

    def text(self, name: str) -> str | None:
        """Return the value of a string below, None if there is none."""
        found = self.part(name)
        return found.value if found is not None and isinstance(found.value, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeTrouble:
    """An error: which field, at which byte, why."""

    path: str
    position: int
    reason: str
    uncompressed: bool = False
    """Whether the position counts within the uncompressed records of a batch."""

    def __str__(self) -> str:
        place = f"byte {self.position}{' of the uncompressed records' if self.uncompressed else ''}"
        return f"{self.path}, {place}: {self.reason}" if self.path else f"{place}: {self.reason}"


@dataclass(slots=True)
class Tree:
    """Everything decoded from some bytes, and every error in the order of the bytes."""

    parts: list[Part] = field(default_factory=list)
    troubles: list[DecodeTrouble] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether there was no error."""
        return not self.troubles


def joined(path: str, name: str) -> str:
    """Return the path of a part below another: `topics` and `[0]` are `topics[0]`."""
    if not path or name.startswith("["):
        return path + name
    return f"{path}.{name}"


def walk(parts: list[Part], path: str = "") -> Iterator[tuple[str, Part]]:
    """Yield every part with its path, the outer before the inner."""
    for each in parts:
        place = joined(path, each.name)
        yield place, each
        if each.parts:
            yield from walk(each.parts, place)

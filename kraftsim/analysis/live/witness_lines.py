"""Finds the line of an event by its id, in logs that are too large to keep: the position of every
thousandth line is known.
"""

from bisect import bisect_right
from pathlib import Path
from typing import Final

import msgspec

from kraftsim.analysis.live.source import decode_envelope
from kraftsim.analysis.sentences import printable
from kraftsim.events.event import ENVELOPE_FIELDS

STEP: Final = 1_024
EventTime = tuple[int, str, int, int]
"""What orders events by time: t_ns, node, incarnation, n."""


class SeenEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that shows a violation; `fields` are its own, without those that are null."""

    event_id: str
    node: str
    incarnation: int
    n: int
    t_ns: int
    kind: str
    fields: dict[str, int | str | bool]

    @property
    def time(self) -> EventTime:
        """Return the place of the event in the order of time."""
        return self.t_ns, self.node, self.incarnation, self.n

    def line(self) -> str:
        """Return the event as a line of text."""
        fields = " ".join(f"{name}={printable(value)}" for name, value in self.fields.items())
        return f"{self.t_ns / 1e9:.6f} s  {printable(self.event_id)}  {self.kind} {fields}".rstrip()


class LineIndex:
    """Positions of lines by the id of their event."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._places: dict[str, tuple[str, list[int], list[int]]] = {}

    def add(self, incarnation: str, file: str, n: int, position: int) -> None:
        """Note that line `n` of 'node.incarnation' is at a position, and the next ones behind it;
        numbers increase.
        """
        _, numbers, positions = self._places.setdefault(incarnation, (file, [], []))
        if not numbers or n > numbers[-1]:
            numbers.append(n)
            positions.append(position)

    def event(self, event_id: str) -> SeenEvent | None:
        """Return an event, or None if its line is not found."""
        incarnation, _, number = event_id.rpartition(".")
        place = self._places.get(incarnation)
        if place is None:
            return None
        file, numbers, positions = place
        index = bisect_right(numbers, int(number)) - 1
        if index < 0:
            return None
        with (self._run / file).open("rb") as log:
            log.seek(positions[index])
            for line in log:
                envelope = decode_envelope(line)
                if envelope is None:
                    continue
                if envelope.n == int(number):
                    fields = msgspec.json.decode(line)
                    own = {
                        name: value
                        for name, value in fields.items()
                        if name not in ENVELOPE_FIELDS and isinstance(value, int | str)
                    }
                    return SeenEvent(
                        event_id=event_id,
                        node=envelope.node,
                        incarnation=envelope.incarnation,
                        n=envelope.n,
                        t_ns=envelope.t_ns,
                        kind=envelope.kind,
                        fields=own,
                    )
                if envelope.n > int(number):
                    return None
        return None

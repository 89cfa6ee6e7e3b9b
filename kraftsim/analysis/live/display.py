"""What a watcher prints: violations as they are found, a status every few seconds, and verdicts at
the end.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from kraftsim.analysis.live.figures import Status
from kraftsim.analysis.live.live_run import Found
from kraftsim.analysis.sentences import printable


class Display(Protocol):
    """Shows the progress of a watch."""

    def found(self, found: Found) -> None:
        """Show a violation."""
        ...

    def status(self, status: Status) -> None:
        """Show the state of the watch."""
        ...

    def message(self, text: str) -> None:
        """Show a line of text."""
        ...


def lines_of(found: Found) -> Iterator[str]:
    """Yield a violation as text, with the events that show it."""
    word = "WITHDRAWN" if found.is_withdrawn else "VIOLATED"
    yield f"{word} {found.violation.invariant}: {printable(found.violation.message)}"
    if not found.is_withdrawn:
        for event in found.events:
            yield f"    {event.line()}"


class Lines:
    """A display of lines, for files, pipes and logs."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def found(self, found: Found) -> None:
        """Write a violation and its events."""
        for line in lines_of(found):
            self._write(line)

    def status(self, status: Status) -> None:
        """Write one line."""
        self._write(status.line())

    def message(self, text: str) -> None:
        """Write a line."""
        self._write(text)

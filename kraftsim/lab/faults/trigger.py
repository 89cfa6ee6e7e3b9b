"""Triggers of faults: a virtual time, the nth operation of some type at a node, or a node that
enters a state.

Random times hardly ever hit a crash window: of 250 runs with random power losses none showed a vote
that was not persisted, of 250 with power losses tied to writes five did.
"""

import msgspec

from kraftsim.world.simulated import FileClass as FileClass


class AtTime(msgspec.Struct, frozen=True, kw_only=True, tag_field="on", tag="time"):
    """At a time since the beginning of the run."""

    at_ms: int

    def __str__(self) -> str:
        return f"at {self.at_ms} ms"


class OnDisk(msgspec.Struct, frozen=True, kw_only=True, tag_field="on", tag="disk"):
    """Before or after the nth write, flush or rename of a class of files, on one host or on any."""

    operation: str = "write"
    file_class: FileClass | None = None
    host: str | None = None
    nth: int = 1
    moment: str = "after"

    def __str__(self) -> str:
        return (
            f"{self.moment} {self.operation} {self.nth} of {self.file_class or 'any file'} on "
            f"{self.host or 'any host'}"
        )


class OnFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="on", tag="frame"):
    """Before or after the nth request of an API, or the nth response to it, is sent."""

    api_key: int
    is_response: bool = False
    client: str | None = None
    server: str | None = None
    nth: int = 1
    moment: str = "before"

    def __str__(self) -> str:
        what = "response" if self.is_response else "request"
        return (
            f"{self.moment} {what} {self.nth} of API {self.api_key} from "
            f"{self.client or 'any host'} to {self.server or 'any host'}"
        )


class OnEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="on", tag="event"):
    """Right after the nth event of a kind, on one host or on any, with given values in its
    fields.
    """

    kind: str
    host: str | None = None
    nth: int = 1
    fields: dict[str, int | str | bool | None] = {}

    def __str__(self) -> str:
        wanted = "".join(f" with {name} {value}" for name, value in self.fields.items())
        return f"after {self.kind} {self.nth}{wanted} on {self.host or 'any host'}"


class OnState(msgspec.Struct, frozen=True, kw_only=True, tag_field="on", tag="state"):
    """Right after a node, on one host or on any, has entered all of some states (`states.STATES`)
    for the nth time.
    """

    states: tuple[str, ...]
    host: str | None = None
    nth: int = 1

    def __str__(self) -> str:
        return (
            f"as {self.host or 'any host'} is {' and '.join(self.states)} for the "
            f"{_ordinal(self.nth)} time"
        )


def _ordinal(number: int) -> str:
    ending = (
        "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


Trigger = AtTime | OnDisk | OnFrame | OnEvent | OnState

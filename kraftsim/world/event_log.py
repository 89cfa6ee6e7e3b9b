"""The encoding of an event as a line of the event log: the envelope of the world and the event's
own fields, as one flat JSON object.

The constant parts of the envelope of a node and incarnation are encoded once, so that a line costs
about a microsecond.
"""

import msgspec

from kraftsim.events.event import Event

LINE_SUFFIX = ".jsonl"
_encode = msgspec.json.Encoder().encode


class LineEncoder:
    """Writes the lines of one node and incarnation."""

    __slots__ = ("_prefix",)

    def __init__(self, run: str, node: str, incarnation: int) -> None:
        assert incarnation >= 1, "incarnations are counted from 1"
        self._prefix = b'{"run":%b,"node":%b,"incarnation":%d,"n":' % (
            _encode(run),
            _encode(node),
            incarnation,
        )

    def line(self, n: int, t_ns: int, wall_ms: int, event: Event) -> bytes:
        """Return the complete line, with its line feed.

        The event is encoded as `{"kind":...,` fields `}`, whose brace the envelope replaces.
        """
        return b'%b%d,"t_ns":%d,"wall_ms":%d,%b\n' % (
            self._prefix,
            n,
            t_ns,
            wall_ms,
            _encode(event)[1:],
        )


def file_name(node: str, incarnation: int) -> str:
    """Return the name of the file for the lines of one node and incarnation."""
    return f"{node}.{incarnation}{LINE_SUFFIX}"

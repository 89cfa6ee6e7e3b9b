"""The base of every event, the envelope that the world puts around it, and its line in the event
log.

Events are flat: fields are Kafka's names, values are ints, booleans, strings or null. An event that
needs more columns is a new class.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import ClassVar, dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, kw_only_default=True)
class EventMeta(msgspec.StructMeta):
    """For type checkers; msgspec does this on its own: a subclass of a frozen, keyword-only struct
    is one, too.
    """


class Event(
    msgspec.Struct,
    metaclass=EventMeta,
    frozen=True,
    kw_only=True,
    gc=False,
    tag_field="kind",
    tag=lambda name: name,
):
    """An event of one node. The class name is the `kind` of its line in the event log."""

    kinds: ClassVar[dict[str, type["Event"]]] = {}

    def __init_subclass__(cls, **options: object) -> None:
        # arg-type: msgspec's options of a class, passed on as they are
        super().__init_subclass__(**options)  # type: ignore[arg-type]
        assert (
            cls.__name__ not in Event.kinds
            or Event.kinds[cls.__name__].__module__ == cls.__module__
        ), f"two events have the name {cls.__name__}"
        Event.kinds[cls.__name__] = cls


@cache
def view_name(kind: str) -> str:
    """Return a kind in snake_case: the name of its view in SQL."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()


ENVELOPE_FIELDS = ("run", "node", "incarnation", "n", "t_ns", "wall_ms", "kind")
"""What the world adds to each line: run name, node name, incarnation (from 1), line number n (from
0, dense per node and incarnation), t_ns (nanoseconds since the run began: virtual in simulation,
monotonic otherwise), wall_ms (the node's own wall clock).
"""


# --------------------------------------------------------------------------------------------------
# The encoding of an event as a line of the event log: the envelope of the world and the event's
# own fields, as one flat JSON object
#
# The constant parts of the envelope of a node and incarnation are encoded once, so that a line
# costs about a microsecond.

LINE_SUFFIX = ".jsonl"
COMMA = ord(",")
_encoder = msgspec.json.Encoder()
_encode, _encode_into = _encoder.encode, _encoder.encode_into


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

    def lines(self, entries: Iterable[tuple[int, int, Event]]) -> bytes:
        """Return the lines of (t_ns, wall_ms, event), numbered from 0: the same bytes as those of
        `line`, for half of its time, because each event is encoded where it stays.
        """
        prefix, encode_into, found = self._prefix, _encode_into, bytearray()
        for n, (t_ns, wall_ms, event) in enumerate(entries):
            found += b'%b%d,"t_ns":%d,"wall_ms":%d' % (prefix, n, t_ns, wall_ms)
            brace = len(found)
            encode_into(event, found, brace)
            found[brace] = COMMA
            found += b"\n"
        return bytes(found)


def event_file_name(node: str, incarnation: int) -> str:
    """Return the name of the file for the lines of one node and incarnation."""
    return f"{node}.{incarnation}{LINE_SUFFIX}"

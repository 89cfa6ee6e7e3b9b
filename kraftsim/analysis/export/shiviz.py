"""The log of ShiViz: each event with its host and vector clock, for a space-time diagram.

ShiViz takes the regular expression from the first line of an uploaded file, and that of the
delimiter of executions from the second one, which is empty here. It requires that the own entries
of the clocks of a host are 1, 2, 3, ..., therefore the clocks of a window count only its events.
Source: ShiViz, js/shiviz.js, js/model/parser.js and js/model/modelGraph.js.
"""

from collections import Counter
from typing import IO, Final
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow.compute as pc

from kraftsim.analysis.columns import CAUSE_POSITION
from kraftsim.analysis.export.scope import LoggedEvent, Scope
from kraftsim.analysis.sentences import printable

EXPRESSION: Final = r"(?<host>\S+) (?<clock>\{.*\})\n(?<seconds>\S+) (?<event>.*)"
COMFORTABLE_EVENTS: Final = 5_000
"""ShiViz draws each event as an element of the page: more make a browser slow."""

Clock = dict[str, int]


class VectorClocks:
    """Computes the vector clock of one event after the other.

    An event's clock is kept only until its last effect has been seen.
    """

    def __init__(self, effect_counts: Counter[int]) -> None:
        self._left = effect_counts
        self._of_host: dict[str, Clock] = {}
        self._of_cause: dict[int, Clock] = {}

    def next(self, event: LoggedEvent, host: str) -> Clock:
        """Return the clock of the next event in the order of time."""
        clock = self._of_host.setdefault(host, {})
        cause = self._of_cause.get(event.cause)
        if cause is not None:
            for name, time in cause.items():
                clock[name] = max(clock.get(name, 0), time)
            self._left[event.cause] -= 1
            if not self._left[event.cause]:
                del self._of_cause[event.cause]
        clock[host] = clock.get(host, 0) + 1
        if self._left[event.position]:
            self._of_cause[event.position] = dict(clock)
        return clock


def write(scope: Scope, out: IO[bytes]) -> list[str]:
    """Write the log: two lines per event."""
    out.write(f"{EXPRESSION}\n\n".encode())
    clocks = VectorClocks(_effect_counts(scope))
    for event in scope.all_events():
        host = host_name(event.node)
        clock = clocks.next(event, host)
        fields = " ".join(f"{name}={printable(value)}" for name, value in event.fields.items())
        text = f"{event.kind} {fields}".rstrip()
        out.write(b"%b %b\n" % (host.encode(), msgspec.json.encode(clock)))
        out.write(f"{event.t_ns / 1e9:.6f} {text}\n".encode())
    if len(scope) <= COMFORTABLE_EVENTS:
        return []
    return [
        f"{len(scope):,} events are many for ShiViz, which is slow above {COMFORTABLE_EVENTS:,}: "
        "narrow them with --from, --until or --limit"
    ]


def host_name(node: str) -> str:
    """Return a node's name without blanks, a different one for each node."""
    return quote(node, safe="!$&'()*+,:;=@<>") or "%"


def _effect_counts(scope: Scope) -> Counter[int]:
    causes = scope.table(None, [CAUSE_POSITION]).column(CAUSE_POSITION)
    inside = np.asarray(pc.drop_null(causes).combine_chunks(), np.int64)
    positions, counts = np.unique(inside[inside >= scope.first], return_counts=True)
    return Counter(dict(zip(positions.tolist(), counts.tolist(), strict=True)))

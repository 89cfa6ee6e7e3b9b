"""Time as a group needs it: sessions use the monotonic clock, offset retention the wall clock."""

from typing import NamedTuple


class Moment(NamedTuple):
    """One point in time on both clocks of a node, in milliseconds."""

    monotonic_ms: int
    wall_ms: int

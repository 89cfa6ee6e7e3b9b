"""When something happens to a group: sessions run by the monotonic clock, offsets are kept by the wall clock."""

from typing import NamedTuple


class Moment(NamedTuple):
    """One moment on both clocks of a node, in milliseconds."""

    monotonic_ms: int
    wall_ms: int

"""A single write is read in pieces: byte by byte, or in two parts at a split point that advances by
one byte with every write.

The first detects a parser that expects a whole frame, size field or header in one read, the second
one that fails at a single position.
"""

from collections.abc import Iterator

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import Condition, SocketInjection
from kraftsim.lab.faults.injection import Injection

NANOSECONDS_PER_MICROSECOND = 1000
EVERY_BOUNDARY = 0


def inject(injection: Injection) -> None:
    """Split writes over the links of the target for a while; it is effective when a single write
    arrives in pieces.
    """
    links = [
        injection.simulation.network.link(source, target)
        for source, target in injection.directions()
    ]
    tear = _Tear(injection).pieces
    for link in links:
        link.begin_tearing(tear)

    def heal() -> None:
        for link in links:
            link.end_tearing(tear)

    injection.lasting(heal, injection.integer("duration_ms"))


class _Tear:
    """Where writes are split, and the gaps between the pieces."""

    def __init__(self, injection: Injection) -> None:
        self._inject = injection
        self._piece_bytes = injection.integer("piece_bytes")
        self._pieces_max = injection.integer("pieces_max")
        self._gap_ns = injection.integer("gap_us") * NANOSECONDS_PER_MICROSECOND
        self._writes = 0

    def pieces(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield the pieces of a write with the nanoseconds before each."""
        ends = self._ends(len(data))
        if len(ends) > 1:
            self._inject.record_effect(f"{len(data)} bytes arrived in {len(ends)} pieces")
        start = 0
        for end in ends:
            yield data[start:end], int(self._inject.random.random() * self._gap_ns)
            start = end

    def _ends(self, size_bytes: int) -> list[int]:
        self._writes += 1
        if self._piece_bytes == EVERY_BOUNDARY:
            tear = (self._writes - 1) % size_bytes
            return [tear, size_bytes] if tear else [size_bytes]
        ends = list(range(self._piece_bytes, size_bytes, self._piece_bytes))[: self._pieces_max - 1]
        return [*ends, size_bytes]


async def over_sockets(injection: SocketInjection) -> None:
    """Let the proxy write in pieces what it has read in one."""
    condition = Condition(
        piece_bytes=injection.integer("piece_bytes"),
        pieces_max=injection.integer("pieces_max"),
        gap_us=injection.integer("gap_us"),
        tears_everywhere=injection.integer("piece_bytes") == EVERY_BOUNDARY,
    )
    await injection.while_it_lasts(injection.links(), condition, injection.integer("duration_ms"))


FAULT = FaultKind(
    name="torn-reads",
    title="writes that arrive in pieces",
    family=Family.NETWORK,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"piece_bytes": 1, "pieces_max": 100, "gap_us": 50, "duration_ms": 5000},
    aim=Aim.LINK,
    draws={
        "piece_bytes": OneOf((EVERY_BOUNDARY, EVERY_BOUNDARY, 1, 3, 100)),
        "pieces_max": Between(2, 100),
        "gap_us": OneOf((0, 50, 2000)),
        "duration_ms": Between(100, 4000),
    },
)

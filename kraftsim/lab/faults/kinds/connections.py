"""Faults of connections: they break, do not open, or deliver their bytes in pieces.

A connection that breaks leaves its client in doubt: the request may have been processed. It breaks
at any byte of a frame, and one end may learn of it long before the other. A node must retry without
doing anything twice, must not wait for ever for a peer that is gone, and must parse a frame however
its bytes arrive.
"""

import asyncio
from collections.abc import Iterator

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import Condition, SocketInjection
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated import Gate


def cut_connection(injection: Injection) -> None:
    """Connections are reset in the middle of the stream.

    With a frame as the trigger, only its connection, after a given number of the frame's bytes.

    The number is from 0 (nothing of the frame arrives) to the frame's size (all of it arrives, and
    the connection is lost); -1 means its size. If the frame was sent already, the part of it that
    is in flight is lost.

    Reset the connection of the frame that is being sent, or all connections of the target.
    """
    network = injection.simulation.network
    frame = injection.trigger_context.frame
    if frame is not None and injection.is_before:
        after_bytes = injection.integer("after_bytes")
        frame.cut(frame.size_bytes if after_bytes < 0 else after_bytes)
        injection.record_effect(
            f"a frame of {frame.size_bytes} bytes was truncated after {frame.cut_after}"
        )
        return
    if frame is not None:
        ends = network.connections.get(frame.transport.number)
        if ends is not None:
            network.reset_connections(ends)
            injection.record_effect("a connection was reset right after a frame was written to it")
        return
    pairs = dict.fromkeys((min(pair), max(pair)) for pair in injection.directions())
    reset = [ends for one, other in pairs for ends in network.between(one, other)]
    busy = sum(ends[0].is_busy for ends in reset)
    for ends in reset:
        network.reset_connections(ends)
    if reset:
        injection.record_effect(
            f"{len(reset)} connections were reset, {busy} of them with bytes in flight"
        )


async def cut_connection_over_sockets(injection: SocketInjection) -> None:
    """Let the proxy truncate the frame that it holds and reset its connection, or reset all
    connections of the target.
    """
    frame, after_bytes = injection.frame, injection.integer("after_bytes")
    if frame is None:
        effect = await injection.field.cut(injection.links())
        if effect.connections:
            injection.record_effect(
                f"{effect.connections} of {effect.closed} connections had bytes in flight"
            )
        return
    passing_bytes = frame.size_bytes if after_bytes < 0 else min(after_bytes, frame.size_bytes)
    await frame.cut(passing_bytes)
    injection.record_effect(
        f"a frame of {frame.size_bytes} bytes was truncated after {passing_bytes}"
    )


CUT_CONNECTION = FaultKind(
    name="cut-connection",
    title="a connection reset",
    family=Family.NETWORK,
    inject=cut_connection,
    over_sockets=cut_connection_over_sockets,
    modes=EVERYWHERE,
    params={"after_bytes": 0},
    aim=Aim.LINK,
    draws={"after_bytes": Between(-1, 160)},
)


def reset_storm(injection: Injection) -> None:
    """Connections are reset repeatedly for a while, one at a time at random: a client that
    reconnects may be reset again in its first requests.

    One reset (`cut-connection`) causes one retry; a storm also tests the retries, and the state
    that is built up while connecting.

    Reset a connection of the target after each of some random waits; it is effective when one is
    reset.
    """
    network = injection.simulation.network
    pairs = set(injection.directions())
    interval_ms = injection.integer("interval_ms")

    def reset_one() -> None:
        if injection.is_over:
            return
        open_ones = [
            ends
            for ends in network.connections.values()
            if (ends[0].process.host.name, ends[1].process.host.name) in pairs
            and not ends[0].is_lost
        ]
        if open_ones:
            network.reset_connections(injection.random.choice(open_ones))
            injection.record_effect("a connection was reset")
        injection.after(1 + int(injection.random.expovariate(1 / interval_ms)), reset_one)

    injection.lasting(lambda: None, injection.integer("duration_ms"))
    reset_one()


async def reset_storm_over_sockets(injection: SocketInjection) -> None:
    """Let the proxy reset a connection after each of some random waits."""

    async def storm() -> None:
        while True:
            effect = await injection.field.cut(injection.links(), only_one=True)
            if effect.closed:
                injection.record_effect("a connection was reset")
            await asyncio.sleep(
                (1 + injection.random.expovariate(1 / injection.integer("interval_ms"))) / 1000
            )

    await injection.before_it_ends(storm(), injection.integer("duration_ms"))


RESET_STORM = FaultKind(
    name="reset-storm",
    title="repeated connection resets",
    family=Family.NETWORK,
    inject=reset_storm,
    over_sockets=reset_storm_over_sockets,
    modes=EVERYWHERE,
    params={"interval_ms": 100, "duration_ms": 3000},
    aim=Aim.LINK,
    draws={"interval_ms": Between(2, 500), "duration_ms": Between(200, 4000)},
)


CONNECTED, ACCEPTED, ANY = "connected", "accepted", "any"


def half_open(injection: Injection) -> None:
    """A half-open connection: one end is gone without closing it, and bytes that the other end
    sends get no response.

    A middlebox that dropped the connection's state has this effect, or a keepalive that failed on
    one side only. The open end notices when its request times out, or when TCP gives up; once the
    fault is over, a keepalive probe is answered with a reset.

    Make each connection of the target half-open; it is effective when bytes are discarded.
    """
    network = injection.simulation.network
    pairs = set(injection.directions())
    believer = injection.text("believer")
    pipes = []
    for connecting, accepting in list(network.connections.values()):
        if (
            (connecting.process.host.name, accepting.process.host.name) not in pairs
            or connecting.is_lost
            or accepting.is_lost
        ):
            continue
        is_believer_connecting = believer == CONNECTED or (
            believer == ANY and injection.random.random() < 0.5
        )
        believing, gone = (
            (connecting, accepting) if is_believer_connecting else (accepting, connecting)
        )
        believing.out.lead_nowhere(injection.record_effect)
        gone.forget()
        pipes.append(believing.out)

    def answer_with_reset() -> None:
        for pipe in pipes:
            pipe.end_nowhere()

    injection.lasting(answer_with_reset, injection.integer("duration_ms"))


async def half_open_over_sockets(injection: SocketInjection) -> None:
    """Let the proxy reset one end of each connection, and discard the bytes of the other."""
    number = await injection.field.halve(
        injection.links(), believer=injection.text("believer") or ANY
    )
    try:
        await injection.lasts(injection.integer("duration_ms"))
    finally:
        effect = await injection.field.lift(number)
    if effect.touched_bytes:
        injection.record_effect(
            f"{effect.touched_bytes} bytes were discarded on {effect.connections} connections"
        )


HALF_OPEN = FaultKind(
    name="half-open",
    title="a half-open connection",
    family=Family.NETWORK,
    inject=half_open,
    over_sockets=half_open_over_sockets,
    modes=EVERYWHERE,
    params={"believer": ANY, "duration_ms": 10_000},
    aim=Aim.LINK,
    draws={"believer": OneOf((CONNECTED, ACCEPTED, ANY)), "duration_ms": Between(500, 10_000)},
)


def refused_connections(injection: Injection) -> None:
    """Hosts refuse new connections while open ones keep working: a full backlog, or a firewall that
    rejects.

    Refuse connection attempts over the links of the target for a while; it is effective at the
    first attempt.
    """
    guard_links(injection, Gate.REFUSE)


def guard_links(injection: Injection, gate: Gate) -> None:
    """Let connection attempts over the links of the target fail while the fault lasts."""
    links = [
        injection.simulation.network.link(source, target)
        for source, target in injection.directions()
    ]
    record_effect = injection.record_effect
    for link in links:
        link.guard(gate, record_effect)

    def accept_again() -> None:
        for link in links:
            link.unguard(gate, record_effect)

    injection.lasting(accept_again, injection.integer("duration_ms"))


async def refused_connections_over_sockets(injection: SocketInjection) -> None:
    """Reset new connections in the proxy."""
    await injection.while_it_lasts(
        injection.links(), Condition(refuses=True), injection.integer("duration_ms")
    )


REFUSED_CONNECTIONS = FaultKind(
    name="refused-connections",
    title="hosts that refuse connections",
    family=Family.NETWORK,
    inject=refused_connections,
    over_sockets=refused_connections_over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 5000},
    aim=Aim.LINK,
    draws={"duration_ms": Between(200, 6000)},
)


def connect_timeout(injection: Injection) -> None:
    """New connections time out while open ones keep working: a firewall that drops, or a host that
    lost its routes for new peers.

    Drop connection attempts over the links of the target for a while; it is effective at the first
    attempt.
    """
    guard_links(injection, Gate.DROP)


async def connect_timeout_over_sockets(injection: SocketInjection) -> None:
    """Accept connections in the proxy without transferring data; they work once the fault is
    over.
    """
    await injection.while_it_lasts(
        injection.links(), Condition(ignores=True), injection.integer("duration_ms")
    )


CONNECT_TIMEOUT = FaultKind(
    name="connect-timeout",
    title="connection attempts that time out",
    family=Family.NETWORK,
    inject=connect_timeout,
    over_sockets=connect_timeout_over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 5000},
    aim=Aim.LINK,
    draws={"duration_ms": Between(200, 8000)},
)


NANOSECONDS_PER_MICROSECOND = 1000
EVERY_BOUNDARY = 0


def torn_reads(injection: Injection) -> None:
    """A single write is read in pieces: byte by byte, or in two parts at a split point that
    advances by one byte with every write.

    The first detects a parser that expects a whole frame, size field or header in one read, the
    second one that fails at a single position.

    Split writes over the links of the target for a while; it is effective when a single write
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


async def torn_reads_over_sockets(injection: SocketInjection) -> None:
    """Let the proxy write in pieces what it has read in one."""
    condition = Condition(
        piece_bytes=injection.integer("piece_bytes"),
        pieces_max=injection.integer("pieces_max"),
        gap_us=injection.integer("gap_us"),
        tears_everywhere=injection.integer("piece_bytes") == EVERY_BOUNDARY,
    )
    await injection.while_it_lasts(injection.links(), condition, injection.integer("duration_ms"))


TORN_READS = FaultKind(
    name="torn-reads",
    title="writes that arrive in pieces",
    family=Family.NETWORK,
    inject=torn_reads,
    over_sockets=torn_reads_over_sockets,
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


FAULTS = (
    CUT_CONNECTION,
    RESET_STORM,
    HALF_OPEN,
    REFUSED_CONNECTIONS,
    CONNECT_TIMEOUT,
    TORN_READS,
)

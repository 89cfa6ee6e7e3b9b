"""Faults of the network between hosts: links that lose, hold or delay what hosts send.

A link is one direction between two hosts. A partition drops: TCP sends again when the link is back,
with its backoff. A clog holds: everything arrives at one moment. A slow link delays, a capped one
makes bytes wait for others. In no case does TCP lose or reorder the bytes of a connection, so that
a node sees what a real one sees: silence, time-outs, and a late burst. The plans that place these
faults (a majority, a ring, the leader, one link after the other) are those of Jepsen's nemesis and
of FoundationDB's simulator.

In simulation the network of `kraftsim.world.simulated` does it. Over sockets it is the proxy
between the nodes, which may hold and delay bytes, but cannot drop what TCP has acknowledged.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import Condition, SocketInjection, links_of
from kraftsim.lab.faults.injection import NANOSECONDS_PER_MILLISECOND, Injection


def partition(injection: Injection) -> None:
    """A network partition between hosts, in both directions ('a<>b', or 'a' from all others) or in
    one ('a>b').

    Block the links of the target for a while; it is effective when bytes or a connect are held
    back.
    """
    part(injection, injection.directions())


def part(injection: Injection, pairs: Sequence[tuple[str, str]]) -> None:
    """Block some links while the fault lasts."""
    network = injection.simulation.network
    record_effect = injection.record_effect
    for source, target in pairs:
        network.block(source, target, record_effect)

    def heal() -> None:
        for source, target in pairs:
            network.unblock(source, target, record_effect)

    injection.lasting(heal, injection.integer("duration_ms"))


async def partition_over_sockets(injection: SocketInjection) -> None:
    """Hold bytes in the proxy, as TCP would retransmit them afterwards; new connections are
    accepted but transfer no data.
    """
    await injection.while_it_lasts(
        injection.links(), Condition(holds=True), injection.integer("duration_ms")
    )


PARTITION = FaultKind(
    name="partition",
    title="a network partition",
    family=Family.NETWORK,
    inject=partition,
    over_sockets=partition_over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 10_000},
    aim=Aim.LINK,
    draws={"duration_ms": Between(300, 6000)},
)


HOSTS_MIN = 3


def ring_partition(injection: Injection) -> None:
    """Every host can reach a majority, and no two the same one: the network is a ring.

    Each host receives from its neighbours on a random ring, and drops what the others send. With
    three hosts each link works in one direction only; from five on neighbours can talk, and an
    elected leader is not recognised by all. Source: Jepsen (majorities-ring).

    Partition the hosts of the target (all of them without one) for a while; it is effective when
    bytes or a connect are held back.
    """
    hosts = injection.hosts()
    if len(hosts) < HOSTS_MIN:
        return
    injection.random.shuffle(hosts)
    part(injection, silenced(hosts))


def silenced(ring: list[str]) -> list[tuple[str, str]]:
    """Return the (source, target) pairs that are blocked: each target receives only from the
    majority around it on the ring.
    """
    size = len(ring)
    majority = size // 2 + 1
    pairs = []
    for first in range(size):
        reachable = [ring[(first + step) % size] for step in range(majority)]
        listener = reachable[majority // 2]
        pairs += [(source, listener) for source in ring if source not in reachable]
    return pairs


async def ring_partition_over_sockets(injection: SocketInjection) -> None:
    """The same among the nodes, without clients: the proxy holds the bytes of blocked pairs."""
    nodes = injection.nodes()
    if len(nodes) < HOSTS_MIN:
        return
    injection.random.shuffle(nodes)
    await injection.while_it_lasts(
        silenced(nodes), Condition(holds=True), injection.integer("duration_ms")
    )


RING_PARTITION = FaultKind(
    name="ring-partition",
    title="a ring partition with a different majority for each host",
    family=Family.NETWORK,
    inject=ring_partition,
    over_sockets=ring_partition_over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 10_000},
    aim=Aim.ALL,
    draws={"duration_ms": Between(300, 8000)},
)


BOTH, DEAF, MUTE = "both", "in", "out"


def isolate_leader(injection: Injection) -> None:
    """The leader of the metadata quorum, or the controller in ZooKeeper mode, is isolated from all
    or some hosts, in one direction or both.

    The leader is known from the events of the nodes. If there is none, the next leader is isolated
    as soon as it is elected. A leader that can only send keeps acting as leader for a while
    (KIP-595, check quorum). Source: Jepsen (partition of the primaries).

    Isolate the leader for a while; it is effective when bytes or a connect are held back.
    """
    injection.when_led(lambda leader: part(injection, _links_of_leader(injection, leader)))


def _links_of_leader(injection: Injection, leader: str) -> list[tuple[str, str]]:
    directions = injection.text("ways")
    pairs = [
        pair
        for other in injection.hosts()
        if other != leader
        for pair in ((leader, other), (other, leader))
    ]
    return [
        pair for pair in pairs if directions == BOTH or (directions == DEAF) == (pair[1] == leader)
    ]


async def isolate_leader_over_sockets(injection: SocketInjection) -> None:
    """Find the leader, and let the proxy hold what it sends, or receives, or both."""
    leader = await injection.field.leader()
    directions = injection.text("ways")
    links = [
        link
        for link in injection.links_to_all
        if leader in link and (directions == BOTH or (directions == DEAF) == (link[1] == leader))
    ]
    await injection.while_it_lasts(links, Condition(holds=True), injection.integer("duration_ms"))


ISOLATE_LEADER = FaultKind(
    name="isolate-leader",
    title="an isolated leader",
    family=Family.NETWORK,
    inject=isolate_leader,
    over_sockets=isolate_leader_over_sockets,
    modes=EVERYWHERE,
    params={"ways": BOTH, "duration_ms": 5000},
    aim=Aim.ALL,
    draws={"ways": OneOf((BOTH, DEAF, MUTE)), "duration_ms": Between(300, 6000)},
)


def clog(injection: Injection) -> None:
    """A link is clogged: its bytes wait, and arrive all at once and in order when the clog ends.

    Nothing is lost, and TCP does not time out.

    A partition drops segments and lets TCP retransmit them; here the peer receives nothing and then
    everything at one moment.

    Clog the links of the target for a while; it is effective when bytes or a connect are held.

    Source: FoundationDB's simulator (clogPair).
    """
    clog_links(injection, injection.directions())


def clog_links(injection: Injection, pairs: list[tuple[str, str]]) -> None:
    """Clog some links while the fault lasts."""
    network = injection.simulation.network
    record_effect = injection.record_effect
    for source, target in pairs:
        network.clog(source, target, record_effect)

    def clear() -> None:
        for source, target in pairs:
            network.unclog(source, target, record_effect)

    injection.lasting(clear, injection.integer("duration_ms"))


async def clog_over_sockets(injection: SocketInjection) -> None:
    """Hold bytes in the proxy; new connections are accepted but transfer no data."""
    await injection.while_it_lasts(
        injection.links(), Condition(holds=True), injection.integer("duration_ms")
    )


CLOG = FaultKind(
    name="clog",
    title="a clogged link",
    family=Family.NETWORK,
    inject=clog,
    over_sockets=clog_over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 5000},
    aim=Aim.LINK,
    draws={"duration_ms": Between(50, 6000)},
)


def swizzle_clog(injection: Injection) -> None:
    """A random part of the hosts is clogged one by one, and unclogged one by one in another order.

    So the set of connected hosts changes all the time, and held bytes are released in another order
    than they were sent.

    Clog hosts one after the other over the first part of the duration, and unclog them over the
    last; it is effective when any bytes are held.

    Source: FoundationDB's simulator (swizzled clogging), whose authors call it their best finder of
    bugs.
    """
    hosts = [
        name
        for name in injection.hosts()
        if injection.random.random() * 100 < injection.integer("percent")
    ] or [injection.random.choice(injection.hosts())]
    duration_ms, spread_ms = injection.integer("duration_ms"), injection.integer("spread_ms")
    clogged: dict[str, list[tuple[str, str]]] = {}
    network = injection.simulation.network
    record_effect = injection.record_effect

    def clog(host: str) -> None:
        if injection.is_over:
            return
        clogged[host] = [
            pair
            for other in injection.simulation.hosts
            if other != host
            for pair in ((host, other), (other, host))
        ]
        for source, target in clogged[host]:
            network.clog(source, target, record_effect)

    def unclog(host: str) -> None:
        for source, target in clogged.pop(host, []):
            network.unclog(source, target, record_effect)

    def unclog_all() -> None:
        for host in list(clogged):
            unclog(host)

    for host in hosts:
        injection.after(injection.random.randint(0, spread_ms), partial(clog, host))
        injection.after(
            spread_ms + duration_ms + injection.random.randint(1, spread_ms + 1),
            partial(unclog, host),
        )
    injection.lasting(unclog_all, duration_ms + 2 * spread_ms + 2)


async def swizzle_clog_over_sockets(injection: SocketInjection) -> None:
    """The same with the nodes, including their links to clients."""
    random, nodes = injection.random, injection.nodes()
    chosen = [name for name in nodes if random.random() * 100 < injection.integer("percent")] or [
        random.choice(nodes)
    ]
    duration_ms, spread_ms = injection.integer("duration_ms"), injection.integer("spread_ms")
    times = {
        name: (
            random.randint(0, spread_ms),
            spread_ms + duration_ms + random.randint(1, spread_ms + 1),
        )
        for name in chosen
    }

    async def clog_one(name: str) -> None:
        begin_ms, end_ms = times[name]
        await asyncio.sleep(begin_ms / 1000)
        await injection.while_it_lasts(
            links_of(name, nodes), Condition(holds=True), end_ms - begin_ms
        )

    await injection.before_it_ends(asyncio.gather(*(clog_one(name) for name in chosen)), 0)


SWIZZLE_CLOG = FaultKind(
    name="swizzle-clog",
    title="hosts clogged one by one and unclogged in another order",
    family=Family.NETWORK,
    inject=swizzle_clog,
    over_sockets=swizzle_clog_over_sockets,
    modes=EVERYWHERE,
    params={"percent": 50, "spread_ms": 1000, "duration_ms": 2000},
    aim=Aim.ALL,
    draws={
        "percent": OneOf((20, 50, 80)),
        "spread_ms": Between(50, 2000),
        "duration_ms": Between(50, 4000),
    },
)


def slow_link(injection: Injection) -> None:
    """Bytes between hosts take longer than usual, by a constant and a random part.

    Slow the links of the target for a while; it is effective when bytes are sent.
    """
    latency_ns = injection.integer("latency_ms") * NANOSECONDS_PER_MILLISECOND
    jitter_ns = injection.integer("jitter_ms") * NANOSECONDS_PER_MILLISECOND

    def delay(size_bytes: int) -> int:
        if size_bytes:
            injection.record_effect("bytes were delayed")
        return latency_ns + int(injection.random.random() * jitter_ns)

    slow_links(injection, delay)


def slow_links(injection: Injection, delay: Callable[[int], int]) -> None:
    """Delay the bytes on the links of the target by the result of a function, while the fault
    lasts.
    """
    network = injection.simulation.network
    pairs = injection.directions()
    for source, target in pairs:
        network.slow(source, target, delay)

    def hasten() -> None:
        for source, target in pairs:
            network.hasten(source, target, delay)

    injection.lasting(hasten, injection.integer("duration_ms"))


async def slow_link_over_sockets(injection: SocketInjection) -> None:
    """Delay bytes in the proxy."""
    condition = Condition(
        latency_ms=injection.integer("latency_ms"), jitter_ms=injection.integer("jitter_ms")
    )
    await injection.while_it_lasts(injection.links(), condition, injection.integer("duration_ms"))


SLOW_LINK = FaultKind(
    name="slow-link",
    title="a slow network",
    family=Family.NETWORK,
    inject=slow_link,
    over_sockets=slow_link_over_sockets,
    modes=EVERYWHERE,
    params={"latency_ms": 500, "jitter_ms": 1000, "duration_ms": 10_000},
    aim=Aim.LINK,
    draws={
        "latency_ms": Between(5, 300),
        "jitter_ms": Between(5, 300),
        "duration_ms": Between(500, 6000),
    },
)


SHAPE = 1.1
"""Pareto's alpha: this close to 1 the longest delay of a thousand is hundreds of times the usual
one.
"""


def heavy_tail(injection: Injection) -> None:
    """Most bytes between hosts have the usual latency, but a few take very much longer: a
    heavy-tailed latency.

    Their delay follows a Pareto distribution, as in networks with lost packets and full queues; a
    mean does not describe it. Bytes behind delayed bytes on the same connection are delayed, too.

    Give the links of the target a heavy-tailed latency for a while; it is effective when bytes are
    in the tail.
    """
    share = injection.integer("permille") / 1000
    scale_ns = injection.integer("scale_ms") * NANOSECONDS_PER_MILLISECOND
    longest_ns = injection.integer("longest_ms") * NANOSECONDS_PER_MILLISECOND

    def delay(size_bytes: int) -> int:
        if injection.random.random() >= share:
            return 0
        if size_bytes:
            injection.record_effect("bytes came very late")
        return min(int(scale_ns / (1.0 - injection.random.random()) ** (1 / SHAPE)), longest_ns)

    slow_links(injection, delay)


async def heavy_tail_over_sockets(injection: SocketInjection) -> None:
    """Let the proxy delay some of its reads."""
    condition = Condition(
        tail_permille=injection.integer("permille"),
        tail_scale_ms=injection.integer("scale_ms"),
        tail_longest_ms=injection.integer("longest_ms"),
    )
    await injection.while_it_lasts(injection.links(), condition, injection.integer("duration_ms"))


HEAVY_TAIL = FaultKind(
    name="heavy-tail",
    title="a heavy-tailed network latency",
    family=Family.NETWORK,
    inject=heavy_tail,
    over_sockets=heavy_tail_over_sockets,
    modes=EVERYWHERE,
    params={"permille": 50, "scale_ms": 20, "longest_ms": 5000, "duration_ms": 10_000},
    aim=Aim.LINK,
    draws={
        "permille": OneOf((10, 50, 200)),
        "scale_ms": Between(5, 200),
        "longest_ms": OneOf((500, 2000, 10_000)),
        "duration_ms": Between(500, 8000),
    },
)


NANOSECONDS = 1_000_000_000


def bandwidth_cap(injection: Injection) -> None:
    """The bandwidth between hosts is limited: faster writes queue up, and small frames wait behind
    large ones.

    Limit the bandwidth of each link of the target, in each direction separately, for a while; it is
    effective when bytes wait for others.
    """
    network = injection.simulation.network
    bytes_per_second = injection.integer("bytes_per_second")
    narrowed = []
    for source, target in injection.directions():
        wait = _Queue(injection, bytes_per_second).wait
        network.slow(source, target, wait)
        narrowed.append((source, target, wait))

    def widen() -> None:
        for source, target, wait in narrowed:
            network.hasten(source, target, wait)

    injection.lasting(widen, injection.integer("duration_ms"))


class _Queue:
    """The transmission queue of one link."""

    def __init__(self, injection: Injection, bytes_per_second: int) -> None:
        self._inject = injection
        self._bytes_per_second = bytes_per_second
        self._free_at_ns = 0

    def wait(self, size_bytes: int) -> int:
        """Return how long a segment takes until its last byte is transmitted."""
        now_ns = self._inject.simulation.now_ns
        if size_bytes and self._free_at_ns > now_ns:
            self._inject.record_effect(f"{size_bytes} bytes waited for others")
        self._free_at_ns = (
            max(self._free_at_ns, now_ns) + size_bytes * NANOSECONDS // self._bytes_per_second
        )
        return self._free_at_ns - now_ns


async def bandwidth_cap_over_sockets(injection: SocketInjection) -> None:
    """Limit the bandwidth in the proxy; it is effective when bytes wait for others."""
    await injection.while_it_lasts(
        injection.links(),
        Condition(bytes_per_second=injection.integer("bytes_per_second")),
        injection.integer("duration_ms"),
    )


BANDWIDTH_CAP = FaultKind(
    name="bandwidth-cap",
    title="a limited network bandwidth",
    family=Family.NETWORK,
    inject=bandwidth_cap,
    over_sockets=bandwidth_cap_over_sockets,
    modes=EVERYWHERE,
    params={"bytes_per_second": 5000, "duration_ms": 10_000},
    aim=Aim.LINK,
    draws={"bytes_per_second": Between(500, 200_000), "duration_ms": Between(500, 8000)},
)


FAULTS = (
    PARTITION,
    RING_PARTITION,
    ISOLATE_LEADER,
    CLOG,
    SWIZZLE_CLOG,
    SLOW_LINK,
    HEAVY_TAIL,
    BANDWIDTH_CAP,
)

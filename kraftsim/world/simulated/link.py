"""One direction between two hosts: how long bytes take, and whether they get through at all."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

NANOSECONDS_PER_MILLISECOND = 1_000_000
LOOPBACK_NS = 20_000

Bite = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkSettings:
    """How all links begin, and the patience of TCP."""

    latency_ns: int = 300_000
    jitter_ns: int = 400_000
    torn_writes: float = 0.02
    """How often the bytes of one write arrive in two reads."""
    connect_limit_ns: int = 30_000 * NANOSECONDS_PER_MILLISECOND
    """How long a connect is tried on a host that does not answer (Linux takes 127 s, Kafka's clients give up before)."""
    retransmission_limit_ns: int = 60_000 * NANOSECONDS_PER_MILLISECOND
    """How long unacknowledged bytes are sent again before the connection fails (Linux takes 15 minutes)."""
    retransmission_ns: int = 200 * NANOSECONDS_PER_MILLISECOND
    """Bytes that were held back by a partition come up to this late once it is healed."""


class Link:
    """The way from one host to another. Its random numbers are its own, so that a fault on one link shifts nothing on others."""

    __slots__ = ("_blocks", "_slow", "draw", "is_blocked", "is_loopback", "jitter_ns", "latency_ns", "name", "torn_writes")

    def __init__(self, *, seed: int, source: str, target: str, settings: NetworkSettings) -> None:
        self.name = f"{source}>{target}"
        self.is_loopback = source == target
        self.draw = Random(f"{seed}/link/{self.name}").random
        self.latency_ns = LOOPBACK_NS if self.is_loopback else settings.latency_ns
        self.jitter_ns = LOOPBACK_NS if self.is_loopback else settings.jitter_ns
        self.torn_writes = settings.torn_writes
        self.is_blocked = False
        self._blocks: list[Bite] = []
        self._slow: list[tuple[int, int, Bite]] = []

    def delay_ns(self) -> int:
        """Draw how long the next bytes take."""
        delay_ns = self.latency_ns + int(self.draw() * self.jitter_ns)
        for latency_ns, jitter_ns, bite in self._slow:
            delay_ns += latency_ns + int(self.draw() * jitter_ns)
            bite("bytes were delayed")
        return delay_ns

    def block(self, bite: Bite) -> None:
        """Let nothing through until `unblock` with the same function; it is told when something is held back."""
        self._blocks.append(bite)
        self.is_blocked = True

    def unblock(self, bite: Bite) -> None:
        """End one block; others may go on."""
        self._blocks.remove(bite)
        self.is_blocked = bool(self._blocks)

    def bite(self, effect: str) -> None:
        """Tell everybody who blocks this link that the block had an effect."""
        for bite in self._blocks:
            bite(effect)

    def slow(self, latency_ns: int, jitter_ns: int, bite: Bite) -> None:
        """Add a delay to everything sent until `hasten` with the same function."""
        self._slow.append((latency_ns, jitter_ns, bite))

    def hasten(self, bite: Bite) -> None:
        """End one slowness."""
        self._slow = [entry for entry in self._slow if entry[2] is not bite]

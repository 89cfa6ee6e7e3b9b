"""One direction between two hosts: how long bytes take, in which pieces they arrive, whether they get through at all, and what becomes of connects.

Faults put conditions on a link and take them off again; several of a kind may be on it at once. Without any, a link costs what it always did.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

NANOSECONDS_PER_MILLISECOND = 1_000_000
LOOPBACK_NS = 20_000

Bite = Callable[[str], None]
"""Is told, in words, that something had an effect."""
Delay = Callable[[int], int]
"""Bytes of a segment -> how many nanoseconds longer it takes."""
Tear = Callable[[bytes], Iterable[tuple[bytes, int]]]
"""The bytes of one write -> the pieces in which they arrive, each with the nanoseconds between it and the one before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkSettings:
    """How all links begin, and the patience of TCP."""

    latency_ns: int = 300_000
    jitter_ns: int = 400_000
    torn_writes: float = 0.02
    """How often the bytes of one write arrive in two reads."""
    read_bytes: int = 0
    """How many bytes one read gives at most, those of several writes where they wait. 0: every arrival is a read of its own, whole."""
    connect_limit_ns: int = 30_000 * NANOSECONDS_PER_MILLISECOND
    """How long a connect is tried on a host that does not answer (Linux takes 127 s, Kafka's clients give up before)."""
    retransmission_limit_ns: int = 60_000 * NANOSECONDS_PER_MILLISECOND
    """How long unacknowledged bytes are sent again before the connection fails (Linux takes 15 minutes)."""
    retransmission_ns: int = 200 * NANOSECONDS_PER_MILLISECOND
    """Bytes that were held back by a partition come up to this late once it is healed."""


class Gate(Enum):
    """What becomes of a connect, while connections that are open go on."""

    REFUSE = 1
    """It is answered with a reset, as a full backlog or a firewall that rejects would do."""
    DROP = 2
    """Nobody answers, as behind a firewall that drops."""


class Link:
    """The way from one host to another. Its random numbers are its own, so that a fault on one link shifts nothing on others."""

    __slots__ = (
        "_blocks", "_clogs", "_delays", "_gates", "_tears", "_waiting", "draw", "is_blocked", "is_clogged", "is_loopback", "is_shut", "jitter_ns",
        "latency_ns", "name", "tear", "torn_writes",
    )  # fmt: skip

    def __init__(self, *, seed: int, source: str, target: str, settings: NetworkSettings) -> None:
        self.name = f"{source}>{target}"
        self.is_loopback = source == target
        self.draw = Random(f"{seed}/link/{self.name}").random
        self.latency_ns = LOOPBACK_NS if self.is_loopback else settings.latency_ns
        self.jitter_ns = LOOPBACK_NS if self.is_loopback else settings.jitter_ns
        self.torn_writes = settings.torn_writes
        self.is_shut = False
        """Whether nothing gets through now, for one of the two reasons below."""
        self.is_blocked = False
        self.is_clogged = False
        self.tear: Tear | None = None
        """How the bytes of every write are torn, if a fault says so."""
        self._blocks: list[Bite] = []
        self._clogs: list[Bite] = []
        self._delays: list[Delay] = []
        self._gates: list[tuple[Gate, Bite]] = []
        self._tears: list[Tear] = []
        self._waiting: list[asyncio.Future[None]] = []

    def delay_ns(self, size_bytes: int = 0) -> int:
        """Draw how long the next segment takes."""
        delay_ns = self.latency_ns + int(self.draw() * self.jitter_ns)
        for delay in self._delays:
            delay_ns += delay(size_bytes)
        return delay_ns

    # ---- conditions

    def block(self, bite: Bite) -> None:
        """Lose what arrives until `unblock` with the same function; it is told when something is held back."""
        self._blocks.append(bite)
        self._look()

    def unblock(self, bite: Bite) -> None:
        """End one block; others may go on."""
        self._blocks.remove(bite)
        self._look()

    def clog(self, bite: Bite) -> None:
        """Hold what arrives, connects as well, until `unclog` with the same function."""
        self._clogs.append(bite)
        self._look()

    def unclog(self, bite: Bite) -> None:
        """End one clog; others may go on."""
        self._clogs.remove(bite)
        self._look()
        if not self.is_clogged:
            self._wake_all()

    def bite(self, effect: str) -> None:
        """Tell everybody who blocks or clogs this link that it had an effect."""
        for bite in (*self._blocks, *self._clogs):
            bite(effect)

    def slow(self, delay: Delay) -> None:
        """Ask this function, too, how much longer a segment takes, until `hasten` with the same one."""
        self._delays.append(delay)

    def hasten(self, delay: Delay) -> None:
        """End one slowness."""
        self._delays.remove(delay)
        if not self._delays:
            self._wake_all()

    def guard(self, gate: Gate, bite: Bite) -> None:
        """Refuse or drop connects until `unguard` with the same arguments."""
        self._gates.append((gate, bite))

    def unguard(self, gate: Gate, bite: Bite) -> None:
        """End one guard."""
        self._gates.remove((gate, bite))

    def gate(self) -> Gate | None:
        """Say what becomes of a connect that arrives now, and tell who wants it so; None: it goes on."""
        for gate, bite in self._gates:
            bite("a connect was refused" if gate is Gate.REFUSE else "a connect was not answered")
            return gate
        return None

    def begin_tearing(self, tear: Tear) -> None:
        """Tear every write with this function until `end_tearing`; the last one that began decides."""
        self._tears.append(tear)
        self.tear = tear

    def end_tearing(self, tear: Tear) -> None:
        """End one tearing."""
        self._tears.remove(tear)
        self.tear = self._tears[-1] if self._tears else None

    @property
    def is_slow(self) -> bool:
        """Tell whether a fault makes segments take longer."""
        return bool(self._delays)

    def wake(self, future: "asyncio.Future[None]") -> None:
        """Set the result of a future once a clog or the last slowness of this link ends."""
        self._waiting.append(future)

    def _wake_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _look(self) -> None:
        self.is_blocked = bool(self._blocks)
        self.is_clogged = bool(self._clogs)
        self.is_shut = self.is_blocked or self.is_clogged

"""One direction between two hosts: latency, splitting of writes, partitions, and the handling of
connection attempts.

Faults impose conditions on a link and remove them again; several of a kind may be in force at once.
Without any there is no extra cost.
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

EffectRecorder = Callable[[str], None]
"""Called with a description when a fault had an effect."""
Delay = Callable[[int], int]
"""Bytes of a segment -> its additional delay in nanoseconds."""
Tear = Callable[[bytes], Iterable[tuple[bytes, int]]]
"""The bytes of one write -> the pieces in which they arrive, each with the nanoseconds since the
previous one.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkSettings:
    """The initial state of all links, and TCP's time-outs."""

    latency_ns: int = 300_000
    jitter_ns: int = 400_000
    torn_writes: float = 0.02
    """The share of writes that arrive in two reads."""
    read_bytes: int = 0
    """The maximum size of one read, which may span several writes.

    0: every arrival is one whole read.
    """
    connect_limit_ns: int = 30_000 * NANOSECONDS_PER_MILLISECOND
    """The connect time-out for a host that does not answer (Linux: 127 s, Kafka's clients give up
    before).
    """
    retransmission_limit_ns: int = 60_000 * NANOSECONDS_PER_MILLISECOND
    """How long unacknowledged bytes are retransmitted before the connection fails (Linux: 15
    minutes).
    """
    retransmission_ns: int = 200 * NANOSECONDS_PER_MILLISECOND
    """The maximum delay of bytes that a partition held back, after it is healed."""


class Gate(Enum):
    """The effect of a fault on connection attempts, while open connections keep working."""

    REFUSE = 1
    """A reset, as from a full backlog or a firewall that rejects."""
    DROP = 2
    """No answer, as behind a firewall that drops."""


class Link:
    """The direction from one host to another.

    It has its own random numbers, so that a fault on one link does not affect others.
    """

    __slots__ = (
        "_blocks",
        "_clogs",
        "_delays",
        "_gates",
        "_tears",
        "_waiting",
        "draw",
        "is_blocked",
        "is_clogged",
        "is_loopback",
        "is_shut",
        "is_slow",
        "jitter_ns",
        "latency_ns",
        "name",
        "tear",
        "torn_writes",
    )

    def __init__(self, *, seed: int, source: str, target: str, settings: NetworkSettings) -> None:
        self.name = f"{source}>{target}"
        self.is_loopback = source == target
        self.draw = Random(f"{seed}/link/{self.name}").random
        self.latency_ns = LOOPBACK_NS if self.is_loopback else settings.latency_ns
        self.jitter_ns = LOOPBACK_NS if self.is_loopback else settings.jitter_ns
        self.torn_writes = settings.torn_writes
        self.is_shut = False
        """Whether the link is blocked now, for one of the two reasons below."""
        self.is_blocked = False
        self.is_clogged = False
        self.is_slow = False
        """Whether a fault delays segments."""
        self.tear: Tear | None = None
        """Splits the bytes of every write, if a fault requires it."""
        self._blocks: list[EffectRecorder] = []
        self._clogs: list[EffectRecorder] = []
        self._delays: list[Delay] = []
        self._gates: list[tuple[Gate, EffectRecorder]] = []
        self._tears: list[Tear] = []
        self._waiting: list[asyncio.Future[None]] = []

    def delay_ns(self, size_bytes: int = 0) -> int:
        """Draw the latency of the next segment."""
        delay_ns = self.latency_ns + int(self.draw() * self.jitter_ns)
        for delay in self._delays:
            delay_ns += delay(size_bytes)
        return delay_ns

    # ---- conditions

    def block(self, record_effect: EffectRecorder) -> None:
        """Drop arriving segments until `unblock` with the same function, which is called when
        something is held back.
        """
        self._blocks.append(record_effect)
        self._look()

    def unblock(self, record_effect: EffectRecorder) -> None:
        """End one block; others may remain."""
        self._blocks.remove(record_effect)
        self._look()

    def clog(self, record_effect: EffectRecorder) -> None:
        """Hold arriving segments and connects until `unclog` with the same function."""
        self._clogs.append(record_effect)
        self._look()

    def unclog(self, record_effect: EffectRecorder) -> None:
        """End one clog; others may remain."""
        self._clogs.remove(record_effect)
        self._look()
        if not self.is_clogged:
            self._wake_all()

    def record_effect(self, effect: str) -> None:
        """Report an effect to all faults that block or clog this link."""
        for record_effect in (*self._blocks, *self._clogs):
            record_effect(effect)

    def slow(self, delay: Delay) -> None:
        """Add the delay of this function to segments, until `hasten` with the same one."""
        self._delays.append(delay)
        self.is_slow = True

    def hasten(self, delay: Delay) -> None:
        """End one slowness."""
        self._delays.remove(delay)
        self.is_slow = bool(self._delays)
        if not self.is_slow:
            self._wake_all()

    def guard(self, gate: Gate, record_effect: EffectRecorder) -> None:
        """Refuse or drop connects until `unguard` with the same arguments."""
        self._gates.append((gate, record_effect))

    def unguard(self, gate: Gate, record_effect: EffectRecorder) -> None:
        """End one guard."""
        self._gates.remove((gate, record_effect))

    def gate(self) -> Gate | None:
        """Return the effect on a connection attempt that arrives now, and report it to the fault;
        None: no effect.
        """
        for gate, record_effect in self._gates:
            record_effect(
                "a connect was refused" if gate is Gate.REFUSE else "a connect was not answered"
            )
            return gate
        return None

    def begin_tearing(self, tear: Tear) -> None:
        """Split every write with this function until `end_tearing`; the latest one is used."""
        self._tears.append(tear)
        self.tear = tear

    def end_tearing(self, tear: Tear) -> None:
        """End one tearing."""
        self._tears.remove(tear)
        self.tear = self._tears[-1] if self._tears else None

    def wake(self, future: "asyncio.Future[None]") -> None:
        """Set the result of a future once a clog or the last delay of this link ends."""
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

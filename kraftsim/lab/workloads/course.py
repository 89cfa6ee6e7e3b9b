"""A directed course of steps, such as an upgrade or a migration, while faults are injected: one
mechanism for all of them.

The faults of a run begin with a step that its seed draws, so that over many seeds each step meets
them, and last for a fixed time; then all of them are healed. An operator takes the steps: while
faults last, a wait may take as long as it does; a wait that is in progress when they are healed has
its full limit from then on. So faults stretch a step, and bounds count from the healing. The first
wait of each kind that ends after the healing is recorded, for the invariant recovers-after-heal.

A broker that cannot register in ZooKeeper exits, as Kafka's do; once faults are healed a supervisor
starts it again (`phases.all_serve`).
"""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from kraftsim.clients.producer import ProducerIdRefused
from kraftsim.cluster.scenario import LivenessLost, ProducerIdClient, ScenarioEnvironment
from kraftsim.events.runs import PhaseBegan, Settled
from kraftsim.lab.workloads.phases import CALLS_SECONDS, FAULTS, LIVENESS

COURSE_FAULT_SECONDS: Final = 8.0
"""How long the faults of a course last: several steps of an upgrade, but not all of them, so that
the later ones must succeed in what faults have left behind.
"""
RETRY_SECONDS: Final = 0.5
"""How long an operator waits before a request is repeated."""


@dataclass(kw_only=True, slots=True)
class Course:
    """The course of one run.

    Faults begin with one of the first `steps_max` steps (0: when the scenario injects them), and
    last for so many `seconds`, or until the scenario heals them.
    """

    stage: ScenarioEnvironment
    steps_max: int
    seconds: float
    _steps: int = 0
    _first: int | None = field(init=False)
    _begun: asyncio.Event = field(default_factory=asyncio.Event)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _healed: asyncio.Event = field(default_factory=asyncio.Event)
    _healed_at: float = 0.0
    _limits: list[tuple[asyncio.Timeout, float]] = field(default_factory=list)
    """The waits in progress, each with its limit in seconds."""
    _recorded: set[str] = field(default_factory=set)
    """Kinds of waits that are recorded; for membership only, never iterated."""

    def __post_init__(self) -> None:
        self._first = (
            self.stage.random("course").randrange(self.steps_max) if self.steps_max else None
        )

    @property
    def lasts(self) -> bool:
        """Whether faults are being injected now."""
        return self._begun.is_set() and not self._healed.is_set()

    @property
    def is_healed(self) -> bool:
        """Whether all faults are over."""
        return self._healed.is_set()

    async def run(self, walk: Awaitable[None], *work: Awaitable[object]) -> None:
        """Take the steps of `walk` while clients do their work, inject the faults, and return when
        all of it is over.

        Raises what one of them raises, and LivenessLost if a wait exceeds its limit: also that for
        the clients, once the steps are taken and faults are healed.
        """
        finished = asyncio.Event()
        await self.stage.gather(
            self._walk(walk, finished), self._heal(), self._work(work, finished)
        )

    def step(self) -> None:
        """Begin a step; with the drawn one, faults begin."""
        if self._steps == self._first:
            self.inject()
        self._steps += 1

    def inject(self) -> None:
        """Let the faults begin now, unless they have."""
        if not self._begun.is_set():
            self.stage.emit(PhaseBegan(phase=FAULTS))
            self.stage.inject()
            self._begun.set()

    async def heal(self) -> None:
        """Heal the faults now, whether or not their time is over."""
        self._over.set()
        await self.until_healed()

    async def until_healed(self) -> None:
        """If faults have begun, return when they are healed: for a step that an operator takes in a
        healthy cluster only.
        """
        if self._begun.is_set():
            await self._healed.wait()

    async def finish(self) -> None:
        """Return when all faults are healed; a course that was too short for the drawn step meets
        them here.
        """
        self.inject()
        await self._healed.wait()

    async def within(self, what: str, wait: Awaitable[object], seconds: float) -> None:
        """Wait for something: no longer than so many seconds, times the patience of the
        environment, counted from the healing if faults last.

        Raises LivenessLost.
        """
        seconds *= self.stage.patience
        began = self.stage.now_seconds()
        try:
            async with asyncio.timeout(None if self.lasts else seconds) as limit:
                entry = (limit, seconds)
                self._limits.append(entry)
                try:
                    await wait
                finally:
                    self._limits.remove(entry)
        except TimeoutError as late:
            self._record(what, seconds, began, is_settled=False)
            raise LivenessLost(
                f"{what}: not reached within {seconds:g} s, at {self.stage.now_seconds():.1f} s"
            ) from late
        self._record(what, seconds, began, is_settled=True)

    async def ask(self, client: ProducerIdClient, count: int) -> None:
        """Request producer ids; while faults last a refusal is retried, as a restarted application
        does: a broker that loses its ZooKeeper session while it allocates a block answers with an
        error that ends a producer.
        """
        for _ in range(count):
            await self.within("calls", self._ask_one(client), CALLS_SECONDS)

    async def _ask_one(self, client: ProducerIdClient) -> None:
        while True:
            lasts = self.lasts
            try:
                await client.ask(1)
                return
            except ProducerIdRefused:
                if not lasts:
                    raise
                await self.stage.sleep(RETRY_SECONDS)

    async def _walk(self, walk: Awaitable[None], finished: asyncio.Event) -> None:
        await walk
        await self.finish()
        await self.within("calls", finished.wait(), CALLS_SECONDS)

    async def _work(self, work: tuple[Awaitable[object], ...], finished: asyncio.Event) -> None:
        await self.stage.gather(*work)
        finished.set()

    async def _heal(self) -> None:
        await self._begun.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.seconds):
                await self._over.wait()
        self.stage.emit(PhaseBegan(phase=LIVENESS))
        await self.stage.heal()
        self._healed_at = self.stage.now_seconds()
        self._healed.set()
        now = asyncio.get_running_loop().time()
        for limit, seconds in self._limits:
            limit.reschedule(now + seconds)

    def _record(self, what: str, seconds: float, began: float, *, is_settled: bool) -> None:
        """Emit how long the first wait of a kind took that ended after the healing."""
        if self._healed.is_set() and what not in self._recorded:
            self._recorded.add(what)
            since = max(began, self._healed_at)
            self.stage.emit(
                Settled(
                    what=what,
                    after_ms=int((self.stage.now_seconds() - since) * 1000),
                    limit_ms=int(seconds * 1000),
                    is_settled=is_settled,
                )
            )

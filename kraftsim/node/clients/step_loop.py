"""The loop around the pure rules of a client: inputs wait their turn, effects are carried out in order, and an alarm rings as the rules ask."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from kraftsim.world.interface import World

Input = TypeVar("Input")
Effect = TypeVar("Effect")
I_contra = TypeVar("I_contra", contravariant=True)
E_co = TypeVar("E_co", covariant=True)


class Rules(Protocol[I_contra, E_co]):
    """What a client's rules have in common. `E_co` is what stands in the list of effects."""

    @property
    def wake_at_ms(self) -> int | None:
        """When TimePassed is due even if nothing else happens; None: never."""
        ...

    def step(self, happened: I_contra, now_ms: int) -> E_co:
        """Take note of what happened and return what to do, in order."""
        ...


class StepLoop(Generic[Input, Effect]):
    """Feeds rules. `take` may be called from within `carry_out`: what happens meanwhile waits its turn."""

    def __init__(self, world: World, rules: Rules[Input, list[Effect]], carry_out: Callable[[Effect], None], time_passed: Input) -> None:
        self._world = world
        self._rules = rules
        self._carry_out = carry_out
        self._time_passed = time_passed
        self._inputs: deque[Input] = deque()
        self._is_stepping = False
        self._alarm: asyncio.TimerHandle | None = None
        self._armed_at_ms: int | None = None
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self.is_over = False
        self._is_frozen = False

    @property
    def failure(self) -> BaseException | None:
        """What ended the client, if anything did."""
        return self._failure

    def take(self, happened: Input) -> None:
        """Tell the rules what happened, and carry out what they want."""
        self._inputs.append(happened)
        if self._is_stepping or self.is_over or self._is_frozen:
            return
        self._go_through()

    def freeze(self) -> None:
        """Stand still, as a process whose garbage is being collected: what happens meanwhile is heard of later, and no alarm rings."""
        self._is_frozen = True
        self._disarm()

    def thaw(self) -> None:
        """Go on with what happened meanwhile."""
        self._is_frozen = False
        self.take(self._time_passed)

    def _go_through(self) -> None:
        self._is_stepping = True
        try:
            while self._inputs and not self.is_over:
                for effect in self._rules.step(self._inputs.popleft(), self._world.clock.monotonic_ms()):
                    self._carry_out(effect)
        finally:
            self._is_stepping = False
        self._arm()
        self._changed.set()

    async def change(self) -> None:
        """Wait until the rules took a step. Raises what ended the client, if anything did."""
        if self._failure is not None:
            raise self._failure
        self._changed.clear()
        await self._changed.wait()
        if self._failure is not None:
            raise self._failure

    def fail(self, failure: BaseException) -> None:
        """End the client by what nobody expected."""
        self._failure = failure
        self._changed.set()

    def end(self) -> None:
        """Take nothing any more."""
        self.is_over = True
        self._disarm()
        self._changed.set()

    def _arm(self) -> None:
        wake_at_ms = self._rules.wake_at_ms
        if wake_at_ms == self._armed_at_ms and self._alarm is not None:
            return
        self._disarm()
        if wake_at_ms is not None and not self.is_over:
            self._armed_at_ms = wake_at_ms
            delay_ms = max(1, wake_at_ms - self._world.clock.monotonic_ms())
            self._alarm = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        self.take(self._time_passed)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

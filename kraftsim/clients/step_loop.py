"""The event loop around a client's state machine: inputs are queued, effects are executed in order,
and one timer is scheduled.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from kraftsim.server.pump import Pump
from kraftsim.world.interface import World

Input = TypeVar("Input")
Effect = TypeVar("Effect")
I_contra = TypeVar("I_contra", contravariant=True)
E_co = TypeVar("E_co", covariant=True)


class Rules(Protocol[I_contra, E_co]):
    """The common interface of client state machines. `E_co` is the type of the list of effects."""

    @property
    def wake_at_ms(self) -> int | None:
        """When TimePassed is due without another input; None: never."""
        ...

    def step(self, happened: I_contra, now_ms: int) -> E_co:
        """Process an input and return the effects, in order."""
        ...


class StepLoop(Generic[Input, Effect]):
    """Feeds a state machine.

    `take` may be called from within `carry_out`: such inputs are queued.
    """

    def __init__(
        self,
        world: World,
        rules: Rules[Input, list[Effect]],
        carry_out: Callable[[Effect], None],
        time_passed: Input,
    ) -> None:
        self._world = world
        self._rules = rules
        self._pump = Pump(carry_out)
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
        """The error that stopped the client, if there is one."""
        return self._failure

    def take(self, happened: Input) -> None:
        """Process an input, and execute its effects."""
        self._inputs.append(happened)
        if self._is_stepping or self.is_over or self._is_frozen:
            return
        self._go_through()

    def freeze(self) -> None:
        """Pause, like a process in a long garbage collection: inputs are queued, and no timer
        fires.
        """
        self._is_frozen = True
        self._disarm()

    def thaw(self) -> None:
        """Resume with the queued inputs."""
        self._is_frozen = False
        self.take(self._time_passed)

    def _go_through(self) -> None:
        self._is_stepping = True
        try:
            while self._inputs and not self.is_over:
                self._pump.run(
                    self._rules.step(self._inputs.popleft(), self._world.clock.monotonic_ms())
                )
        finally:
            self._is_stepping = False
        self._arm()
        self._changed.set()

    async def change(self) -> None:
        """Wait for the next step. Raises the error that stopped the client, if there is one."""
        if self._failure is not None:
            raise self._failure
        self._changed.clear()
        await self._changed.wait()
        if self._failure is not None:
            raise self._failure

    def fail(self, failure: BaseException) -> None:
        """Stop the client by an unexpected error."""
        self._failure = failure
        self._changed.set()

    def end(self) -> None:
        """Ignore all further inputs."""
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

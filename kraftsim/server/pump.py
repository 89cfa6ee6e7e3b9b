"""The one runner of rules that return effects: a step takes one input and returns a list of
effects, which a pump executes in order, one at a time.

A step is `step(input, now_ms)`, or one method per input (`queue.on_lost(broker_id)`) where an
object per input would cost more than the step. An input with a value of its own (`claim` of a
producer id, `leave` of a group) returns it with the effects. Executing an effect may cause the next
input at once (an available response, a failed send): the rules see that input at once, and its
effects are queued behind the earlier ones.

Two shells have a runner of their own, because effects of theirs hold back all later ones until they
are durable: `kraftsim.raft.raft_node`, where `take_effects` returns those of all inputs since the
last call, and `kraftsim.zookeeper.server`.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Input = TypeVar("Input")
E = TypeVar("E")


class Pump(Generic[E]):
    """Executes the effects of one rules object.

    Pass what each step returned to `run`; effects passed from inside `carry_out` are executed by
    the active run.
    """

    __slots__ = ("_carry_out", "_is_running", "_pending")

    def __init__(self, carry_out: Callable[[E], None]) -> None:
        self._carry_out = carry_out
        self._pending: list[E] = []
        self._is_running = False

    def run(self, effects: list[E]) -> None:
        """Execute the effects of a step, and all that they cause."""
        if self._is_running:
            self._pending += effects
            return
        if self._pending:  # an effect before these has raised
            effects, self._pending = [*self._pending, *effects], []
        if not effects:
            return
        self._is_running = True
        try:
            while effects:
                for effect in effects:
                    self._carry_out(effect)
                effects = self._pending
                if effects:
                    self._pending = []
        finally:
            self._is_running = False


async def run_awaited(
    step: Callable[[Input], list[E]],
    happened: Input,
    carry_out: Callable[[E], Awaitable[Input | None]],
) -> None:
    """Step with an input, and execute effects that take time, one at a time; what comes of them is
    stepped with before any other input.
    """
    inputs = deque([happened])
    while inputs:
        for effect in step(inputs.popleft()):
            outcome = await carry_out(effect)
            if outcome is not None:
                inputs.append(outcome)

"""Executes the effects of a stepper core: in order, one at a time, whatever happens meanwhile.

Executing an effect may feed the core again immediately (an available response, a failed send); the
resulting effects are queued behind the earlier ones.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

E = TypeVar("E")


class Pump(Generic[E]):
    """One per core.

    Call `run` after each input; calls from inside `carry_out` are handled by the active run.
    """

    __slots__ = ("_carry_out", "_is_running", "_take_effects")

    def __init__(self, take_effects: Callable[[], list[E]], carry_out: Callable[[E], None]) -> None:
        self._take_effects = take_effects
        self._carry_out = carry_out
        self._is_running = False

    def run(self) -> None:
        """Execute all pending effects."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while effects := self._take_effects():
                for effect in effects:
                    self._carry_out(effect)
        finally:
            self._is_running = False

"""Carries out what a stepper core decided: its effects, in order, one after the other, whatever happens meanwhile.

Carrying out an effect may feed the core again at once (an answer that was already there, a send that failed); what comes of that stands behind what
was decided before.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

E = TypeVar("E")


class Pump(Generic[E]):
    """One per core. Call `run` after each input; calls from inside `carry_out` are taken up by the run that is under way."""

    __slots__ = ("_carry_out", "_is_running", "_take_effects")

    def __init__(self, take_effects: Callable[[], list[E]], carry_out: Callable[[E], None]) -> None:
        self._take_effects = take_effects
        self._carry_out = carry_out
        self._is_running = False

    def run(self) -> None:
        """Carry out everything that is decided."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while effects := self._take_effects():
                for effect in effects:
                    self._carry_out(effect)
        finally:
            self._is_running = False

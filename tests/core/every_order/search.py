"""Every order of all possible events, up to a depth: each state is checked once, however it was
reached.

A state is rebuilt from the moves that lead to it, which is cheaper than copying it. The world
itself asserts the invariants.
Source: the bounded exhaustive mode of model checkers (SPIN, Stateright), with the real rules in
place of a model.
"""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol


class World(Protocol):
    """A system in which moves can be made."""

    def moves(self) -> list[str]:
        """Return the possible moves, always in the same order."""
        ...

    def make(self, move: str) -> None:
        """Make a move. Raises AssertionError if an invariant is violated."""
        ...

    def state(self) -> Hashable:
        """Return everything that the future depends on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """How far the search went: all orders of `depth` moves were made, and `states` different states
    found (some of them one move further).
    """

    depth: int
    states: int
    moves: int
    cpu_seconds: float
    is_complete: bool
    """Whether the search is complete: no state has a move that leads to a new one."""


class Broken(AssertionError):
    """An invariant is violated after these moves."""


def search(new_world: Callable[[], World], *, depth: int, cpu_seconds: float) -> Searched:
    """Make all moves in all orders, breadth first, until a depth is complete or the time is up.
    Raises Broken with the shortest sequence.
    """
    began = time.process_time()
    first = new_world()
    seen = {first.state()}
    level: list[tuple[tuple[str, ...], list[str]]] = [((), first.moves())]
    """Each state by the moves that lead to it, and its own: asked while its world exists."""
    moves = 0
    for reached in range(depth):
        following: list[tuple[tuple[str, ...], list[str]]] = []
        for path, possible in level:
            if time.process_time() - began > cpu_seconds:
                return Searched(
                    depth=reached,
                    states=len(seen),
                    moves=moves,
                    cpu_seconds=time.process_time() - began,
                    is_complete=False,
                )
            for move in possible:
                moves += 1
                world = after(new_world, (*path, move))
                state = world.state()
                if state not in seen:
                    seen.add(state)
                    following.append(((*path, move), world.moves()))
        level = following
        if not level:
            return Searched(
                depth=reached,
                states=len(seen),
                moves=moves,
                cpu_seconds=time.process_time() - began,
                is_complete=True,
            )
    return Searched(
        depth=depth,
        states=len(seen),
        moves=moves,
        cpu_seconds=time.process_time() - began,
        is_complete=False,
    )


def after(new_world: Callable[[], World], path: tuple[str, ...]) -> World:
    """Return the world after some moves."""
    world = new_world()
    for made, move in enumerate(path, 1):
        try:
            world.make(move)
        except AssertionError as broken:
            raise Broken(f"{broken} after: {', '.join(path[:made])}") from broken
    return world

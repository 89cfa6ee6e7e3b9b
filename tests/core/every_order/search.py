"""Every order of everything that can happen, up to a depth: each state is looked at once, however it was come to.

A state is made again from the moves that lead to it, which costs less than to copy it. What must hold is asserted by the world itself.
Source: the bounded exhaustive mode of model checkers (SPIN, Stateright), with the real rules in the place of a model.
"""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol


class World(Protocol):
    """Something that moves can be made in."""

    def moves(self) -> list[str]:
        """Return what can happen now, always in the same order."""
        ...

    def make(self, move: str) -> None:
        """Let something happen. Raises AssertionError where something that must hold does not."""
        ...

    def state(self) -> Hashable:
        """Return everything that decides what can happen from here on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """How far it went: all orders of `depth` moves were made, and `states` different states found (some of them one move further)."""

    depth: int
    states: int
    moves: int
    cpu_seconds: float
    is_complete: bool
    """Whether there is nothing further: no state has a move that leads to a new one."""


class Broken(AssertionError):
    """What must hold does not, after these moves."""


def search(new_world: Callable[[], World], *, depth: int, cpu_seconds: float) -> Searched:
    """Make all moves in all orders, breadth first, until all of a depth are made or the time is over. Raises Broken with the shortest way to it."""
    began = time.process_time()
    seen = {new_world().state()}
    level: list[tuple[str, ...]] = [()]
    moves = 0
    for reached in range(depth):
        following: list[tuple[str, ...]] = []
        for path in level:
            if time.process_time() - began > cpu_seconds:
                return Searched(depth=reached, states=len(seen), moves=moves, cpu_seconds=time.process_time() - began, is_complete=False)
            for move in after(new_world, path).moves():
                moves += 1
                world = after(new_world, (*path, move))
                state = world.state()
                if state not in seen:
                    seen.add(state)
                    following.append((*path, move))
        level = following
        if not level:
            return Searched(depth=reached, states=len(seen), moves=moves, cpu_seconds=time.process_time() - began, is_complete=True)
    return Searched(depth=depth, states=len(seen), moves=moves, cpu_seconds=time.process_time() - began, is_complete=False)


def after(new_world: Callable[[], World], path: tuple[str, ...]) -> World:
    """Return the world after some moves."""
    world = new_world()
    for made, move in enumerate(path, 1):
        try:
            world.make(move)
        except AssertionError as broken:
            raise Broken(f"{broken} after: {', '.join(path[:made])}") from broken
    return world

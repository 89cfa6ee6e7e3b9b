"""Every order of all possible events, up to a depth: each state is checked once, however it was
reached.

Breadth first, so that the first violation has the shortest path. A world is copied by pickling it,
or rebuilt from its moves if it has parts that cannot be pickled. Worlds that know which moves
commute leave out orders of those (partial-order reduction). Afterwards each state must have a way
to a settled one without further faults: neither a deadlock nor endless retries.
Source: the exhaustive mode of model checkers (SPIN, Stateright), with the real rules in place of a
model; persistent sets (Godefroid 1996), with the proviso of Bosnacki and Holzmann for breadth
first search: a state whose reduced successors are all known is expanded completely.
"""

import pickle
import time
from array import array
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


class SettlingWorld(World, Protocol):
    """A system that comes to rest, and knows which moves commute."""

    def is_fault(self, move: str) -> bool:
        """Return whether a move need not happen: a failure, or the arrival of what was lost."""
        ...

    def is_settled(self) -> bool:
        """Return whether all work is done, as it must be once nothing else can happen."""
        ...

    def sufficient(self, moves: list[str]) -> list[str]:
        """Return a persistent subset of the moves: whatever other moves do before one of these,
        they can be done after it.
        """
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
    settled: int = 0
    """The number of states in which all work is done."""


class Broken(AssertionError):
    """An invariant is violated after these moves."""


def search(
    new_world: Callable[[], World], *, depth: int, cpu_seconds: float, reduces: bool = False
) -> Searched:
    """Make all moves in all orders, breadth first, until a depth is complete or the time is up.
    Raises Broken with the shortest sequence.
    """
    began = time.process_time()
    if not hasattr(new_world(), "is_settled"):
        return _search_rebuilding(new_world, depth=depth, cpu_seconds=cpu_seconds, began=began)
    # arg-type: hasattr shows that it is one
    found = _Graph(new_world, reduces=reduces)  # type: ignore[arg-type]
    reached = 0
    while reached < depth and found.level:
        if not found.expand(lambda: time.process_time() - began > cpu_seconds):
            break
        reached += 1
    is_complete = not found.level
    if is_complete:
        found.check_progress()
    return Searched(
        depth=reached,
        states=len(found.seen),
        moves=found.moves,
        cpu_seconds=time.process_time() - began,
        is_complete=is_complete,
        settled=len(found.settled),
    )


@dataclass(slots=True)
class _Node:
    """A state at the edge of the search."""

    number: int
    world: bytes


class _Graph:
    """The states found so far, each with the way to it and those that follow without a fault."""

    def __init__(self, new_world: Callable[[], SettlingWorld], *, reduces: bool) -> None:
        self._reduces = reduces
        world = new_world()
        self.seen: dict[Hashable, int] = {world.state(): 0}
        self.settled: list[int] = [0] if world.is_settled() else []
        self.moves = 0
        self._parents = array("l", [-1])
        self._made: list[str] = [""]
        self._names: dict[str, str] = {}
        self._before: list[list[int]] = [[]]
        """The states from which a state follows without a fault."""
        self.level = [_Node(0, pickle.dumps(world, pickle.HIGHEST_PROTOCOL))]

    def expand(self, is_late: Callable[[], bool]) -> bool:
        """Make one more move in every state; return False if the time is up before."""
        following: list[_Node] = []
        for node in self.level:
            if is_late():
                return False
            world: SettlingWorld = pickle.loads(node.world)
            possible = world.moves()
            if all(map(world.is_fault, possible)) and not world.is_settled():
                raise Broken(
                    f"nothing goes on, and not all is done after: {self._way(node.number)}"
                )
            first = world.sufficient(possible) if self._reduces else possible
            found = self._make(node, first)
            if len(first) < len(possible) and not found:
                found = self._make(node, [each for each in possible if each not in first])
            following += found
        self.level = following
        return True

    def _make(self, node: _Node, moves: list[str]) -> list[_Node]:
        found = []
        for move in moves:
            self.moves += 1
            world: SettlingWorld = pickle.loads(node.world)
            try:
                world.make(move)
            except AssertionError as broken:
                raise Broken(f"{broken} after: {self._way(node.number, move)}") from broken
            state = world.state()
            number = self.seen.get(state)
            if number is None:
                number = self.seen[state] = len(self.seen)
                self._parents.append(node.number)
                self._made.append(self._names.setdefault(move, move))
                self._before.append([])
                if world.is_settled():
                    self.settled.append(number)
                found.append(_Node(number, pickle.dumps(world, pickle.HIGHEST_PROTOCOL)))
            if not world.is_fault(move):
                self._before[number].append(node.number)
        return found

    def check_progress(self) -> None:
        """Raise Broken for the first state from which no settled one follows without a fault."""
        reaches = bytearray(len(self.seen))
        waiting = list(self.settled)
        for number in waiting:
            reaches[number] = 1
        while waiting:
            for before in self._before[waiting.pop()]:
                if not reaches[before]:
                    reaches[before] = 1
                    waiting.append(before)
        stuck = reaches.find(0)
        if stuck >= 0:
            raise Broken(f"it goes on for ever after: {self._way(stuck)}")

    def _way(self, number: int, *last: str) -> str:
        way = list(last)
        while self._parents[number] >= 0:
            way.insert(0, self._made[number])
            number = self._parents[number]
        return ", ".join(way)


def _search_rebuilding(
    new_world: Callable[[], World], *, depth: int, cpu_seconds: float, began: float
) -> Searched:
    """Search a world that cannot be pickled: each state is rebuilt from its moves."""
    first = new_world()
    seen = {first.state()}
    level: list[tuple[tuple[str, ...], list[str]]] = [((), first.moves())]
    """Each state by the moves that lead to it, and its own: asked while its world exists."""
    moves, reached = 0, 0
    is_complete = is_late = False
    while reached < depth and not is_complete and not is_late:
        following: list[tuple[tuple[str, ...], list[str]]] = []
        for path, possible in level:
            is_late = time.process_time() - began > cpu_seconds
            if is_late:
                break
            for move in possible:
                moves += 1
                world = after(new_world, (*path, move))
                state = world.state()
                if state not in seen:
                    seen.add(state)
                    following.append(((*path, move), world.moves()))
        else:
            reached += bool(following)
            level, is_complete = following, not following
    return Searched(
        depth=reached,
        states=len(seen),
        moves=moves,
        cpu_seconds=time.process_time() - began,
        is_complete=is_complete,
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

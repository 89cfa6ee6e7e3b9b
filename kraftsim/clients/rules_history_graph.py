"""Directed graphs of a history checker: strongly connected components and short cycles.

Both are linear in nodes and edges, and iterative: histories are longer than Python's stack is deep.
Source: R. Tarjan, Depth-first search and linear graph algorithms, 1972.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

UNSEEN: Final = -1


class Edge(NamedTuple):
    """An edge: `reason` says why the source is before the target, for people."""

    source: int
    target: int
    kind: str
    reason: str


class Graph:
    """A graph of nodes from 0 on; each node has its edges in the order in which they were added."""

    def __init__(self) -> None:
        self._edges: list[list[Edge]] = []

    def node(self) -> int:
        """Add a node and return it."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, source: int, target: int, kind: str, reason: str = "") -> None:
        """Add an edge."""
        self._edges[source].append(Edge(source, target, kind, reason))

    def edges_of(self, node: int) -> Sequence[Edge]:
        """Return the edges that leave a node."""
        return self._edges[node]

    def cyclic_components(self, kinds: Collection[str] | None = None) -> list[list[int]]:
        """Return the strongly connected components with more than one node, over the edges with
        some kinds or over all.
        """
        index = [UNSEEN] * len(self._edges)
        low = [0] * len(self._edges)
        on_stack = [False] * len(self._edges)
        stack: list[int] = []
        found: list[list[int]] = []
        count = 0
        for root in range(len(self._edges)):
            if index[root] != UNSEEN:
                continue
            index[root] = low[root] = count
            count += 1
            stack.append(root)
            on_stack[root] = True
            path = [(root, self._targets(root, kinds))]
            while path:
                node, targets = path[-1]
                target = next(targets, None)
                if target is None:
                    path.pop()
                    if path:
                        low[path[-1][0]] = min(low[path[-1][0]], low[node])
                    if low[node] == index[node]:
                        component = _pop_until(stack, node, on_stack)
                        if len(component) > 1:
                            found.append(sorted(component))
                elif index[target] == UNSEEN:
                    index[target] = low[target] = count
                    count += 1
                    stack.append(target)
                    on_stack[target] = True
                    path.append((target, self._targets(target, kinds)))
                elif on_stack[target]:
                    low[node] = min(low[node], index[target])
        return found

    def cycle_through(
        self,
        edge: Edge,
        component: frozenset[int],
        kinds: Collection[str] | None = None,
        *,
        expensive: str = "",
    ) -> list[Edge]:
        """Return a cycle that begins with an edge and stays in a component that is strongly
        connected by edges of some kinds: one with the fewest edges of the expensive kind, and of
        those a short one.
        """
        came_by: dict[int, Edge] = {}
        cost = {edge.target: 0}
        settled: set[int] = set()  # for membership only, never iterated
        current, following = deque([edge.target]), deque[int]()
        while edge.source not in settled:
            if not current:
                current, following = following, current
            node = current.popleft()
            if node in settled:
                continue
            settled.add(node)
            for each in self._edges[node]:
                if kinds is not None and each.kind not in kinds:
                    continue
                is_expensive = each.kind == expensive
                total = cost[node] + is_expensive
                if each.target in component and total < cost.get(each.target, total + 1):
                    cost[each.target], came_by[each.target] = total, each
                    (following if is_expensive else current).append(each.target)
        cycle: list[Edge] = []
        node = edge.source
        while node != edge.target:
            cycle.append(came_by[node])
            node = came_by[node].source
        return [edge, *reversed(cycle)]

    def _targets(self, node: int, kinds: Collection[str] | None) -> Iterator[int]:
        for edge in self._edges[node]:
            if kinds is None or edge.kind in kinds:
                yield edge.target


def _pop_until(stack: list[int], node: int, on_stack: list[bool]) -> list[int]:
    component: list[int] = []
    while not component or component[-1] != node:
        popped = stack.pop()
        on_stack[popped] = False
        component.append(popped)
    return component

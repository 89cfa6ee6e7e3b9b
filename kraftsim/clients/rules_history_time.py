"""The order of time of a history: what became visible was appended and decided before.

Unlike reads of several partitions, this holds in Kafka. For each operation that appended something:
it begins, its values are appended, it is decided, they become visible, and it ends after its
decision. The values of a partition are appended in their order in the log, and become visible in
that order, because a reader stops below the last stable offset. A read returns after its last value
is visible. A transaction that reads before it appends is decided after its reads. A cycle of these
steps is a contradiction: a value that was read before it was sent or before its commit was
requested, two that were sent one after the other and are in the wrong order in the log, or two
transactions that read each other.
Source: KIP-98; UnifiedLog.lastStableOffset.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from kraftsim.clients.rules_history import NOT_ENDED, ClientOperation, OperationOutcome, Value
from kraftsim.clients.rules_history_anomalies import Anomaly, AnomalyKind, said, steps
from kraftsim.clients.rules_history_graph import Graph

THEN = "then"


class OrderOfTime:
    """The graph of these steps; its size is linear in operations and values.

    `visible` has the values of each list in order, with their writers where these are known;
    `reads` are (operation, list, number of values) that agree with them.
    """

    def __init__(
        self,
        operations: Sequence[ClientOperation],
        visible: Mapping[str, Sequence[tuple[Value, ClientOperation | None]]],
        reads: Sequence[tuple[ClientOperation, str, int]],
    ) -> None:
        self._graph = Graph()
        self._names: list[str] = []
        self._times: dict[int, int] = {}
        self._decided: dict[ClientOperation, int] = {}
        self._add_time(operations)
        shown = {key: self._add_list(key, values) for key, values in visible.items()}
        for operation, key, count in reads:
            if count and key in shown:
                what = f"{key}: read the value at {count - 1}"
                self._step(shown[key][count - 1], self._times[operation.ended_at], what)
                if operation in self._decided:
                    self._step(shown[key][count - 1], self._decided[operation], what)

    def anomalies(self) -> Iterator[Anomaly]:
        """Return each contradiction."""
        for component in self._graph.cyclic_components():
            members = frozenset(component)
            edges = (
                edge
                for node in component
                for edge in self._graph.edges_of(node)
                if edge.target in members and edge.reason
            )
            cycle = self._graph.cycle_through(next(edges), members)
            stated = [edge for edge in cycle if edge.reason]
            key = self._names[stated[0].source]
            yield Anomaly(AnomalyKind.ORDER_OF_TIME, key, steps(stated, self._names))

    def _node(self, name: str) -> int:
        self._names.append(name)
        return self._graph.node()

    def _step(self, source: int, target: int, reason: str) -> None:
        self._graph.edge(source, target, THEN, reason)

    def _add_time(self, operations: Sequence[ClientOperation]) -> None:
        moments: dict[int, str] = {}
        for operation in operations:
            moments[operation.began_at] = f"{said(operation)} begins"
            if operation.ended_at != NOT_ENDED:
                moments[operation.ended_at] = f"{said(operation)} ends"
        for at in sorted(moments):
            self._times[at] = self._node(moments[at])
        for one, other in pairwise(self._times.values()):
            self._step(one, other, "")
        for operation in operations:
            if operation.appends and operation.outcome is not OperationOutcome.FAIL:
                decided = self._node(f"{said(operation)} is decided")
                self._decided[operation] = decided
                self._step(self._times[operation.began_at], decided, "its client")
                if operation.ended_at != NOT_ENDED:
                    self._step(decided, self._times[operation.ended_at], "its client")

    def _add_list(
        self, key: str, values: Sequence[tuple[Value, ClientOperation | None]]
    ) -> list[int]:
        """Add the values of a list; return the nodes of their visibility, in order."""
        appended, shown = [], []
        for value, writer in values:
            appended.append(self._node(f"{value} is appended to {key}"))
            shown.append(self._node(f"{value} is visible in {key}"))
            if writer is None:
                continue
            self._step(self._times[writer.began_at], appended[-1], "its client")
            self._step(appended[-1], self._decided[writer], "its client")
            self._step(self._decided[writer], shown[-1], "its commit")
        for nodes in (appended, shown):
            for one, other in pairwise(nodes):
                self._step(one, other, f"the order of {key}")
        return shown

"""Checks a list-append history of clients for anomalies: what no order of its transactions
explains.

Dependencies of Adya: T1 -ww-> T2, T2 appended to a list right after T1; T1 -wr-> T2, the last value
that T2 read of a list is T1's; T1 -rw-> T2, T1 read a list just up to T2's value. A cycle of them
is an anomaly: of ww alone G0, of ww and wr G1c, with one rw G-single, with more G2.

Kafka promises less than a database, so that a model says which anomalies are violations:
- Transactions interleave in a partition, and two partitions may have two transactions in different
  orders: G0, and G1c with ww, happen.
- Markers reach partitions one by one, and a reader stops below the last stable offset, which an
  open transaction of another producer may hold: it may see a transaction in one partition and not
  yet in another (G-single, G2), or half of its values in one partition (G1b).
- What remains: no read returns an aborted value (G1a), or one that was not appended; a partition
  has one order, and each value once; a committed append stays where it was appended; and what
  becomes visible was decided before, in an order that agrees with that of time: see `OrderOfTime`.
Linear in the sizes of the reads, apart from the witnesses of at most a few cycles.
Source: A. Adya, Weak Consistency, 1999; Elle, VLDB 2020; KIP-98; Jepsen's report on Redpanda
21.10.1 (G0 and interleaved writes in Kafka's protocol).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from kraftsim.clients.rules_history import ClientOperation, OperationOutcome, Value
from kraftsim.clients.rules_history_anomalies import Anomaly, AnomalyKind, said, steps
from kraftsim.clients.rules_history_graph import Edge, Graph
from kraftsim.clients.rules_history_time import OrderOfTime

WW, WR, RW = "ww", "wr", "rw"
TRIED_MAX: Final = 32
"""Edges of a component for which a cycle with one rw is looked for."""


@dataclass(kw_only=True, slots=True)
class _List:
    """What is known of one list: its values in order, from the longest read of it."""

    values: tuple[Value, ...] = ()
    reader: ClientOperation | None = None
    places: dict[Value, int] = field(default_factory=dict)
    """Value -> its first place from 0."""


def anomalies_of(operations: Sequence[ClientOperation]) -> list[Anomaly]:
    """Return every anomaly of a history, of each cycle one; `FORBIDDEN` says which are violations.

    Raises ValueError if two operations append one value to one list: nothing can be said then.
    """
    return list(_Checker(operations).anomalies())


class _Checker:
    def __init__(self, operations: Sequence[ClientOperation]) -> None:
        self._operations = operations
        self._writers: dict[str, dict[Value, ClientOperation]] = {}
        for operation in operations:
            for key, value in operation.appends:
                writers = self._writers.setdefault(key, {})
                if value in writers:
                    raise ValueError(f"{value} is appended to {key} more than once")
                writers[value] = operation
        self._lists = self._longest()
        self._agreeing: list[tuple[ClientOperation, str, int]] = []
        """Reads that agree with the order of their list: operation, list, number of values."""

    def anomalies(self) -> Iterator[Anomaly]:
        yield from self._of_lists()
        yield from self._of_reads()
        yield from self._lost()
        yield from self._torn()
        yield from OrderOfTime(self._operations, self._visible(), self._agreeing).anomalies()
        yield from self._cycles()

    def _longest(self) -> dict[str, _List]:
        lists: dict[str, _List] = {}
        for operation in self._ok():
            for key, values in operation.reads:
                known = lists.setdefault(key, _List())
                # A final read is the best witness of the order; else the longest one.
                rank = (operation.is_final, len(values))
                if known.reader is None or rank > (known.reader.is_final, len(known.values)):
                    known.values, known.reader = values, operation
        for known in lists.values():
            for place, value in enumerate(known.values):
                known.places.setdefault(value, place)
        return lists

    def _ok(self) -> Iterator[ClientOperation]:
        return (each for each in self._operations if each.outcome is OperationOutcome.OK)

    # Lists and single reads
    # ----------------------------------------------------------------------------------------------

    def _of_lists(self) -> Iterator[Anomaly]:
        for key, known in self._lists.items():
            if len(known.places) == len(known.values):
                continue
            assert known.reader is not None, "a list is known from a read"
            for place, value in enumerate(known.values):
                if known.places[value] != place:
                    yield Anomaly(
                        AnomalyKind.DUPLICATE,
                        f"{key}/{value}",
                        (
                            f"{said(known.reader)} read {value} in {key} at {known.places[value]} "
                            f"and at {place}",
                        ),
                    )

    def _of_reads(self) -> Iterator[Anomaly]:
        blamed: dict[tuple[str, Value], None] = {}
        for operation in self._ok():
            for key, values in operation.reads:
                known, writers = self._lists[key], self._writers.get(key, {})
                for value in values:
                    writer = writers.get(value)
                    if (key, value) in blamed or (
                        writer is not None and writer.outcome is not OperationOutcome.FAIL
                    ):
                        continue
                    blamed[key, value] = None
                    if writer is None:
                        witness = f"{said(operation)} read {value} in {key}: nothing appended it"
                        yield Anomaly(AnomalyKind.GARBAGE_READ, f"{key}/{value}", (witness,))
                    else:
                        witness = (
                            f"{said(operation)} read {value} in {key}, which {said(writer)} "
                            "appended and aborted"
                        )
                        yield Anomaly(AnomalyKind.ABORTED_READ, f"{key}/{value}", (witness,))
                if values != known.values[: len(values)]:
                    yield self._disagreeing(operation, key, values, known)
                elif len(known.places) == len(known.values):
                    self._agreeing.append((operation, key, len(values)))
        yield from self._intermediate()

    def _disagreeing(
        self, operation: ClientOperation, key: str, values: tuple[Value, ...], known: _List
    ) -> Anomaly:
        assert known.reader is not None, "a list is known from a read"
        place = next(
            (
                place
                for place, (one, other) in enumerate(zip(values, known.values, strict=False))
                if one != other
            ),
            len(known.values),
        )
        theirs = known.values[place] if place < len(known.values) else "nothing"
        return Anomaly(
            AnomalyKind.INCOMPATIBLE_ORDER,
            f"{key}/{operation.name}",
            (
                f"{said(operation)} read {values[place]} in {key} at {place}",
                f"{said(known.reader)} read {theirs} there",
            ),
        )

    def _intermediate(self) -> Iterator[Anomaly]:
        """Reads that end between two values of one transaction."""
        halves = {key: self._halves(key) for key in self._lists}
        for operation, key, count in self._agreeing:
            writer = halves[key].get(count)
            if writer is not None and writer is not operation:
                yield Anomaly(
                    AnomalyKind.INTERMEDIATE_READ,
                    f"{key}/{operation.name}",
                    (f"{said(operation)} read a part of what {said(writer)} appended to {key}",),
                )

    def _halves(self, key: str) -> dict[int, ClientOperation]:
        """Return the lengths of prefixes that end between two values of one operation, with the
        operation.
        """
        known, writers = self._lists[key], self._writers.get(key, {})
        last: dict[ClientOperation, int] = {}
        for place, value in enumerate(known.values):
            if value in writers:
                last[writers[value]] = place
        halves: dict[int, ClientOperation] = {}
        open_until, owner = -1, None
        for place, value in enumerate(known.values):
            writer = writers.get(value)
            if writer is not None and last[writer] > open_until:
                open_until, owner = last[writer], writer
            if place < open_until and owner is not None:
                halves[place + 1] = owner
        return halves

    # Lost appends, and transactions that are there in part
    # ----------------------------------------------------------------------------------------------

    def _lost(self) -> Iterator[Anomaly]:
        """Values of committed transactions that a read lacks, though it has values whose append
        began after their transaction had ended, or was the last read of all.
        """
        for key, writers in self._writers.items():
            known = self._lists.get(key)
            if known is None or known.reader is None:
                continue
            later = [writers[value] for value in known.values if value in writers]
            youngest = max(later, key=lambda each: each.began_at, default=None)
            for value, writer in writers.items():
                if writer.outcome is not OperationOutcome.OK or value in known.places:
                    continue
                if known.reader.is_final and writer.ended_at < known.reader.began_at:
                    since = "after everything was done"
                elif youngest is not None and writer.ended_at < youngest.began_at:
                    since = f"with what {said(youngest)} appended later"
                else:
                    continue
                yield Anomaly(
                    AnomalyKind.LOST_APPEND,
                    f"{key}/{value}",
                    (
                        f"{said(writer)} appended {value} to {key} and committed",
                        f"{said(known.reader)} read {key} {since}, and without {value}",
                    ),
                )

    def _torn(self) -> Iterator[Anomaly]:
        """Transactions with an unknown outcome of which final reads have one part and lack
        another.
        """
        finals = {
            key for key, known in self._lists.items() if known.reader and known.reader.is_final
        }
        for operation in self._operations:
            if operation.outcome is not OperationOutcome.INFO:
                continue
            appends = [each for each in operation.appends if each[0] in finals]
            found = [each for each in appends if each[1] in self._lists[each[0]].places]
            if found and len(found) < len(appends):
                missing = next(each for each in appends if each not in found)
                yield Anomaly(
                    AnomalyKind.TORN,
                    operation.name,
                    (
                        f"{said(operation)} has {found[0][1]} in {found[0][0]}",
                        f"its {missing[1]} is not in {missing[0]}",
                    ),
                )

    # Cycles
    # ----------------------------------------------------------------------------------------------

    def _visible(self) -> dict[str, list[tuple[Value, ClientOperation | None]]]:
        """Return the values of each list with their writers, where these may have committed."""
        return {
            key: [(value, self._committed(key, value)) for value in known.values]
            for key, known in self._lists.items()
            if len(known.places) == len(known.values)
        }

    def _committed(self, key: str, value: Value) -> ClientOperation | None:
        writer = self._writers.get(key, {}).get(value)
        return None if writer is None or writer.outcome is OperationOutcome.FAIL else writer

    def _cycles(self) -> Iterator[Anomaly]:
        graph = Graph()
        nodes = {operation: graph.node() for operation in self._operations}
        for key, values in self._visible().items():
            for (value, writer), (following, successor) in pairwise(values):
                if writer is not None and successor is not None and writer is not successor:
                    reason = f"{key}: {value} before {following}"
                    graph.edge(nodes[writer], nodes[successor], WW, reason)
        for operation, key, count in self._agreeing:
            order = self._lists[key].values
            last = self._committed(key, order[count - 1]) if count else None
            if last is not None and last is not operation:
                graph.edge(nodes[last], nodes[operation], WR, f"{key}: read {order[count - 1]}")
            unread = self._committed(key, order[count]) if count < len(order) else None
            if unread is not None and unread is not operation:
                reason = f"{key}: did not read {order[count]}"
                graph.edge(nodes[operation], nodes[unread], RW, reason)
        names = [said(operation) for operation in self._operations]
        for kinds, found in (
            ((WW,), AnomalyKind.WRITE_CYCLE),
            ((WW, WR), AnomalyKind.CIRCULAR),
            ((WW, WR, RW), AnomalyKind.ANTI_DEPENDENCIES),
        ):
            for component in graph.cyclic_components(kinds):
                cycle = _cycle_of(graph, component, kinds)
                if found is AnomalyKind.CIRCULAR and not any(edge.kind == WR for edge in cycle):
                    continue  # a cycle of writes, which is known
                counted = sum(edge.kind == RW for edge in cycle)
                if found is AnomalyKind.ANTI_DEPENDENCIES and not counted:
                    continue
                kind = AnomalyKind.SINGLE if counted == 1 else found
                yield Anomaly(kind, names[cycle[0].source].split()[0], steps(cycle, names))


def _cycle_of(graph: Graph, component: Sequence[int], kinds: Sequence[str]) -> list[Edge]:
    """Return a cycle of a component that begins with an edge of the last kind, if there is one: one
    with as few edges of this kind as are found from the first such edges.
    """
    members = frozenset(component)
    inside = [
        edge
        for node in component
        for edge in graph.edges_of(node)
        if edge.target in members and edge.kind in kinds
    ]
    tried = [edge for edge in inside if edge.kind == kinds[-1]][:TRIED_MAX] or inside[:1]
    cycles = (graph.cycle_through(edge, members, kinds, expensive=RW) for edge in tried)
    return min(cycles, key=lambda cycle: (sum(edge.kind == RW for edge in cycle), len(cycle)))

"""The present state of links: the combined conditions that are imposed on them, and the effect of
each condition so far.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kraftsim.lab.faults.field import CLIENTS, Condition, Effect, Link

if TYPE_CHECKING:
    from kraftsim.cluster.proxy.flow import Flow


@dataclass(eq=False, slots=True)
class Imposed:
    """A condition that is in force."""

    links: frozenset[Link]
    condition: Condition
    touched_bytes: int = 0
    connections: set[int] = field(default_factory=set)

    def touch(self, connection: int, size_bytes: int) -> None:
        """Count bytes of a connection; 0: a connection attempt."""
        self.touched_bytes += size_bytes
        self.connections.add(connection)

    @property
    def effect(self) -> Effect:
        """Its effect so far."""
        return Effect(touched_bytes=self.touched_bytes, connections=len(self.connections))


class LinkState:
    """One direction between two names.

    Without conditions, `is_clear` is all that is checked per read.
    """

    __slots__ = (
        "bytes_per_second",
        "flows",
        "free_at",
        "holds",
        "ignores",
        "imposed",
        "is_clear",
        "jitter_ms",
        "latency_ms",
        "link",
        "refuses",
        "tails",
        "tear",
        "torn_reads",
    )

    def __init__(self, link: Link) -> None:
        self.link = link
        self.flows: dict[Flow, None] = {}
        self.free_at = 0.0
        """When the bytes sent over a bandwidth-limited link have been transmitted."""
        self.torn_reads = 0
        self.settle([])

    def settle(self, imposed: list[Imposed]) -> None:
        """Combine the conditions of this link: delays are summed, the smallest bandwidth cap
        counts, and the first condition that splits writes.
        """
        conditions = [each.condition for each in imposed]
        self.imposed = imposed
        self.is_clear = not imposed
        self.holds = any(each.holds for each in conditions)
        self.refuses = any(each.refuses for each in conditions)
        self.ignores = any(each.ignores for each in conditions)
        self.latency_ms = sum(each.latency_ms for each in conditions)
        self.jitter_ms = sum(each.jitter_ms for each in conditions)
        self.bytes_per_second = min(
            (each.bytes_per_second for each in conditions if each.bytes_per_second), default=0
        )
        self.tails = [each for each in conditions if each.tail_permille]
        self.tear = next((each for each in conditions if each.tears), None)

    def touch_connect(self, connection: int) -> None:
        """Count a connection attempt that was refused, or has to wait."""
        for each in self.imposed:
            if each.condition.holds or each.condition.refuses or each.condition.ignores:
                each.touch(connection, 0)

    def touch(
        self, connection: int, size_bytes: int, *, has_waited: bool, is_late: bool, is_torn: bool
    ) -> None:
        """Count bytes for those conditions that affected them."""
        for each in self.imposed:
            its = each.condition
            if (
                its.holds
                or its.latency_ms
                or its.jitter_ms
                or (its.bytes_per_second and has_waited)
                or (its.tail_permille and is_late)
                or (its.tears and is_torn)
            ):
                each.touch(connection, size_bytes)


class Conditions:
    """All conditions and links of a proxy. A name that is added to `node_names` later is a node's
    from then on.
    """

    def __init__(self, node_names: Container[str]) -> None:
        self._node_names = node_names
        self._states: dict[Link, LinkState] = {}
        self._imposed: dict[int, Imposed] = {}
        self._next_number = 1

    def next_number(self) -> int:
        """Return a new number for `lift`."""
        self._next_number += 1
        return self._next_number - 1

    def state(self, source: str, target: str) -> LinkState:
        """Return the state of a link, which is created at the first call and kept."""
        link = (source, target)
        state = self._states.get(link)
        if state is None:
            state = self._states[link] = LinkState(link)
            self._settle(state)
        return state

    def impose(self, links: Iterable[Link], condition: Condition) -> int:
        """Impose a condition on links; return its number."""
        number = self.next_number()
        self._imposed[number] = Imposed(frozenset(links), condition)
        self._changed(self._imposed[number])
        return number

    def lift(self, number: int) -> Effect:
        """End a condition and release the bytes that it held; the effect is empty if the condition
        has already been ended with all others.
        """
        ended = self._imposed.pop(number, None)
        if ended is None:
            return Effect()
        self._changed(ended)
        return ended.effect

    def lift_all(self, nodes: Iterable[str]) -> int:
        """End the conditions on links of some nodes; all conditions if none is named.

        Return how many ended.
        """
        wanted = set(nodes)
        numbers = [
            number
            for number, each in self._imposed.items()
            if not wanted or any(wanted & set(link) for link in each.links)
        ]
        for number in numbers:
            self.lift(number)
        return len(numbers)

    def over(self, links: Iterable[Link]) -> Iterator[LinkState]:
        """Return the states of the links that are named, clients among them."""
        wanted = frozenset(links)
        return (state for state in self._states.values() if self._is_named(state.link, wanted))

    def _changed(self, imposed: Imposed) -> None:
        for state in self.over(imposed.links):
            self._settle(state)
            for flow in list(state.flows):
                flow.pump()

    def _settle(self, state: LinkState) -> None:
        state.settle(
            [each for each in self._imposed.values() if self._is_named(state.link, each.links)]
        )

    def _is_named(self, link: Link, links: frozenset[Link]) -> bool:
        source, target = (end if end in self._node_names else CLIENTS for end in link)
        return link in links or (source, target) in links

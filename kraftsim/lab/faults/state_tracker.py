"""The cluster state tracker: derives the present leader and the states of nodes from the events so
far.

It uses nothing but events, so that its input can be a running simulation or the event files of a
running cluster.
"""

from collections.abc import Callable, Sequence

from kraftsim.events.event import Event
from kraftsim.lab.faults.states import FACTS, LEADER, STATES, ZOOKEEPER_CONTROLLER, NodeFacts
from kraftsim.world.simulated import Simulation, TriggerContext

IsRunning = Callable[[str, int], bool]
"""Node and incarnation -> whether that incarnation runs now."""


class _Waiting:
    """A callback for the nth time that a node enters all of some states."""

    __slots__ = ("action", "host", "inside", "nth", "states")

    def __init__(
        self, states: Sequence[str], host: str | None, nth: int, action: Callable[[str], object]
    ) -> None:
        self.states = tuple(STATES[name] for name in states)
        self.host = host
        self.nth = nth
        self.action = action
        self.inside: set[tuple[str, int]] = set()
        """Incarnations that are in the states now: only looked up, never iterated over."""


class StateTracker:
    """Tracks the events of all nodes."""

    def __init__(self, is_running: IsRunning) -> None:
        self._is_running = is_running
        self._nodes: dict[str, tuple[int, NodeFacts]] = {}
        self._waiting: list[_Waiting] = []

    def observe(self, node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
        """Process an event, and run the callbacks that wait for it."""
        known = self._nodes.get(node)
        if known is None or known[0] < incarnation:
            known = self._nodes[node] = (incarnation, NodeFacts())
        if known[0] == incarnation and known[1].take(event) and self._waiting:
            self._tell(node, incarnation, known[1])

    def leader(self) -> str | None:
        """Return the leader of the metadata quorum, or, without one, the controller in ZooKeeper
        mode: of running nodes, the highest epoch.
        """
        return self._last(LEADER, lambda facts: facts.leader_epoch) or self._last(
            ZOOKEEPER_CONTROLLER, lambda facts: facts.zookeeper_controller_epoch
        )

    def when_led(self, action: Callable[[str], object]) -> Callable[[], None]:
        """Call a function with the name of the next node that becomes leader.

        Returns the cancellation.
        """
        waiting: list[Callable[[], None]] = []

        def end() -> None:
            for stop in waiting:
                stop()

        def led(node: str) -> None:
            end()
            action(node)

        waiting += [self.when((state,), led) for state in (LEADER, ZOOKEEPER_CONTROLLER)]
        return end

    def holds(self, state: str, node: str) -> bool:
        """Return whether a node runs and is in a state. Raises KeyError for an unknown state."""
        incarnation, facts = self._nodes.get(node, (0, NodeFacts()))
        return self._is_running(node, incarnation) and STATES[state].holds(facts)

    def when(
        self,
        states: Sequence[str],
        action: Callable[[str], object],
        *,
        host: str | None = None,
        nth: int = 1,
    ) -> Callable[[], None]:
        """Call a function with the node's name at the nth time that a node (or one host) enters all
        these states. Returns the cancellation.

        A node that is in them already counts only after it has left them. Raises KeyError for an
        unknown state.
        """
        assert nth >= 1, "times are counted from 1"
        waiting = _Waiting(states, host, nth, action)
        for node, (incarnation, facts) in self._nodes.items():
            if all(state.holds(facts) for state in waiting.states):
                waiting.inside.add((node, incarnation))
        self._waiting.append(waiting)

        def end() -> None:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

        return end

    def _last(self, state: str, epoch_of: Callable[[NodeFacts], int]) -> str | None:
        """Return the node in a state with the highest epoch."""
        holds = STATES[state].holds
        epochs = {
            node: epoch_of(facts)
            for node, (incarnation, facts) in self._nodes.items()
            if holds(facts) and self._is_running(node, incarnation)
        }
        return max(sorted(epochs), key=epochs.__getitem__) if epochs else None

    def _tell(self, node: str, incarnation: int, facts: NodeFacts) -> None:
        for waiting in list(self._waiting):
            if waiting.host not in (None, node):
                continue
            was_inside = (node, incarnation) in waiting.inside
            is_inside = all(state.holds(facts) for state in waiting.states)
            if is_inside and not was_inside:
                waiting.inside.add((node, incarnation))
                waiting.nth -= 1
                if waiting.nth == 0:
                    self._waiting.remove(waiting)
                    waiting.action(node)
            elif was_inside and not is_inside:
                waiting.inside.discard((node, incarnation))


ATTACHMENT = "standing"
"""Kept beside the simulation: a module-level table would keep the simulation alive for ever, for it
refers to the hosts.
"""


def state_tracker_of(simulation: Simulation) -> StateTracker:
    """Return the tracker of a simulation; the first call creates it from the events until now."""
    found = simulation.attachments.get(ATTACHMENT)
    if found is None:
        hosts = simulation.hosts

        def is_running(node: str, incarnation: int) -> bool:
            return (
                node in hosts
                and hosts[node].is_alive
                and hosts[node].process.incarnation == incarnation
            )

        found = simulation.attachments[ATTACHMENT] = StateTracker(is_running)
        for log in simulation.book.logs():
            for n, (t_ns, _, event) in enumerate(log.entries):
                found.observe(log.node, log.incarnation, n, t_ns, event)
        simulation.observe(found.observe, FACTS)
    assert isinstance(found, StateTracker), "the name is used here only"
    return found


def trigger_context_at(simulation: Simulation, node: str) -> TriggerContext:
    """Return the trigger context of something that happened at a node."""
    return TriggerContext(host=node if node in simulation.hosts else None)

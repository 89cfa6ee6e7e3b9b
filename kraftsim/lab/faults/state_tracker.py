"""The states of a cluster and of its nodes, derived from events: triggers for faults."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kraftsim.events.event import Event
from kraftsim.metadata.events import MetadataAppended, MetadataReverted
from kraftsim.producer_ids.events import (
    ProducerIdBlockReceived,
    ProducerIdBlockRefused,
    ProducerIdBlockRequested,
)
from kraftsim.raft.events import (
    HighWatermarkMoved,
    MetadataFlushed,
    MetadataReplicated,
    MetadataTruncated,
    MetadataWritten,
    RaftRoleChanged,
    SnapshotLoaded,
    VoteAnswered,
    VoteSent,
)
from kraftsim.transactions.events import TransactionStateChanged, TransactionsUnloaded
from kraftsim.world.simulated import Simulation, TriggerContext
from kraftsim.zookeeper.events import ZookeeperControllerElected, ZookeeperControllerResigned

# --------------------------------------------------------------------------------------------------
# States of a node that last for a while, derived from its events: triggers for faults where a
# single event is not specific enough
#
# A state holds from one event to another: a controller leads from its election until it resigns or
# dies, and during that time it may have records that are appended but not committed. Source:
# KIP-98, KIP-595, KIP-730, org.apache.kafka.raft.

LEADER = "leader"
ZOOKEEPER_CONTROLLER = "zookeeper-controller"
DECIDED = ("PrepareCommit", "PrepareAbort")
IDS_RECORD = "ProducerIds"
NO_OFFSET = -1
NO_EPOCH = -1
FACTS: tuple[type[Event], ...] = (
    RaftRoleChanged,
    MetadataAppended,
    MetadataWritten,
    MetadataReplicated,
    MetadataFlushed,
    HighWatermarkMoved,
    MetadataTruncated,
    MetadataReverted,
    SnapshotLoaded,
    VoteAnswered,
    VoteSent,
    ProducerIdBlockRequested,
    ProducerIdBlockReceived,
    ProducerIdBlockRefused,
    TransactionStateChanged,
    TransactionsUnloaded,
    ZookeeperControllerElected,
    ZookeeperControllerResigned,
)
"""The events that states are derived from; `NodeFacts.take` ignores all others."""


class NodeFacts:
    """The state of one incarnation of a node, from its events."""

    __slots__ = (
        "appended_end",
        "decided",
        "flushed_end",
        "high_watermark",
        "ids_offset",
        "is_asking_for_block",
        "leader_epoch",
        "log_end",
        "role",
        "sent_vote_epoch",
        "voted_epoch",
        "zookeeper_controller_epoch",
    )

    def __init__(self) -> None:
        self.role = ""
        self.leader_epoch = -1
        self.log_end = 0
        """End of the written metadata log (exclusive)."""
        self.appended_end = 0
        """End of the records that it appended as a leader, written or not (exclusive)."""
        self.flushed_end = 0
        self.high_watermark = 0
        self.ids_offset = NO_OFFSET
        """Offset of the last record that it appended for a block of producer ids."""
        self.voted_epoch = -1
        self.sent_vote_epoch = -1
        self.is_asking_for_block = False
        self.zookeeper_controller_epoch = NO_EPOCH
        """Its controller epoch while it is the controller in ZooKeeper mode."""
        self.decided: dict[str, int] = {}
        """Transactional ids that it coordinates with a transaction in a prepare state, with their
        partition of `__transaction_state`.
        """

    def take(self, event: Event) -> bool:
        """Process an event. Returns whether states are derived from it."""
        match event:
            case RaftRoleChanged(role=role, leader_epoch=leader_epoch):
                self.role, self.leader_epoch = role, leader_epoch
            case MetadataAppended(last_offset=last_offset, record_kinds=record_kinds):
                self.appended_end = last_offset + 1
                if IDS_RECORD in record_kinds:
                    self.ids_offset = last_offset
            case (
                MetadataWritten(last_offset=last_offset)
                | MetadataReplicated(last_offset=last_offset)
            ):
                self.log_end = last_offset + 1
            case MetadataFlushed(end_offset=end_offset):
                self.flushed_end = end_offset
            case HighWatermarkMoved(high_watermark=high_watermark):
                self.high_watermark = high_watermark
            case MetadataTruncated(end_offset=end_offset) | MetadataReverted(to_offset=end_offset):
                self._cut(end_offset)
            case SnapshotLoaded(end_offset=end_offset):
                self.log_end = self.appended_end = self.flushed_end = self.high_watermark = (
                    end_offset
                )
            case VoteAnswered(is_granted=True, is_pre_vote=False, leader_epoch=epoch):
                self.voted_epoch = epoch
            case VoteSent(leader_epoch=epoch):
                self.sent_vote_epoch = epoch
            case ProducerIdBlockRequested():
                self.is_asking_for_block = True
            case ProducerIdBlockReceived() | ProducerIdBlockRefused():
                self.is_asking_for_block = False
            case ZookeeperControllerElected(controller_epoch=controller_epoch):
                self.zookeeper_controller_epoch = controller_epoch
            case ZookeeperControllerResigned():
                self.zookeeper_controller_epoch = NO_EPOCH
            case TransactionStateChanged(
                transactional_id=transactional_id, state=state, partition=partition
            ):
                self.decided.pop(transactional_id, None)
                if state in DECIDED:
                    self.decided[transactional_id] = partition
            case TransactionsUnloaded(partition=partition):
                self.decided = {
                    name: place for name, place in self.decided.items() if place != partition
                }
            case _:
                return False
        return True

    def _cut(self, end_offset: int) -> None:
        self.log_end = min(self.log_end, end_offset)
        self.appended_end = min(self.appended_end, end_offset)
        self.flushed_end = min(self.flushed_end, end_offset)


@dataclass(frozen=True, slots=True)
class TriggerState:
    """A state: its description, and the condition on the tracked facts of a node."""

    about: str
    holds: Callable[[NodeFacts], bool]


STATES: dict[str, TriggerState] = {
    LEADER: TriggerState("leads the metadata quorum", lambda facts: facts.role == "Leader"),
    "candidate": TriggerState(
        "requests votes from the other voters",
        lambda facts: facts.role in ("Candidate", "Prospective"),
    ),
    "follower": TriggerState(
        "follows a leader of the metadata quorum", lambda facts: facts.role == "Follower"
    ),
    "without-leader": TriggerState(
        "knows no leader of the metadata quorum",
        lambda facts: facts.role in ("Candidate", "Prospective", "Unattached", "Resigned"),
    ),
    "appended-not-committed": TriggerState(
        "leads and has appended records that are not committed",
        lambda facts: facts.role == "Leader" and facts.appended_end > facts.high_watermark,
    ),
    "ids-not-committed": TriggerState(
        "leads and has allocated a block of producer ids whose record is not committed",
        lambda facts: facts.role == "Leader" and facts.ids_offset >= facts.high_watermark,
    ),
    "written-not-flushed": TriggerState(
        "has records in its metadata log that are not flushed",
        lambda facts: facts.log_end > facts.flushed_end,
    ),
    "replicated-not-committed": TriggerState(
        "follows and has records above its high watermark",
        lambda facts: facts.role == "Follower" and facts.log_end > facts.high_watermark,
    ),
    "vote-not-told": TriggerState(
        "has granted a vote that it has not yet announced",
        lambda facts: facts.voted_epoch > facts.sent_vote_epoch,
    ),
    "markers-missing": TriggerState(
        "coordinates a transaction in a prepare state whose markers are not all written",
        lambda facts: bool(facts.decided),
    ),
    "asking-for-block": TriggerState(
        "has requested a block of producer ids and has no answer yet",
        lambda facts: facts.is_asking_for_block,
    ),
    ZOOKEEPER_CONTROLLER: TriggerState(
        "has created /controller, and has not resigned",
        lambda facts: facts.zookeeper_controller_epoch != NO_EPOCH,
    ),
}
"""All states by name. A trigger with several states waits for a node that is in all of them."""


# --------------------------------------------------------------------------------------------------
# The cluster state tracker: derives the present leader and the states of nodes from the events so
# far
#
# It uses nothing but events, so that its input can be a running simulation or the event files of a
# running cluster.

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

"""States of a node that last for a while, derived from its events: triggers for faults where a
single event is not specific enough.

A state holds from one event to another: a controller leads from its election until it resigns or
dies, and during that time it may have records that are appended but not committed. Source: KIP-98,
KIP-595, KIP-730, org.apache.kafka.raft.
"""

from collections.abc import Callable
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
from kraftsim.zookeeper.events import (
    ZookeeperControllerElected,
    ZookeeperControllerResigned,
)

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

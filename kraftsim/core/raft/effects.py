"""What the core of the quorum wants done, in this order: persist, then write, then tell. Carried out by the shell of a node.

An effect that stands behind a `Persist` or a `Flush` of the same replica happens after it is durable; everything else may go on meanwhile.
"""

from dataclasses import dataclass
from typing import TypeAlias

from kraftsim.core.raft.raft_log import SnapshotId
from kraftsim.core.raft.voter_set import Address, ReplicaKey, VoterNode
from kraftsim.events.event import Event
from protocol.batches import RecordBatch
from protocol.disk.quorum_state import QuorumState
from protocol.schema import Message


@dataclass(frozen=True, slots=True)
class Persist:
    """Write quorum-state, durably, before anything behind this effect is told to anyone."""

    state: QuorumState
    data_version: int


@dataclass(frozen=True, slots=True)
class Note:
    """Note a fact that is true once everything before this effect is durable."""

    event: Event


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a request; `ticket` is what came with it."""

    ticket: object
    body: Message


@dataclass(frozen=True, slots=True)
class Send:
    """Ask another replica; the outcome comes back by `on_response` or `on_failure` with the same number."""

    number: int
    node_id: int
    """The node that is asked; negative for an address of the configuration whose node is not known."""
    address: Address
    body: Message


@dataclass(frozen=True, slots=True)
class WriteLeaderChange:
    """Append the control batch that opens an epoch. `voters_record` and `kraft_version` go into the same batch where they must be in the log."""

    leader_epoch: int
    first_offset: int
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]
    voters_record: Message | None = None
    kraft_version: int | None = None


@dataclass(frozen=True, slots=True)
class WriteVoters:
    """Append a control batch with a VotersRecord."""

    leader_epoch: int
    first_offset: int
    voters_record: Message


@dataclass(frozen=True, slots=True)
class WriteFetched:
    """Append batches that the leader sent, as they are. `batches` are the same, opened."""

    records: bytes | memoryview
    batches: tuple[RecordBatch, ...]


@dataclass(frozen=True, slots=True)
class Flush:
    """Make the log durable as far as it goes now; the outcome comes back by `on_flushed`."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log at an offset, which goes, too."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class WriteSnapshotPiece:
    """Write a piece of a snapshot that is fetched; position 0 begins the file."""

    snapshot: SnapshotId
    position: int
    piece: bytes | memoryview


@dataclass(frozen=True, slots=True)
class FinishSnapshot:
    """The snapshot that is fetched is complete: make it durable, give it its name, drop the log before it, and load it."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class Lead:
    """The epoch is this node's, and everything before it in the log is committed: it may become the active controller."""

    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StopLeading:
    """The epoch is not this node's any more: what is not committed is undone, and whoever waits for it is told so."""

    leader_epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class LeaderKnown:
    """Who leads changed; None: nobody is known to."""

    leader_epoch: int
    leader: VoterNode | None


@dataclass(frozen=True, slots=True)
class Advance:
    """The high watermark moved."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class WakeFetches:
    """Look again at the Fetch requests that wait: there are new records, or this node leads no more."""


Effect: TypeAlias = (
    Persist
    | Note
    | Reply
    | Send
    | WriteLeaderChange
    | WriteVoters
    | WriteFetched
    | Flush
    | Truncate
    | WriteSnapshotPiece
    | FinishSnapshot
    | Lead
    | StopLeading
    | LeaderKnown
    | Advance
    | WakeFetches
)

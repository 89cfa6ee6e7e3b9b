"""What the core of the quorum wants done, in this order: persist, then write, then tell. Carried out by the shell of a node.

An effect that stands behind a `Persist` or a `Flush` of the same replica happens after it is durable; everything else may go on meanwhile.
"""

from typing import TypeAlias

from msgspec import Struct

from kraftsim.core.raft.raft_log import SnapshotId
from kraftsim.core.raft.voter_set import Address, ReplicaKey, VoterNode
from kraftsim.events.event import Event
from protocol.batches import RecordBatch
from protocol.disk.quorum_state import QuorumState
from protocol.schema import Message


class Persist(Struct, frozen=True):
    """Write quorum-state, durably, before anything behind this effect is told to anyone."""

    state: QuorumState
    data_version: int


class Note(Struct, frozen=True):
    """Note a fact that is true once everything before this effect is durable."""

    event: Event


class Reply(Struct, frozen=True):
    """Answer a request; `ticket` is what came with it."""

    ticket: object
    body: Message


class Send(Struct, frozen=True):
    """Ask another replica; the outcome comes back by `on_response` or `on_failure` with the same number."""

    number: int
    node_id: int
    """The node that is asked; negative for an address of the configuration whose node is not known."""
    address: Address
    body: Message


class WriteLeaderChange(Struct, frozen=True):
    """Append the control batch that opens an epoch. `voters_record` and `kraft_version` go into the same batch where they must be in the log."""

    leader_epoch: int
    first_offset: int
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]
    voters_record: Message | None = None
    kraft_version: int | None = None


class WriteVoters(Struct, frozen=True):
    """Append a control batch with a VotersRecord."""

    leader_epoch: int
    first_offset: int
    voters_record: Message


class WriteFetched(Struct, frozen=True):
    """Append batches that the leader sent, as they are. `batches` are the same, opened."""

    records: bytes | memoryview
    batches: tuple[RecordBatch, ...]


class Flush(Struct, frozen=True):
    """Make the log durable as far as it goes now; the outcome comes back by `on_flushed`."""

    end_offset: int


class Truncate(Struct, frozen=True):
    """Cut the log at an offset, which goes, too."""

    end_offset: int


class WriteSnapshotPiece(Struct, frozen=True):
    """Write a piece of a snapshot that is fetched; position 0 begins the file."""

    snapshot: SnapshotId
    position: int
    piece: bytes | memoryview


class FinishSnapshot(Struct, frozen=True):
    """The snapshot that is fetched is complete: make it durable, give it its name, drop the log before it, and load it."""

    snapshot: SnapshotId


class Lead(Struct, frozen=True):
    """The epoch is this node's, and everything before it in the log is committed: it may become the active controller."""

    leader_epoch: int


class StopLeading(Struct, frozen=True):
    """The epoch is not this node's any more: what is not committed is undone, and whoever waits for it is told so."""

    leader_epoch: int
    reason: str


class LeaderKnown(Struct, frozen=True):
    """Who leads changed; None: nobody is known to."""

    leader_epoch: int
    leader: VoterNode | None


class Advance(Struct, frozen=True):
    """The high watermark moved."""

    high_watermark: int


class WakeFetches(Struct, frozen=True):
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

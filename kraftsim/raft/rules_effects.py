"""The effects of a replica of the metadata log, in order: persist, then write, then respond.

No bytes here: `kraftsim.raft.raft_node` writes, truncates and flushes records as the effects
specify, in their order. An effect after a `Persist` of the same replica happens after it is
durable; a `Flush` runs while later effects are executed, and its result comes back by `on_flushed`.
"""

from typing import TypeAlias

from msgspec import Struct

from kraftsim.events.event import Event
from kraftsim.raft.rules_log import SnapshotId
from kraftsim.raft.rules_voters import Address, ReplicaKey, VoterNode
from protocol.records.batches import RecordBatch
from protocol.schema import Message
from protocol.storage.quorum_state import QuorumState


class Persist(Struct, frozen=True):
    """Write quorum-state durably before any later effect is visible to other nodes."""

    state: QuorumState
    data_version: int


class EmitEvent(Struct, frozen=True):
    """Emit an event that is true once all earlier effects are durable."""

    event: Event


class Reply(Struct, frozen=True):
    """Answer a request; `ticket` identifies it."""

    ticket: object
    body: Message


class Send(Struct, frozen=True):
    """Send a request to another replica; the result comes by `on_response` or `on_failure` with the
    same number.
    """

    number: int
    node_id: int
    """The destination node; negative for a bootstrap address whose node id is unknown."""
    address: Address
    body: Message


class WriteLeaderChange(Struct, frozen=True):
    """Append the control batch that starts an epoch.

    `voters_record` and `kraft_version` are added to the batch if needed.
    """

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
    """Append fetched batches unchanged. `batches` are the same, parsed."""

    records: bytes | memoryview
    batches: tuple[RecordBatch, ...]


class Flush(Struct, frozen=True):
    """Flush the log up to its current end; the result comes by `on_flushed`."""

    end_offset: int


class Truncate(Struct, frozen=True):
    """Truncate the log from an offset on."""

    end_offset: int


class WriteSnapshotPiece(Struct, frozen=True):
    """Write a chunk of a snapshot being fetched; position 0 starts the file."""

    snapshot: SnapshotId
    position: int
    piece: bytes | memoryview


class FinishSnapshot(Struct, frozen=True):
    """The fetched snapshot is complete: make it durable, rename it, delete the log before it, and
    load it.
    """

    snapshot: SnapshotId


class Lead(Struct, frozen=True):
    """This node is leader, and everything before its epoch is committed: it may become the active
    controller.
    """

    leader_epoch: int


class StopLeading(Struct, frozen=True):
    """This node is not leader any more: uncommitted records are reverted, and pending requests
    fail.
    """

    leader_epoch: int
    reason: str


class LeaderKnown(Struct, frozen=True):
    """The leader changed; None: unknown."""

    leader_epoch: int
    leader: VoterNode | None


class Advance(Struct, frozen=True):
    """The high watermark advanced."""

    high_watermark: int


class WakeFetches(Struct, frozen=True):
    """Check the pending Fetch requests: there are new records, or this node is not leader any
    more.
    """


Effect: TypeAlias = (
    Persist
    | EmitEvent
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

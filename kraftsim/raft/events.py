"""The metadata quorum: voters, leaders, and replication.

Source: KIP-595, KIP-630, KIP-853, org.apache.kafka.raft.
"""

from kraftsim.events.event import Event


class RaftRoleChanged(Event):
    """A replica of the metadata log changed its role, its epoch, or its vote.

    Ids are -1 where there is none.
    """

    role: str
    leader_epoch: int
    leader_id: int
    voted_id: int
    is_voter: bool


class QuorumTimersSet(Event):
    """The time-outs with which a replica of the metadata log starts, and whether it uses
    Pre-Vote.
    """

    fetch_timeout_ms: int
    election_timeout_ms: int
    election_backoff_max_ms: int
    has_pre_vote: bool


class ElectionOpened(Event):
    """A candidate started an election in a new epoch, with this election time-out."""

    leader_epoch: int
    timeout_ms: int


class ElectionLost(Event):
    """A candidate lost an election, the nth in a row (`defeats`); it starts another one after a
    backoff.
    """

    leader_epoch: int
    defeats: int
    pause_ms: int


class CheckQuorumFailed(Event):
    """A leader resigns because no majority of the voters fetched for too long.

    `reachable_count`: voters that fetched, with itself.
    """

    leader_epoch: int
    reachable_count: int
    voter_count: int
    kraft_version: int


class LaterEpochAnswered(Event):
    """A replica sent a request in an epoch, and the answer had a later one."""

    asked_node_id: int
    asked_epoch: int
    leader_epoch: int
    error_code: int


class OtherClusterAnswered(Event):
    """A replica sent a request to a node of another cluster, and was refused. Once per node.

    A negative id is a bootstrap server. Source: KafkaRaftClient.handleUnexpectedError.
    """

    asked_node_id: int
    own_cluster_id: str
    error_code: int


class VoteAnswered(Event):
    """A replica answered a candidate."""

    leader_epoch: int
    candidate_id: int
    is_granted: bool
    is_pre_vote: bool


class VoteSent(Event):
    """A voter announced a durable vote: in its answer to a candidate, or, for itself, before it
    requests votes.
    """

    leader_epoch: int
    candidate_id: int


class LeaderLogHeld(Event):
    """The offsets of an epoch in the log of a newly elected replica, the end exclusive.

    Epoch -1: those that its snapshot covers.
    """

    leader_epoch: int
    epoch: int
    first_offset: int
    end_offset: int


class HighWatermarkMoved(Event):
    """The high watermark of a replica advanced.

    `last_epoch` is that of the last record below the high watermark.
    """

    leader_epoch: int
    high_watermark: int
    last_epoch: int
    voter_count: int
    is_leader: bool


class HighWatermarkReported(Event):
    """A leader returned a high watermark to a fetching replica for the first time."""

    leader_epoch: int
    high_watermark: int


class MetadataWritten(Event):
    """A batch was written to a replica's log file; offsets are inclusive.

    `previous_epoch` is that of the record before it; -1: there is none.
    """

    epoch: int
    first_offset: int
    last_offset: int
    previous_epoch: int
    crc: int


class MetadataFlushed(Event):
    """Everything before an offset of a replica's log is durable."""

    end_offset: int
    is_voter: bool


class MetadataTruncated(Event):
    """A follower truncated its log to the end of the prefix that it shares with the leader's."""

    leader_epoch: int
    end_offset: int


class MetadataReplicated(Event):
    """A follower replicated records of the leader; offsets are inclusive."""

    leader_epoch: int
    first_offset: int
    last_offset: int


class QuorumStateStored(Event):
    """A replica's quorum-state is durable: its epoch, its leader, and the candidate that it voted
    for; -1: none.
    """

    leader_epoch: int
    leader_id: int
    voted_id: int


class SnapshotWritten(Event):
    """A replica wrote a snapshot of its own."""

    end_offset: int
    epoch: int
    size_bytes: int


class SnapshotFetched(Event):
    """A snapshot of the leader was fetched completely and renamed on a replica's disk; the log has
    yet to be replaced by it.
    """

    end_offset: int
    epoch: int


class SnapshotLoaded(Event):
    """A replica loaded a snapshot in place of its log."""

    end_offset: int
    epoch: int


class VotersChanged(Event):
    """The voter set changed, possibly back to a former one, if the record with the newer one was
    truncated. Ids are comma-separated.

    The offset is that of the VotersRecord; -1 is the bootstrap snapshot, or a static configuration.
    """

    offset: int
    voters: str
    kraft_version: int


class FinalMetadata(Event):
    """At the end of a run: a digest of the metadata image at an offset, from a controller's disk.

    `from_offset` 0: by replaying the log from its beginning; else by loading the snapshot that ends
    there and replaying the log behind it.
    """

    controller: str
    from_offset: int
    end_offset: int
    epoch: int
    digest: str


class FinalMetadataLog(Event):
    """At the end of a run: the end of the contiguous metadata log on a controller's disk, snapshot
    included; it begins at `first_offset`.
    """

    controller: str
    first_offset: int
    end_offset: int

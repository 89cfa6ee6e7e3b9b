"""The metadata quorum: who may vote, who leads, and what it replicates.   Source: KIP-595, KIP-630, KIP-853, org.apache.kafka.raft."""

from kraftsim.events.event import Event


class RaftRoleChanged(Event):
    """A replica of the metadata log changed its role, its epoch, or its vote. Ids are -1 where there is none."""

    role: str
    leader_epoch: int
    leader_id: int
    voted_id: int
    is_voter: bool


class QuorumTimersSet(Event):
    """A replica of the metadata log begins with these time-outs, and asks before it stands for election, or not."""

    fetch_timeout_ms: int
    election_timeout_ms: int
    election_backoff_max_ms: int
    has_pre_vote: bool


class ElectionOpened(Event):
    """A candidate opened an epoch, which it gives up if it has not won after so long."""

    leader_epoch: int
    timeout_ms: int


class ElectionLost(Event):
    """A candidate gave an election up. It is the nth that it lost in a row (`defeats`); it stands again after a pause."""

    leader_epoch: int
    defeats: int
    pause_ms: int


class LeaderUnheard(Event):
    """A leader gives up because it heard no majority of the voters for long. `heard_count` is how many it did hear, itself among them if it votes."""

    leader_epoch: int
    heard_count: int
    voter_count: int
    kraft_version: int


class LaterEpochAnswered(Event):
    """A replica asked another one in an epoch, and that one answered in a later one."""

    asked_node_id: int
    asked_epoch: int
    leader_epoch: int
    error_code: int


class OtherClusterAnswered(Event):
    """A replica asked a node that belongs to another cluster, and was refused. Once per node.

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


class VoteTold(Event):
    """A vote left the voter that gave it, and is durable there: in its answer to a candidate, or because it is about to ask for votes itself."""

    leader_epoch: int
    candidate_id: int


class LeaderLogHeld(Event):
    """What a replica that was just elected has of an epoch, the end outside. Epoch -1: what its snapshot covers, whatever epochs that were."""

    leader_epoch: int
    epoch: int
    first_offset: int
    end_offset: int


class HighWatermarkMoved(Event):
    """A replica learned that more is committed, by its own count if it leads. `last_epoch` is that of the last record below the high watermark."""

    leader_epoch: int
    high_watermark: int
    last_epoch: int
    voter_count: int
    is_leader: bool


class HighWatermarkTold(Event):
    """A leader told whoever fetches up to where the log is committed, for the first time."""

    leader_epoch: int
    high_watermark: int


class MetadataWritten(Event):
    """A batch went into the file of a replica's log; offsets are inclusive. `previous_epoch` is that of the record before it; -1: there is none."""

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
    """A follower cut its log back to where it agrees with the leader's."""

    leader_epoch: int
    end_offset: int


class MetadataReplicated(Event):
    """A follower wrote what the leader sent; offsets are inclusive."""

    leader_epoch: int
    first_offset: int
    last_offset: int


class QuorumStateStored(Event):
    """A replica's quorum-state is durable: its epoch, whom it knows to lead, and whom it voted for; -1: nobody."""

    leader_epoch: int
    leader_id: int
    voted_id: int


class SnapshotWritten(Event):
    """A replica wrote a snapshot of its own."""

    end_offset: int
    epoch: int
    size_bytes: int


class SnapshotFetched(Event):
    """A snapshot of the leader is whole on a replica's disk, under its name; the log has yet to give way to it."""

    end_offset: int
    epoch: int


class SnapshotLoaded(Event):
    """A replica took over a snapshot in place of its log."""

    end_offset: int
    epoch: int


class VotersChanged(Event):
    """The voters that count are others, or those of before again: what named others was cut off. Ids are comma-separated.

    The offset is that of the record that names them; -1 is the snapshot of the formatting, or a configuration that no record has changed yet.
    """

    offset: int
    voters: str
    kraft_version: int


class FinalMetadata(Event):
    """What a controller's disk says of the cluster at an offset when the run is over, as a digest of everything that a snapshot there would hold.

    `from_offset` 0: by replaying the log from its beginning; else by loading the snapshot that ends there and replaying the log behind it.
    """

    controller: str
    from_offset: int
    end_offset: int
    epoch: int
    digest: str


class FinalMetadataLog(Event):
    """Up to where a controller's disk has the metadata log, in one piece or by a snapshot, when the run is over; it begins at `first_offset`."""

    controller: str
    first_offset: int
    end_offset: int

"""The metadata quorum: who may vote, who leads, and what it replicates.   Source: KIP-595, KIP-630, KIP-853, org.apache.kafka.raft."""

from kraftsim.events.event import Event


class RaftRoleChanged(Event):
    """A replica of the metadata log changed its role, its epoch, or its vote. Ids are -1 where there is none."""

    role: str
    leader_epoch: int
    leader_id: int
    voted_id: int
    is_voter: bool


class VoteAnswered(Event):
    """A replica answered a candidate."""

    leader_epoch: int
    candidate_id: int
    is_granted: bool
    is_pre_vote: bool


class MetadataTruncated(Event):
    """A follower cut its log back to where it agrees with the leader's."""

    leader_epoch: int
    end_offset: int


class MetadataReplicated(Event):
    """A follower wrote what the leader sent; offsets are inclusive."""

    leader_epoch: int
    first_offset: int
    last_offset: int


class SnapshotWritten(Event):
    """A replica wrote a snapshot of its own."""

    end_offset: int
    epoch: int
    size_bytes: int


class SnapshotLoaded(Event):
    """A replica took over a snapshot in place of its log."""

    end_offset: int
    epoch: int


class VotersChanged(Event):
    """The voters that count are others; ids are comma-separated. An offset of -1 is the snapshot of the formatting."""

    offset: int
    voters: str
    kraft_version: int

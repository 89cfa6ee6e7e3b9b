"""Events of share-partitions on their leaders, and of share sessions.

Ranges of offsets have both ends inside. `load` tells apart the share-partitions that an incarnation
of a node has loaded: what members have acquired is known only until the next load.
Source: KIP-932; kafka.server.share.SharePartition.
"""

from kraftsim.events.event import Event


class SharePartitionLoaded(Event):
    """A leader has read the state of a share-partition and serves its members from now on.

    has_gaps: there are offsets between its states of which nothing is known.
    """

    group_id: str
    topic: str
    topic_id: str
    partition: int
    load: int
    leader_epoch: int
    state_epoch: int
    start_offset: int
    has_gaps: bool


class ShareStateLoaded(Event):
    """Right after SharePartitionLoaded, once per range with a state of its own.

    `delivery_state`: 0 available, 2 acknowledged, 4 archived.
    """

    group_id: str
    topic: str
    topic_id: str
    partition: int
    load: int
    state_epoch: int
    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class SharePartitionDropped(Event):
    """A leader serves a share-partition no more; all its locks have ended."""

    group_id: str
    topic: str
    topic_id: str
    partition: int
    load: int
    reason: str


class ShareRecordsAcquired(Event):
    """A member has acquired records; with this delivery they were delivered delivery_count times,
    and may be delivered delivery_count_max times.

    is_counted: the delivery counts even if the session of the member ends.
    """

    group_id: str
    topic: str
    topic_id: str
    partition: int
    load: int
    state_epoch: int
    member_id: str
    first_offset: int
    last_offset: int
    delivery_count: int
    delivery_count_max: int
    is_counted: bool


class ShareLocksEnded(Event):
    """No member has acquired these records any more: what became of them is stored, or their lock
    expired, or they were archived. `delivery_state` is what they are now.
    """

    group_id: str
    topic: str
    topic_id: str
    partition: int
    load: int
    first_offset: int
    last_offset: int
    delivery_state: int
    reason: str


class ShareStateStored(Event):
    """The persister has stored the state of a range: 0 available, 2 acknowledged, 4 archived."""

    group_id: str
    topic: str
    topic_id: str
    partition: int
    load: int
    state_epoch: int
    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int
    start_offset: int


class ShareRecordsArchived(Event):
    """What was available of a range is archived, without being stored: the log begins behind it, or
    has no records there.
    """

    group_id: str
    topic: str
    topic_id: str
    partition: int
    load: int
    first_offset: int
    last_offset: int


class ShareStartOffsetMoved(Event):
    """A share-partition begins at a later offset: everything below it is done with."""

    group_id: str
    topic: str
    topic_id: str
    partition: int
    load: int
    state_epoch: int
    previous_offset: int
    start_offset: int


class ShareSessionOpened(Event):
    """A member has a share session, bound to its connection."""

    group_id: str
    member_id: str
    connection: int


class ShareSessionClosed(Event):
    """A share session ended: closed by the member, replaced, or with its connection."""

    group_id: str
    member_id: str
    reason: str

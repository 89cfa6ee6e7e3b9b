"""Reads by followers and consumers, and the leaders of partitions.

Source: none; the draft leaves both as in Kafka at the time.
"""

from protocol.lease_pid.writing import LeasedMessage
from protocol.schema import array, int16, int32, int64, message, string, struct, structure


@structure
class FoundMessage:
    """A message with its offset in the log, and the leader epoch in which it was written."""

    offset: int = int64()
    leader_epoch: int = int32()
    content: LeasedMessage = struct(LeasedMessage)


@message(kind="lease-pid", versions="0")
class LeasedFetchRequest:
    """Read from an offset on.

    A follower sends its replica id (-1: a consumer) and the leader epoch of the previous message.
    """

    replica_id: int = int32(default=-1)
    topic: str = string()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    offset: int = int64()
    last_epoch: int = int32(default=-1)
    max_wait_ms: int = int32()
    messages_max: int = int32(default=500)


@message(kind="lease-pid", versions="0")
class LeasedFetchResponse:
    """`diverging_offset`: the follower's log diverges from here on, at the latest; it truncates its
    log there and fetches again.
    """

    error_code: int = int16(kafka_name="error")
    leader_epoch: int = int32(default=-1)
    high_watermark: int = int64(default=-1)
    diverging_offset: int = int64(default=-1)
    messages: list[FoundMessage] = array(FoundMessage)


@message(kind="lease-pid", versions="0")
class LeasedLeadersRequest:
    """Request the leaders of the partitions of a topic."""

    topic: str = string()


@structure
class LeasedLeader:
    """-1: no leader."""

    partition: int = int32()
    leader_id: int = int32(default=-1)
    host: str = string()
    port: int = int32()


@message(kind="lease-pid", versions="0")
class LeasedLeadersResponse:
    """Every partition of the topic, in order."""

    error_code: int = int16(kafka_name="error")
    partitions: list[LeasedLeader] = array(LeasedLeader)

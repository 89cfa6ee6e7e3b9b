"""lease_pid itself: a producer asks the leader of a partition for an id to number its messages under.

Version 0 is the request of the draft, for one partition; version 1 is the batch that the draft speaks of, and the question whether a lease still
holds, at which its text breaks off.   Source: the lease_pid draft.
"""

from typing import Final

from protocol.schema import array, boolean, int16, int32, int64, message, string, structure, uint32

NOT_IDEMPOTENT: Final = 0
"""The id of messages that are not numbered: generation and sequence mean nothing."""
ASKS_FOR_ONE: Final = 2**32 - 1
"""-1 in four bytes: the producer has no id yet. Ids are unsigned, since the draft counts on four billion of them."""


@structure
class WantedLease:
    """A lease that is asked for. `is_check`: say how it stands, and change nothing."""

    topic: str = string()
    partition: int = int32()
    producer_id: int = uint32(default=ASKS_FOR_ONE, kafka_name="pid")
    expire_ms: int = int64()
    is_check: bool = boolean()


@structure
class GrantedLease:
    """`sequence_number` is the next one that the partition will take."""

    topic: str = string()
    partition: int = int32()
    error_code: int = int16(kafka_name="error")
    producer_id: int = uint32(default=ASKS_FOR_ONE, kafka_name="pid")
    generation: int = int32(default=-1)
    sequence_number: int = int32(default=-1)
    expire_ms: int = int64(default=-1)


@message(kind="lease-pid", versions="0-1")
class LeasePidRequest:
    """lease_pid_request => topic partition pid expire_ms."""

    topic: str = string(until=0)
    partition: int = int32(until=0)
    producer_id: int = uint32(until=0, default=ASKS_FOR_ONE, kafka_name="pid")
    expire_ms: int = int64(until=0)
    leases: list[WantedLease] = array(WantedLease, since=1)


@message(kind="lease-pid", versions="0-1")
class LeasePidResponse:
    """lease_pid_response => error pid generation sequence_number expire_ms."""

    error_code: int = int16(until=0, kafka_name="error")
    producer_id: int = uint32(until=0, default=ASKS_FOR_ONE, kafka_name="pid")
    generation: int = int32(until=0, default=-1)
    sequence_number: int = int32(until=0, default=-1)
    expire_ms: int = int64(until=0, default=-1)
    leases: list[GrantedLease] = array(GrantedLease, since=1)

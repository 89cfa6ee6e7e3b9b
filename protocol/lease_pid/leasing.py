"""lease_pid itself: a producer requests an id from the leader of a partition, to number its
messages.

Version 0 is the request of the draft, for one partition; version 1 is the batch that the draft
mentions, and the check whether a lease still holds, where its text ends.
Source: the lease_pid draft.
"""

from typing import Final

from protocol.schema import array, boolean, int16, int32, int64, message, string, structure, uint32

NOT_IDEMPOTENT: Final = 0
"""The id of unnumbered messages: generation and sequence have no meaning."""
ASKS_FOR_ONE: Final = 2**32 - 1
"""-1 in four bytes: the producer has no id yet.

Ids are unsigned, since the draft assumes four billion of them.
"""


@structure
class WantedLease:
    """A requested lease. `is_check`: return its state, and change nothing."""

    topic: str = string()
    partition: int = int32()
    producer_id: int = uint32(default=ASKS_FOR_ONE, kafka_name="pid")
    expire_ms: int = int64()
    is_check: bool = boolean()


@structure
class GrantedLease:
    """`sequence_number` is the next one that the partition accepts."""

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

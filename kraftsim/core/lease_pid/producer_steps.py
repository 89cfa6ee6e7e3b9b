"""The inputs and effects of a leasing producer.   Source: the lease_pid draft."""

from dataclasses import dataclass

import msgspec

from kraftsim.core.lease_pid.leasing import Lease
from kraftsim.core.lease_pid.readings import SequenceOfLease
from protocol.errors import ErrorCode
from protocol.lease_pid.leasing import ASKS_FOR_ONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasingSettings:
    """`renews`: the same id with the next generation before the lease ends, else a new id (the
    draft says both).
    """

    expire_ms: int = 86_400_000
    requests_max: int = 5
    messages_per_request: int = 20
    retry_backoff_ms: int = 100
    delivery_timeout_ms: int = 120_000
    renews: bool = True
    sequence_of_lease: SequenceOfLease = SequenceOfLease.NEXT
    """The servers' reading of a lease's sequence number."""
    known_ids: tuple[tuple[int, int], ...] = ()
    """(partition, id) of an earlier incarnation: leased again instead of requesting a new one."""

    def known_id(self, partition: int) -> int:
        """Return the id to request first."""
        return dict(self.known_ids).get(partition, ASKS_FOR_ONE)


class MessageQueued(msgspec.Struct, frozen=True):
    """The application sends a message."""

    partition: int
    key: str
    value: bytes
    timestamp_ms: int


class LeaseWanted(msgspec.Struct, frozen=True):
    """The application requests the state of a partition before it sends anything."""

    partition: int


class Leased(msgspec.Struct, frozen=True):
    """The lease_pid response."""

    partition: int
    lease: Lease


class LeaseRefused(msgspec.Struct, frozen=True):
    """lease_pid failed with an error; None: no response."""

    partition: int
    error: ErrorCode | None


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The write response: this many messages are in the log; `error` is the reason of the next
    one's failure.
    """

    request_id: int
    taken: int
    base_offset: int
    error: ErrorCode


class WriteLost(msgspec.Struct, frozen=True):
    """No response to a write: the result is unknown."""

    request_id: int


class Waited(msgspec.Struct, frozen=True):
    """A time returned by `wake_at_ms` has come."""


LeasingInput = MessageQueued | LeaseWanted | Leased | LeaseRefused | Written | WriteLost | Waited


class SendLeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Send lease_pid to the partition leader."""

    partition: int
    producer_id: int
    expire_ms: int
    is_check: bool


class SendMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Send these messages, numbered from `first_sequence` on, to the partition leader."""

    request_id: int
    partition: int
    producer_id: int
    generation: int
    first_sequence: int
    messages: tuple[MessageQueued, ...]


class LeaseTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The producer uses this lease from now on."""

    partition: int
    lease: Lease
    is_new_id: bool


class Acknowledged(msgspec.Struct, frozen=True):
    """A message is in the log."""

    message: MessageQueued


class GivenUp(msgspec.Struct, frozen=True, kw_only=True):
    """A message has failed and will not be retried; it may or may not be in the log."""

    message: MessageQueued
    error: ErrorCode


class FencedInPartition(msgspec.Struct, frozen=True):
    """Another producer writes to this partition with the next generation: this producer is a fenced
    zombie, and stops.
    """

    partition: int


LeasingEffect = (
    SendLeaseRequest | SendMessages | LeaseTaken | Acknowledged | GivenUp | FencedInPartition
)

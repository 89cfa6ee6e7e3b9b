"""What goes into the rules of a leasing producer, and what comes out.   Source: the lease_pid draft."""

from dataclasses import dataclass

import msgspec

from kraftsim.core.lease_pid.leasing import Lease
from kraftsim.core.lease_pid.readings import SequenceOfLease
from protocol.errors import ErrorCode
from protocol.lease_pid.leasing import ASKS_FOR_ONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasingSettings:
    """`renews`: the same id under the next generation before the lease ends, else a new id (the draft says both)."""

    expire_ms: int = 86_400_000
    requests_max: int = 5
    messages_per_request: int = 20
    retry_backoff_ms: int = 100
    delivery_timeout_ms: int = 120_000
    renews: bool = True
    sequence_of_lease: SequenceOfLease = SequenceOfLease.NEXT
    """How the servers mean the sequence number of a lease."""
    known_ids: tuple[tuple[int, int], ...] = ()
    """(partition, id) that an earlier incarnation held: it is taken over instead of asking for a new one."""

    def known_id(self, partition: int) -> int:
        """Return which id to begin with."""
        return dict(self.known_ids).get(partition, ASKS_FOR_ONE)


class Handed(msgspec.Struct, frozen=True):
    """The application hands over a message."""

    partition: int
    key: str
    value: bytes
    timestamp_ms: int


class LeaseWanted(msgspec.Struct, frozen=True):
    """The application wants to know where a partition stands before it hands anything over."""

    partition: int


class Leased(msgspec.Struct, frozen=True):
    """lease_pid was answered."""

    partition: int
    lease: Lease


class LeaseRefused(msgspec.Struct, frozen=True):
    """lease_pid was refused; None: nobody answered."""

    partition: int
    error: ErrorCode | None


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A request was answered: so many of its messages are in the log; `error` is why the next one is not."""

    request_id: int
    taken: int
    base_offset: int
    error: ErrorCode


class WriteLost(msgspec.Struct, frozen=True):
    """A request was not answered: nobody knows."""

    request_id: int


class Waited(msgspec.Struct, frozen=True):
    """A moment that `wake_at_ms` named has come."""


LeasingInput = Handed | LeaseWanted | Leased | LeaseRefused | Written | WriteLost | Waited


class AskLease(msgspec.Struct, frozen=True, kw_only=True):
    """Send lease_pid to whoever leads the partition."""

    partition: int
    producer_id: int
    expire_ms: int
    is_check: bool


class SendMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Send these, numbered from `first_sequence` on, to whoever leads the partition."""

    request_id: int
    partition: int
    producer_id: int
    generation: int
    first_sequence: int
    messages: tuple[Handed, ...]


class LeaseTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The producer goes on under this lease."""

    partition: int
    lease: Lease
    is_new_id: bool


class Acknowledged(msgspec.Struct, frozen=True):
    """A message is in the log."""

    message: Handed


class GivenUp(msgspec.Struct, frozen=True, kw_only=True):
    """A message will not be sent again; it may be in the log or not."""

    message: Handed
    error: ErrorCode


class ShutOut(msgspec.Struct, frozen=True):
    """Somebody else writes in this partition under the next generation: this producer is a zombie, and ends."""

    partition: int


LeasingEffect = AskLease | SendMessages | LeaseTaken | Acknowledged | GivenUp | ShutOut

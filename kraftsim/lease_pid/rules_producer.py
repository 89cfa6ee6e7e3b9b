"""The client's side of lease_pid: a producer that leases an id per partition, numbers its messages,
and retries those without a response.

Source: the lease_pid draft.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import assert_never

import msgspec

from kraftsim.lease_pid.rules_broker import (
    HALF_OF_SEQUENCES,
    Lease,
    SequenceOfLease,
    generation_after,
)
from kraftsim.producer_state.rules_entries import increment_sequence
from protocol.errors import ErrorCode
from protocol.lease_pid.messages import ASKS_FOR_ONE
from protocol.records.batches import SEQUENCES

# --------------------------------------------------------------------------------------------------
# Settings, inputs and effects


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


# --------------------------------------------------------------------------------------------------
# The state machine
#
# After any error nothing new is sent until everything in flight is answered; then the producer
# requests the partition's state, or resends from the first unacknowledged message. A renewed lease
# has the next sequence number, so it also tells which messages have arrived.

IN_THE_LOG = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
RENEW_AT = 2 / 3
"""The fraction of the lease after which it is renewed."""


@dataclass(slots=True)
class _Partition:
    """The state of one partition.

    `waiting`: unacknowledged messages, the first of them has sequence `first_sequence`.
    """

    number: int
    wanted_id: int
    waiting: deque[MessageQueued] = field(default_factory=deque)
    lease: Lease | None = None
    first_sequence: int = 0
    sent: int = 0
    """The number of waiting messages that are in flight."""
    under_way: int = 0
    """The number of requests in flight."""
    must_rewind: bool = False
    needs_request: bool = True
    asks: bool = False
    renew_at_ms: int | None = None
    not_before_ms: int = 0
    is_shut_out: bool = False


class LeasingProducer:
    """One producer of one topic. Call `step` for every input and execute its effects in order."""

    def __init__(self, settings: LeasingSettings) -> None:
        self._settings = settings
        self._partitions: dict[int, _Partition] = {}
        self._requests: dict[int, SendMessages] = {}
        self._next_request_id = 0
        self._now_ms = 0
        self._effects: list[LeasingEffect] = []

    @property
    def waiting_count(self) -> int:
        """The number of messages that are neither acknowledged nor failed."""
        return sum(len(each.waiting) for each in self._partitions.values())

    @property
    def is_shut_out(self) -> bool:
        """Whether it is fenced in some partition."""
        return any(each.is_shut_out for each in self._partitions.values())

    def held(self, partition: int) -> Lease | None:
        """Return the lease of a partition."""
        found = self._partitions.get(partition)
        return found.lease if found is not None else None

    @property
    def wake_at_ms(self) -> int | None:
        """When Waited is due without other inputs; None: never."""
        return min((moment for moment in self._moments() if moment > self._now_ms), default=None)

    def _moments(self) -> Iterator[int]:
        for each in self._partitions.values():
            if each.renew_at_ms is not None:
                yield each.renew_at_ms
            if each.waiting or each.needs_request:
                yield each.not_before_ms
            if each.waiting:
                yield each.waiting[0].timestamp_ms + self._settings.delivery_timeout_ms

    def step(self, happened: LeasingInput, now_ms: int) -> list[LeasingEffect]:
        """Handle an input and return the effects, in order.

        `timestamp_ms` of messages is of the same clock as `now_ms`.
        """
        self._effects, self._now_ms = [], now_ms
        match happened:
            case MessageQueued():
                self._of(happened.partition).waiting.append(happened)
            case LeaseWanted(partition):
                self._of(partition)
            case Leased(partition, lease):
                self._take(self._of(partition), lease)
            case LeaseRefused(partition, error):
                self._lose_lease(self._of(partition), error)
            case Written():
                self._settle(happened)
            case WriteLost(request_id):
                self._lose(request_id)
            case Waited():
                pass
            case _:
                assert_never(happened)
        for each in self._partitions.values():
            self._go_on(each)
        effects, self._effects = self._effects, []
        return effects

    def _of(self, number: int) -> _Partition:
        found = self._partitions.get(number)
        if found is None:
            found = self._partitions[number] = _Partition(number, self._settings.known_id(number))
        return found

    # Leases
    # ----------------------------------------------------------------------------------------------

    def _take(self, each: _Partition, lease: Lease) -> None:
        assert not each.under_way, "a lease is requested only with nothing in flight"
        each.asks = each.needs_request = False
        if self._settings.sequence_of_lease is SequenceOfLease.HIGH_WATERMARK:
            lease = replace(lease, sequence_number=increment_sequence(lease.sequence_number, 1))
        is_new_id = each.lease is None or each.lease.producer_id != lease.producer_id
        arrived = (lease.sequence_number - each.first_sequence) % SEQUENCES if not is_new_id else 0
        if (
            each.lease is not None
            and not is_new_id
            and _is_of_another(each.lease, lease, arrived, len(each.waiting))
        ):
            self._end(each)
            return
        if arrived > len(each.waiting):
            self._request_new_id(
                each
            )  # acknowledged messages are lost: waiting ones must not be taken for duplicates
            return
        for _ in range(arrived):
            self._effects.append(Acknowledged(each.waiting.popleft()))
        each.lease, each.wanted_id = lease, lease.producer_id
        each.first_sequence = lease.sequence_number
        each.renew_at_ms = self._now_ms + int(lease.expire_ms * RENEW_AT)
        self._effects.append(LeaseTaken(partition=each.number, lease=lease, is_new_id=is_new_id))

    def _lose_lease(self, each: _Partition, error: ErrorCode | None) -> None:
        each.asks = False
        each.not_before_ms = self._now_ms + self._settings.retry_backoff_ms
        if error is ErrorCode.UNKNOWN_PRODUCER_ID:
            self._request_new_id(each)
        elif error is not None and not error.retriable:
            self._give_up(each, error)

    def _request_new_id(self, each: _Partition) -> None:
        """Request another id; waiting messages are renumbered from 0.

        Those that had arrived without a response will be duplicated.
        """
        each.lease, each.wanted_id, each.first_sequence = None, ASKS_FOR_ONE, 0
        each.needs_request, each.renew_at_ms = True, None

    # Messages
    # ----------------------------------------------------------------------------------------------

    def _settle(self, answer: Written) -> None:
        request = self._requests.pop(answer.request_id)
        each = self._of(request.partition)
        each.under_way -= 1
        if (
            not each.must_rewind
            and each.lease is not None
            and request.first_sequence == each.first_sequence
        ):
            for _ in range(answer.taken):
                self._effects.append(Acknowledged(each.waiting.popleft()))
            each.first_sequence = increment_sequence(each.first_sequence, answer.taken)
            each.sent -= answer.taken
        else:
            each.must_rewind = True
        if answer.error not in IN_THE_LOG:
            self._on_error(each, answer.error)

    def _on_error(self, each: _Partition, error: ErrorCode) -> None:
        each.must_rewind = True
        if error is ErrorCode.INVALID_PRODUCER_EPOCH:
            self._end(each)
        elif error is ErrorCode.UNKNOWN_PRODUCER_ID:
            self._request_new_id(each)
        elif error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            each.needs_request = True
        elif error.retriable:
            each.not_before_ms = self._now_ms + self._settings.retry_backoff_ms
        else:
            self._give_up(each, error)

    def _lose(self, request_id: int) -> None:
        each = self._of(self._requests.pop(request_id).partition)
        each.under_way -= 1
        each.must_rewind = True
        each.not_before_ms = self._now_ms + self._settings.retry_backoff_ms

    def _end(self, each: _Partition) -> None:
        each.is_shut_out = True
        self._effects.append(FencedInPartition(each.number))
        self._give_up(each, ErrorCode.INVALID_PRODUCER_EPOCH)

    def _give_up(self, each: _Partition, error: ErrorCode) -> None:
        for message in each.waiting:
            self._effects.append(GivenUp(message=message, error=error))
        each.waiting.clear()
        each.sent = 0
        each.must_rewind = True

    # Next action
    # ----------------------------------------------------------------------------------------------

    def _go_on(self, each: _Partition) -> None:
        if each.is_shut_out:
            self._give_up(each, ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        if (
            each.waiting
            and each.waiting[0].timestamp_ms + self._settings.delivery_timeout_ms <= self._now_ms
            and not each.under_way
        ):
            self._give_up(each, ErrorCode.REQUEST_TIMED_OUT)
            each.needs_request = True  # they may be in the log: request the next sequence number
        if each.renew_at_ms is not None and each.renew_at_ms <= self._now_ms:
            each.renew_at_ms = None
            each.needs_request = True
            if not self._settings.renews:
                each.wanted_id = ASKS_FOR_ONE
        if each.under_way:
            return self._send(each) if not each.must_rewind and not each.needs_request else None
        if each.must_rewind:
            each.must_rewind, each.sent = False, 0
        if each.not_before_ms > self._now_ms or each.asks:
            return None
        if each.needs_request:
            each.asks = True
            self._effects.append(
                SendLeaseRequest(
                    partition=each.number,
                    producer_id=each.wanted_id,
                    expire_ms=self._settings.expire_ms,
                    is_check=False,
                )
            )
            return None
        return self._send(each)

    def _send(self, each: _Partition) -> None:
        assert each.lease is not None, "sending requires a lease"
        while each.sent < len(each.waiting) and each.under_way < self._settings.requests_max:
            messages = tuple(
                each.waiting[place]
                for place in range(
                    each.sent,
                    min(each.sent + self._settings.messages_per_request, len(each.waiting)),
                )
            )
            request = SendMessages(
                request_id=self._next_request_id,
                partition=each.number,
                producer_id=each.lease.producer_id,
                generation=each.lease.generation,
                first_sequence=increment_sequence(each.first_sequence, each.sent),
                messages=messages,
            )
            self._next_request_id += 1
            self._requests[request.request_id] = request
            each.sent += len(messages)
            each.under_way += 1
            self._effects.append(request)


def _is_of_another(held: Lease, granted: Lease, arrived: int, waiting: int) -> bool:
    """Return whether another producer has written with this id: in a generation that this producer
    never had, or more than it has sent.

    A zombie that resumes late renews first, and would otherwise fence its successor. The draft does
    not say how a producer handles this.
    """
    is_ours = granted.generation in (held.generation, generation_after(held.generation))
    return not is_ours or waiting < arrived < HALF_OF_SEQUENCES

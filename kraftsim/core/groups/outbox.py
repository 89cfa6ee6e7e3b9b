"""Effects of a coordinator: replies and appends.

The caller executes them in order, and reports the result of each append.

Source: kafka.coordinator.group.GroupMetadataManager.appendForGroup.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from kraftsim.core.groups.answers import GroupAnswer
from kraftsim.core.groups.moment import Moment
from protocol.coordinator.registry import build_record
from protocol.errors import ErrorCode
from protocol.schema import Message

OF_EVERY_STORE: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""Error codes returned to members when an append or its replication fails."""
OF_GROUPS: Final = {
    **OF_EVERY_STORE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""GroupMetadataManager.storeGroup."""
OF_OFFSETS: Final = {
    **OF_EVERY_STORE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""GroupMetadataManager.storeOffsets."""


OF_CHANGES: Final = {
    **OF_EVERY_STORE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""org.apache.kafka.coordinator.group.GroupCoordinatorService.handleOperationException."""
REPLICATED: Final = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""The result of an append that is replicated to all in-sync replicas."""


class CoordinatorRecord(Struct, frozen=True):
    """One record of the coordinator's topic; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


def coordinator_record(key: Message, value: Message | None, version: int = 0) -> CoordinatorRecord:
    """Return the record of a key and a value."""
    return CoordinatorRecord(*build_record(key, value, version))


class Reply(Struct, frozen=True):
    """Reply to the pending request with this number."""

    waiter: int
    answer: GroupAnswer


class WritingProducer(Struct, frozen=True):
    """The producer whose transaction the records belong to.

    `guard` is its verification guard, if the transaction was verified.
    """

    producer_id: int
    producer_epoch: int
    guard: int | None = None


class Append(Struct, frozen=True):
    """Append records to the coordinator's partition in one batch, in a producer's transaction if
    there is one.

    With a token, report the result with `Outbox.stored`; with None the result is not awaited.
    """

    records: tuple[CoordinatorRecord, ...]
    token: int | None
    producer: WritingProducer | None = None
    holds_already: bool = False
    """Already applied in memory: if the append fails, the groups are reloaded from the log.

    Ignores min.insync.replicas.
    """


Effect = Reply | Append


class Stored(Struct, frozen=True):
    """The result of an append: NONE once it is on all in-sync replicas, with the offset of its
    first record; else the error.

    `is_replicated`: the records are committed, possibly with an error, too: the ISR has shrunk
    below min.insync.replicas. `is_late`: the request has already failed with a timeout.
    """

    error: ErrorCode
    base_offset: int
    now: Moment
    is_replicated: bool = False
    is_late: bool = False


OnStored = Callable[[Stored], None]


class Awaited(Struct):
    """A pending append. With `outlasts_answer` it stays pending after the request is answered."""

    on_stored: OnStored
    errors: Mapping[ErrorCode, ErrorCode]
    outlasts_answer: bool
    is_answered: bool = False


class Outbox:
    """Effects in order, and the callback of each append."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._waiting: dict[int, Awaited] = {}
        self._token_count = 0

    def reply(self, waiter: int, answer: GroupAnswer) -> None:
        """Answer a pending request."""
        self._effects.append(Reply(waiter, answer))

    def store_group(self, record: CoordinatorRecord, on_stored: OnStored) -> None:
        """Append the record of a group, and call `on_stored` once it is replicated or has
        failed.
        """
        self._store((record,), Awaited(on_stored, OF_GROUPS, outlasts_answer=False))

    def store_offsets(
        self,
        records: Sequence[CoordinatorRecord],
        on_stored: OnStored,
        producer: WritingProducer | None = None,
    ) -> None:
        """Append the records of offsets, and call `on_stored` with the result; possibly twice, as a
        timed-out append may still succeed.
        """
        self._store(records, Awaited(on_stored, OF_OFFSETS, outlasts_answer=True), producer)

    def store_changes(self, records: Sequence[CoordinatorRecord], on_stored: OnStored) -> None:
        """Append changes that are already applied in memory, and call `on_stored` once they are
        replicated or have failed.
        """
        self._token_count += 1
        self._waiting[self._token_count] = Awaited(on_stored, OF_CHANGES, outlasts_answer=False)
        self._effects.append(Append(tuple(records), self._token_count, holds_already=True))

    def _store(
        self,
        records: Sequence[CoordinatorRecord],
        awaited: Awaited,
        producer: WritingProducer | None = None,
    ) -> None:
        self._token_count += 1
        self._waiting[self._token_count] = awaited
        self._effects.append(Append(tuple(records), self._token_count, producer))

    def write(self, records: Sequence[CoordinatorRecord]) -> None:
        """Append records without awaiting the result."""
        self._effects.append(Append(tuple(records), None))

    def take_effects(self) -> list[Effect]:
        """Take the effects that are due."""
        effects, self._effects = self._effects, []
        return effects

    def stored(self, token: int, stored: Stored) -> None:
        """Continue after an append.

        A timed-out append of offsets may be reported a second time with its final result.
        """
        waiting = self._waiting[token]
        is_late = waiting.is_answered
        if stored.error is ErrorCode.REQUEST_TIMED_OUT and waiting.outlasts_answer:
            waiting.is_answered = True
        else:
            del self._waiting[token]
        result = Stored(
            error=waiting.errors.get(stored.error, stored.error),
            base_offset=stored.base_offset,
            now=stored.now,
            is_replicated=stored.error in REPLICATED,
            is_late=is_late,
        )
        waiting.on_stored(result)

    def is_awaited(self, token: int) -> bool:
        """Return whether the result of an append is still awaited."""
        return token in self._waiting

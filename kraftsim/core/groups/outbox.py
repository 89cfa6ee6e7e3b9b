"""What a coordinator wants done: answers given, records appended. The shell does it, in order, and says how the appends went.

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

NO_OFFSET: Final = -1
OF_EVERY_STORE: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""What members are told where a record could not be appended or replicated."""
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
"""How an append ends whose records are on all replicas in sync."""


class CoordinatorRecord(Struct, frozen=True):
    """One record of the coordinator's topic; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


def coordinator_record(key: Message, value: Message | None, version: int = 0) -> CoordinatorRecord:
    """Return the record of a key and a value."""
    return CoordinatorRecord(*build_record(key, value, version))


class Reply(Struct, frozen=True):
    """Answer whoever waits under a number."""

    waiter: int
    answer: GroupAnswer


class WritingProducer(Struct, frozen=True):
    """The producer in whose transaction records are written. `guard` is what the verification of the transaction gave it, if there was one."""

    producer_id: int
    producer_epoch: int
    guard: int | None = None


class Append(Struct, frozen=True):
    """Append records to the coordinator's partition in one batch, of a producer's transaction if there is one.

    With a token, say how it ended: `Outbox.stored`; with None nobody asks.
    """

    records: tuple[CoordinatorRecord, ...]
    token: int | None
    producer: WritingProducer | None = None
    holds_already: bool = False
    """What the records say holds here before they are written: it is not to be if they cannot be. However few the replicas in sync are."""


Effect = Reply | Append


class Stored(Struct, frozen=True):
    """How an append ended: NONE once it is on all replicas that are in sync, with the offset of its first record; else why it is not.

    `is_replicated`: it is there for good, though there may be an error, too: the replicas in sync are too few by then. `is_late`: whoever waited was
    told before that it took too long.
    """

    error: ErrorCode
    base_offset: int
    now: Moment
    is_replicated: bool = False
    is_late: bool = False


OnStored = Callable[[Stored], None]


class Awaited(Struct):
    """Who waits for an append. With `outlasts_answer` it is waited for even when the answer is given."""

    on_stored: OnStored
    errors: Mapping[ErrorCode, ErrorCode]
    outlasts_answer: bool
    is_answered: bool = False


class Outbox:
    """Effects in the order in which they were decided, and what goes on after each append."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._waiting: dict[int, Awaited] = {}
        self._token_count = 0

    def reply(self, waiter: int, answer: GroupAnswer) -> None:
        """Answer a request that waits."""
        self._effects.append(Reply(waiter, answer))

    def store_group(self, record: CoordinatorRecord, on_stored: OnStored) -> None:
        """Have the record of a group appended, and go on once it is replicated, or is not."""
        self._store((record,), Awaited(on_stored, OF_GROUPS, outlasts_answer=False))

    def store_offsets(self, records: Sequence[CoordinatorRecord], on_stored: OnStored, producer: WritingProducer | None = None) -> None:
        """Have the records of offsets appended, and go on once they are replicated, or are not; perhaps twice: what took too long may end well."""
        self._store(records, Awaited(on_stored, OF_OFFSETS, outlasts_answer=True), producer)

    def store_changes(self, records: Sequence[CoordinatorRecord], on_stored: OnStored) -> None:
        """Have changes appended that hold here already, and go on once they are replicated, or are not."""
        self._token_count += 1
        self._waiting[self._token_count] = Awaited(on_stored, OF_CHANGES, outlasts_answer=False)
        self._effects.append(Append(tuple(records), self._token_count, holds_already=True))

    def _store(self, records: Sequence[CoordinatorRecord], awaited: Awaited, producer: WritingProducer | None = None) -> None:
        self._token_count += 1
        self._waiting[self._token_count] = awaited
        self._effects.append(Append(tuple(records), self._token_count, producer))

    def write(self, records: Sequence[CoordinatorRecord]) -> None:
        """Have records appended that nobody waits for."""
        self._effects.append(Append(tuple(records), None))

    def take_effects(self) -> list[Effect]:
        """Return what is to be done now."""
        effects, self._effects = self._effects, []
        return effects

    def stored(self, token: int, stored: Stored) -> None:
        """Go on after an append. Of offsets that took too long it may be told again how they ended after all."""
        waiting = self._waiting[token]
        is_late = waiting.is_answered
        if stored.error is ErrorCode.REQUEST_TIMED_OUT and waiting.outlasts_answer:
            waiting.is_answered = True
        else:
            del self._waiting[token]
        told = Stored(
            error=waiting.errors.get(stored.error, stored.error),
            base_offset=stored.base_offset,
            now=stored.now,
            is_replicated=stored.error in REPLICATED,
            is_late=is_late,
        )
        waiting.on_stored(told)

    def is_awaited(self, token: int) -> bool:
        """Tell whether anybody still wants to know how an append ends."""
        return token in self._waiting

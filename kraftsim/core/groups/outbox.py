"""What a coordinator wants done: answers given, records appended. The shell does it, in order, and says how the appends went.

Source: kafka.coordinator.group.GroupMetadataManager.appendForGroup.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from kraftsim.core.groups.answers import GroupAnswer
from kraftsim.core.groups.moment import Moment
from protocol.errors import ErrorCode

NO_OFFSET = -1


class CoordinatorRecord(Struct, frozen=True):
    """One record of the coordinator's topic; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Reply(Struct, frozen=True):
    """Answer whoever waits under a number."""

    waiter: int
    answer: GroupAnswer


class Append(Struct, frozen=True):
    """Append records to the coordinator's partition in one batch. With a token, say how it ended: `Outbox.stored`; with None nobody asks."""

    records: tuple[CoordinatorRecord, ...]
    token: int | None


Effect = Reply | Append


class Stored(Struct, frozen=True):
    """How an append ended: NONE once it is on all replicas that are in sync, with the offset of its first record; else why it is not."""

    error: ErrorCode
    base_offset: int
    now: Moment


OnStored = Callable[[Stored], None]


class Outbox:
    """Effects in the order in which they were decided, and what goes on after each append."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._waiting: dict[int, OnStored] = {}
        self._token_count = 0

    def reply(self, waiter: int, answer: GroupAnswer) -> None:
        """Answer a request that waits."""
        self._effects.append(Reply(waiter, answer))

    def store(self, records: Sequence[CoordinatorRecord], on_stored: OnStored) -> None:
        """Have records appended, and go on once they are replicated, or are not."""
        self._token_count += 1
        self._waiting[self._token_count] = on_stored
        self._effects.append(Append(tuple(records), self._token_count))

    def write(self, records: Sequence[CoordinatorRecord]) -> None:
        """Have records appended that nobody waits for."""
        self._effects.append(Append(tuple(records), None))

    def take_effects(self) -> list[Effect]:
        """Return what is to be done now."""
        effects, self._effects = self._effects, []
        return effects

    def stored(self, token: int, stored: Stored) -> None:
        """Go on after an append."""
        self._waiting.pop(token)(stored)

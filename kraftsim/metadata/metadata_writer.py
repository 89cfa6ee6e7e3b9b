"""Commits decisions of the active controller: appended to the metadata log, replayed immediately,
answered when committed.

Replaying before the commit lets the next request see the previous outcome; nothing is visible
outside before the commit. Requests pending at the loss of leadership are answered with an error.
Source: org.apache.kafka.controller.QuorumController (ControllerWriteEvent, deferredEventQueue).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from msgspec import Struct

from kraftsim.core.decision import Decision
from kraftsim.events.event import Event
from kraftsim.metadata.events import MetadataReverted
from kraftsim.metadata.rules_controller_state import ControllerState, kinds_of
from kraftsim.raft.raft_node import RaftNode
from kraftsim.server.call import Answer, Deferred
from kraftsim.world.interface import World
from protocol.errors import ErrorCode
from protocol.metadata.controller import NoOpRecord
from protocol.metadata.registry import build_record
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.schema import Message

T = TypeVar("T")
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""MAX_BATCH_SIZE_BYTES of the raft client."""
RECORDS_MAX: Final = 10_000
"""MAX_RECORDS_PER_BATCH of QuorumController: records that need not be atomic are split into batches
of this size.
"""


class AppendedOffsets(Struct, frozen=True, kw_only=True):
    """The offsets of the records of one decision; both ends are inclusive."""

    first_offset: int
    last_offset: int


OnCommitted = Callable[[AppendedOffsets | None], None]


class BatchTooLarge(ValueError):
    """The records of one decision exceed the size that a follower can fetch.

    Source: RecordBatchTooLargeException.
    """


@dataclass(slots=True)
class _Waiting:
    """A callback for when an offset is committed, or given up."""

    last_offset: int
    on_commit: Callable[[], None]
    on_given_up: Callable[[], None] | None


class MetadataWriter:
    """The cluster state of the active controller, and the only way to change it."""

    def __init__(self, world: World, state: ControllerState, raft: RaftNode) -> None:
        self.state = state
        self._world = world
        self._raft = raft
        self.refuse: Callable[[ErrorCode], Answer] | None = None
        """Builds the refusal of the request being handled; sent for uncommitted writes when
        leadership is lost.
        """
        self.has_written = asyncio.Event()
        """Set by every write, for tasks that react to the outcome."""
        self._waiting: deque[_Waiting] = deque()
        self.change_count = 0
        """Counts changes of the state; NoOpRecord does not count."""
        self.deciding = asyncio.Lock()
        """Held by the large request that is being decided, if any."""
        self.encoded: dict[int, tuple[Message, bytes]] = {}
        """Records that are encoded and not written yet, by object identity."""

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._raft.log_end_offset

    def commit(
        self,
        decision: Decision[T],
        build_answer: Callable[[AppendedOffsets | None], Answer],
        *,
        is_atomic: bool = True,
    ) -> Answer | Deferred:
        """Write a decision and answer once it is committed; without records, once all state it
        depends on is committed.

        Raises BatchTooLarge; then nothing has changed. `is_atomic`: as for `write`.
        """
        later, refuse = Deferred(), self.refuse

        def give_up() -> None:
            if refuse is not None:
                later.complete_with(lambda: refuse(ErrorCode.NOT_CONTROLLER))

        self.write(
            decision.records,
            decision.facts,
            lambda offsets: later.complete_with(lambda: build_answer(offsets)),
            on_given_up=give_up,
            is_atomic=is_atomic,
        )
        return later if later.answer is None else later.answer

    def write(
        self,
        records: Sequence[Message],
        facts: Sequence[Event] = (),
        on_committed: OnCommitted | None = None,
        *,
        on_given_up: Callable[[], None] | None = None,
        is_atomic: bool = True,
        record_version: Callable[[Message], int] | None = None,
    ) -> None:
        """Append records, replay them, and emit the events and call back once they are committed.

        Raises BatchTooLarge.

        Atomic records go into one batch; others (`is_atomic` False) into several, if they are many.
        `record_version` returns the version in which each record is written, where that is not the
        version for the cluster's metadata level.
        """
        offsets: AppendedOffsets | None = None
        self.has_written.set()
        if records:
            offsets = AppendedOffsets(
                first_offset=self.next_offset, last_offset=self.next_offset + len(records) - 1
            )
            size = len(records) if is_atomic else RECORDS_MAX
            try:
                for first in range(0, len(records), size):
                    self._append(
                        records[first : first + size], record_version or self.state.record_version
                    )
            except OSError:
                return  # the node is stopping; no request is answered

        def on_commit() -> None:
            for fact in facts:
                self._world.emit(fact)
            if on_committed is not None:
                on_committed(offsets)

        if offsets is not None:
            self._waiting.append(_Waiting(offsets.last_offset, on_commit, on_given_up))
            self._raft.on_written()
        elif self._raft.is_settled:
            on_commit()
        else:
            self._waiting.append(_Waiting(self.next_offset - 1, on_commit, on_given_up))

    def encode_ahead(self, record: Message) -> None:
        """Encode a record that will be written if the state does not change."""
        self.encoded[id(record)] = (record, build_record(record, self.state.record_version(record)))

    def on_high_watermark(self, high_watermark: int) -> None:
        """Everything below the high watermark is committed: it can no longer be reverted, and is
        answered.
        """
        self.state.commit_through(high_watermark - 1)
        while self._waiting and self._waiting[0].last_offset < high_watermark:
            self._waiting.popleft().on_commit()

    def give_up(self, high_watermark: int) -> None:
        """Revert uncommitted records, and answer their requests with an error: this controller is
        no longer active.
        """
        given_up, self._waiting = self._waiting, deque()
        self.revert(high_watermark)
        for waiting in given_up:
            if waiting.on_given_up is not None:
                waiting.on_given_up()

    def revert(self, high_watermark: int) -> None:
        """Revert uncommitted records without answering their requests."""
        self._waiting.clear()
        self.change_count += 1
        self.state.revert_to(high_watermark)
        self._world.emit(MetadataReverted(to_offset=high_watermark))

    def _values(
        self, records: Sequence[Message], record_version: Callable[[Message], int]
    ) -> list[bytes]:
        if not self.encoded:
            return [build_record(record, record_version(record)) for record in records]
        found = [self.encoded.get(id(record)) for record in records]
        return [
            build_record(record, record_version(record)) if known is None else known[1]
            for record, known in zip(records, found, strict=True)
        ]

    def _append(self, records: Sequence[Message], record_version: Callable[[Message], int]) -> None:
        """Write one batch and replay it."""
        timestamp = self._world.clock.wall_ms()
        first_offset = self.next_offset
        self.change_count += not isinstance(records[0], NoOpRecord)
        batch = build_batch(
            [
                Record(timestamp=timestamp, value=value)
                for value in self._values(records, record_version)
            ],
            base_offset=first_offset,
            leader_epoch=self._raft.leader_epoch,
        )
        if len(batch) > BATCH_BYTES_MAX:
            raise BatchTooLarge(
                f"a batch of {len(batch)} bytes exceeds the maximum of {BATCH_BYTES_MAX}"
            )
        self._raft.append(batch, len(records), kinds_of(records))
        for index, record in enumerate(records):
            self.state.replay(record, first_offset + index)

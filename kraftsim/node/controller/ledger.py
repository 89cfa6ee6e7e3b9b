"""Decisions of the controller become facts here: appended to the metadata log, replayed at once, answered when committed.

Replaying before the commit lets the next request see the last one's outcome; nobody outside learns of it before the commit. Source:
org.apache.kafka.controller.QuorumController (ControllerWriteEvent, deferredEventQueue).
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from kraftsim.core.decision import Decision
from kraftsim.core.metadata.controller_state import ControllerState
from kraftsim.core.raft.leader_log import AppendedOffsets
from kraftsim.events.event import Event
from kraftsim.events.metadata import MetadataReverted
from kraftsim.node.call import Answer, Deferred
from kraftsim.node.controller.metadata_log import MetadataLog
from kraftsim.world.interface import World
from protocol.schema import Message

T = TypeVar("T")
OnCommitted = Callable[[AppendedOffsets | None], None]


class LedgerLost(OSError):
    """The metadata log can no longer be written: the node must go down."""


class MetadataLedger:
    """The state of the cluster as the active controller sees it, and the only way to change it."""

    def __init__(self, world: World, state: ControllerState, log: MetadataLog) -> None:
        self.state = state
        self._world = world
        self._log = log
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        """(last offset, what to do once it is committed), by offset."""

    @property
    def next_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.log_end_offset

    def commit(self, decision: Decision[T], build_answer: Callable[[AppendedOffsets | None], Answer]) -> Answer | Deferred:
        """Write a decision and answer once it is committed; without records, once everything it was taken from is committed.

        Raises LedgerLost if the disk refuses; then nothing of it was replayed.
        """
        later = Deferred()

        def finish(offsets: AppendedOffsets | None) -> None:
            answer = build_answer(offsets)
            later.complete(answer)

        self.write(decision.records, decision.facts, finish)
        return later if later.answer is None else later.answer

    def write(self, records: Sequence[Message], facts: Sequence[Event] = (), on_committed: OnCommitted | None = None) -> AppendedOffsets | None:
        """Append records as one batch, replay them, and note the facts and call back once they are committed. Raises LedgerLost."""
        offsets = self._append(records) if records else None
        last_offset = offsets.last_offset if offsets is not None else self.next_offset - 1

        def on_commit() -> None:
            for fact in facts:
                self._world.note(fact)
            if on_committed is not None:
                on_committed(offsets)

        if offsets is None and self._log.is_settled:
            on_commit()
        else:
            self._waiting.append((last_offset, on_commit))
        if offsets is not None:
            self._log.advance()
        return offsets

    def on_high_watermark(self, high_watermark: int) -> None:
        """Everything below the high watermark is committed: it can no longer be undone, and is answered."""
        self.state.commit_through(high_watermark - 1)
        while self._waiting and self._waiting[0][0] < high_watermark:
            self._waiting.popleft()[1]()

    def revert(self, high_watermark: int) -> None:
        """Undo what was not committed; whoever waits for it is never answered."""
        self._waiting.clear()
        self.state.revert_to(high_watermark)
        self._world.note(MetadataReverted(to_offset=high_watermark))

    def _append(self, records: Sequence[Message]) -> AppendedOffsets:
        try:
            offsets = self._log.append(records, self.state.features.metadata_level)
        except OSError as refused:
            raise LedgerLost(f"the metadata log cannot be written: {refused}") from refused
        for index, record in enumerate(records):
            self.state.replay(record, offsets.first_offset + index)
        return offsets

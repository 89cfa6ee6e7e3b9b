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


class MetadataLedger:
    """The state of the cluster as the active controller sees it, and the only way to change it.

    `on_lost` hears that the disk refused a write: the node must go down, and nobody who waits is answered.
    """

    def __init__(self, world: World, state: ControllerState, log: MetadataLog, on_lost: Callable[[OSError], None]) -> None:
        self.state = state
        self._world = world
        self._log = log
        self._on_lost = on_lost
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        """(last offset, what to do once it is committed), by offset."""

    @property
    def next_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.log_end_offset

    def commit(self, decision: Decision[T], build_answer: Callable[[AppendedOffsets | None], Answer]) -> Answer | Deferred:
        """Write a decision and answer once it is committed; without records, once everything it was taken from is committed.

        Raises BatchTooLarge; then nothing happened.
        """
        later = Deferred()
        self.write(decision.records, decision.facts, lambda offsets: later.complete(build_answer(offsets)))
        return later if later.answer is None else later.answer

    def write(self, records: Sequence[Message], facts: Sequence[Event] = (), on_committed: OnCommitted | None = None) -> None:
        """Append records as one batch, replay them, and note the facts and call back once they are committed. Raises BatchTooLarge."""
        try:
            offsets = self._log.append(records, self.state.record_version) if records else None
        except OSError as refused:
            self._on_lost(refused)
            return

        def on_commit() -> None:
            for fact in facts:
                self._world.note(fact)
            if on_committed is not None:
                on_committed(offsets)

        if offsets is not None:
            for index, record in enumerate(records):
                self.state.replay(record, offsets.first_offset + index)
            self._waiting.append((offsets.last_offset, on_commit))
            self._log.advance()
        elif self._log.is_settled:
            on_commit()
        else:
            self._waiting.append((self.next_offset - 1, on_commit))

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

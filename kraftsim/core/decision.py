"""The result of a rule: a decision, or a refusal.

Deciding and changing are separate: a `decide_` method returns records, and only replaying them
changes the state, so that recovery, followers and failover use one function.
Source: ControllerResult and ApiError of org.apache.kafka.controller.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

from kraftsim.events.event import Event
from protocol.errors import ErrorCode
from protocol.schema import Message

Result = TypeVar("Result")
T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""A decision as a generator, so that other work can run between its steps.

It is valid if its input is unchanged from the first to the last step.
"""
ENTRIES_PER_STEP: Final = 500
"""Request entries per step: a fixed number, so that the event log of a seed is reproducible.

They take 2 to 20 ms.
"""


def whole(steps: Steps[T]) -> T:
    """Run all steps of a decision at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            decided: T = end.value
            return decided


def ends_step(index: int) -> bool:
    """Return whether the entry at an index is the last one of a step."""
    return index % ENTRIES_PER_STEP == ENTRIES_PER_STEP - 1


@dataclass(frozen=True, slots=True)
class Decision(Generic[Result]):
    """`result` is valid once all `records` are in the log, in this order and in one batch.

    Without records it is valid at once.

    `facts` are the events to emit when the records are committed, not earlier.
    """

    records: Sequence[Message]
    result: Result
    facts: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that caused the refusal of its batch, by its index in the batch."""

    batch_index: int
    why: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error.

    `why` is a message and not compared; `records` are the invalid records, if any (KIP-467).
    """

    error: ErrorCode
    why: str = field(default="", compare=False)
    records: tuple[RefusedRecord, ...] = field(default=(), compare=False)

    @property
    def message(self) -> str | None:
        """`why` as in responses: null if it is empty."""
        return self.why or None

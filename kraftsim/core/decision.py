"""What a rule answers when it is asked whether something may happen: a decision, or a refusal.

Looking and changing are two steps: a `decide_` method proposes records, and only replaying those records changes anything, so that recovery,
followers and failover all come from one function.   Source: ControllerResult and ApiError of org.apache.kafka.controller.
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
"""A decision that is taken step by step. It is good if nothing that it looks at changed between its first step and its last one."""
ENTRIES_PER_STEP: Final = 500
"""Of a request: a fixed number, so that the event log of a seed stays the same. They take 2 to 20 ms."""


def whole(steps: Steps[T]) -> T:
    """Take all steps of a decision at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            decided: T = end.value
            return decided


def ends_step(index: int) -> bool:
    """Tell whether the entry at an index is the last one of a step."""
    return index % ENTRIES_PER_STEP == ENTRIES_PER_STEP - 1


@dataclass(frozen=True, slots=True)
class Decision(Generic[Result]):
    """`result` holds once every one of `records` is in the log, in this order and in one batch. No records: it holds already.

    `facts` are to be noted when the records are committed, not earlier: until then nothing has happened.
    """

    records: Sequence[Message]
    result: Result
    facts: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A single record that made its batch be refused, by its place in the batch."""

    batch_index: int
    why: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Kafka forbids it. `why` is for people and takes no part in comparisons; `records` names single records where they are to blame (KIP-467)."""

    error: ErrorCode
    why: str = field(default="", compare=False)
    records: tuple[RefusedRecord, ...] = field(default=(), compare=False)

    @property
    def message(self) -> str | None:
        """`why` as answers carry it: null where there is nothing to say."""
        return self.why or None

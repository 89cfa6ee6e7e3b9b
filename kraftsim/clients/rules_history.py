"""What clients of a list-append workload did: transactions that append values to lists and read
lists, with when they began and ended, and with what outcome.

A list is a partition, a value is a record, and a read returns a list from its beginning. Nothing
here comes from a node: a checker over such a history judges any cluster.
Source: K. Kingsbury, P. Alvaro, Elle, VLDB 2020; jepsen.history.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

Value = str
ListRead = tuple[str, tuple[Value, ...]]
"""A list and its values, in order."""
NOT_ENDED: Final = -1


class OperationOutcome(StrEnum):
    """How an operation ended, as its client knows it."""

    OK = "ok"
    """It happened: its transaction is committed."""
    FAIL = "fail"
    """It did not happen: its transaction is aborted, or its commit was never requested."""
    INFO = "info"
    """Unknown."""


@dataclass(kw_only=True, slots=True, eq=False)
class ClientOperation:
    """One transaction or one read.

    `began_at` and `ended_at` are places in the order of the history's invocations and completions;
    the latter is NOT_ENDED while the outcome is unknown: the operation may still take effect.
    """

    name: str
    process: str
    began_at: int
    ended_at: int = NOT_ENDED
    outcome: OperationOutcome = OperationOutcome.INFO
    appends: Sequence[tuple[str, Value]] = ()
    reads: Sequence[ListRead] = ()
    is_final: bool = False
    """A read after all work was done, when every transaction was decided: what it lacks is lost."""


class HistoryRecorder:
    """Records the operations of a workload's clients, which run one after another in one process.

    Call `begin`, add to the operation's appends and reads, and call `end`; an operation that is
    never ended has an unknown outcome.
    """

    def __init__(self) -> None:
        self.operations: list[ClientOperation] = []
        self._count = 0

    def begin(self, process: str, *, is_final: bool = False) -> ClientOperation:
        """Begin an operation."""
        operation = ClientOperation(
            name=f"T{len(self.operations)}",
            process=process,
            began_at=self._next(),
            appends=[],
            is_final=is_final,
        )
        self.operations.append(operation)
        return operation

    def end(
        self,
        operation: ClientOperation,
        outcome: OperationOutcome,
        reads: Iterable[ListRead] | None = None,
    ) -> None:
        """End an operation; one whose outcome is unknown stays open."""
        operation.outcome = outcome
        if reads is not None:
            operation.reads = tuple(reads)
        if outcome is not OperationOutcome.INFO:
            operation.ended_at = self._next()

    def _next(self) -> int:
        self._count += 1
        return self._count
